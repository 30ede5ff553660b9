"""Processes that serve a user's own dataset or op, against a fake daemon: what they answer, and
what becomes of them when the user's code, the daemon or the program misbehaves.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import own_datasets as own
import pytest
from fake_asker import FAILED, MADE, TOO_LARGE, payload
from own_processes import PATIENCE_S, is_alive, processes_of, wait_for
from own_programs import MINE, PROGRAM, run

import feedwater
from feedwater import errors


def test_a_source_is_offered_with_its_fields_and_classes(serve):
    request = serve(own.Numbers(), version="3", timeout=7).request
    assert (request.name, request.version, request.timeout_s) == ("mine", "3", 7)
    assert (request.source.records, list(request.source.classes)) == (40, ["even", "odd"])
    shapes = [(one.name, list(one.shape), one.layout) for one in request.source.fields]
    assert shapes == [("field0", [3, 4], "plain"), ("field1", [], "plain")]
    served = serve.served[0]
    assert (served.name, served.records, served.is_open) == ("mine", 40, True)
    served.close()
    assert not served.is_open


def test_records_are_what_the_dataset_gives(serve):
    asker, data = serve(own.Numbers()), own.Numbers()
    for window in (0, 1, 0):
        got = asker.get(3, 39, 0, 3, window=window)
        for answer, record in zip(got, (3, 39, 0, 3)):
            assert answer.code == MADE and answer.dtypes == (10, 7)
            assert (answer.tensors[0] == data[record][0]).all()
            assert answer.tensors[1] == record % 2


def test_records_of_differing_sizes_are_what_the_dataset_gives(serve):
    asker, data = serve(own.Ragged(), fields={"boxes": (None, 4), "text": None}), own.Ragged()
    assert [list(one.shape) for one in asker.request.source.fields] == [[-1, 4], [-1]]
    for answer, record in zip(asker.get(*range(40)), range(40)):
        assert (answer.tensors[0] == data[record]["boxes"]).all()
        assert answer.tensors[0].shape == (record % 5, 4)
        assert answer.tensors[1].tobytes() == data[record]["text"].encode()


def test_several_asks_wait_in_the_socket_and_are_answered_in_their_order(serve):
    asker = serve(own.Numbers())
    asker.ask(1, 2, window=1)
    asker.ask(3, window=0)
    assert [int(answer.tensors[0][0, 0]) for answer in asker.answers(1)] == [1, 2]
    assert [int(answer.tensors[0][0, 0]) for answer in asker.answers(0)] == [3]


def test_what_is_random_depends_on_the_seeds_alone(serve):
    first, second = serve(own.Random(), name="a"), serve(own.Random(), name="b")
    seeds = lambda record: (record << 32 | record, 7)  # noqa: E731
    one = [answer.tensors[0].tolist() for answer in first.get(5, 6, 5, seed=seeds)]
    two = [answer.tensors[0].tolist() for answer in second.get(6, 5, seed=seeds)]
    assert one[0] == one[2] == two[1] and one[1] == two[0] and one[0] != one[1]
    assert first.get(5, seed=(5, 8))[0].tensors[0].tolist() != one[0]
    free = serve(own.Random(), name="c", seeded=False)
    got = [answer.tensors[0].tolist() for answer in free.get(5, 5, seed=seeds)]
    assert got[0] != got[1]


DRAWING = """
import contextlib
import numpy.random
import own_datasets
with contextlib.suppress(ImportError):
    import torch

class Drawing(own_datasets.Random): pass
"""


def test_without_seeds_each_process_draws_other_numbers(serve, daemon, tmp_path, monkeypatch):
    """They are forks of one process, which has imported what draws."""
    (tmp_path / "drawing.py").write_text(DRAWING)
    monkeypatch.syspath_prepend(tmp_path)
    serve(importlib.import_module("drawing").Drawing(), workers=3, seeded=False)
    wait_for(lambda: len(daemon.askers) == 3)
    drawn = [asker.get(5)[0].tensors[0].tolist() for asker in daemon.askers]
    assert len(drawn[0]) == 4 + ("torch" in sys.modules)
    assert len({number for numbers in drawn for number in numbers}) == 3 * len(drawn[0])


def test_a_sample_that_is_too_large_is_kept_until_there_is_room(serve, tmp_path):
    asker = serve(own.Large(str(tmp_path), 10_000))  # 40,000 bytes: one fits into a window of 64 Ki
    codes = [answer.code for answer in asker.get(0, 1, 2)]
    assert codes == [MADE, TOO_LARGE, TOO_LARGE]
    asker.give_region(1 << 17)
    assert asker.get(1)[0].tensors[0][0] == 1
    assert [answer.code for answer in asker.get(2, 3)] == [MADE, MADE]
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made["made-1"] == made["made-2"] == "x"
    asker.give_region(8192)
    answer = asker.get(5)[0]
    assert (answer.code, answer.size) == (TOO_LARGE, 40_136)


@pytest.mark.parametrize(
    "word, text",
    [
        ("raise", "ValueError: record 7 is bad\nTraceback"),
        ("exit", "SystemExit: enough"),
        ("interrupt", "KeyboardInterrupt"),
        ("large", "it takes 1024 MiB, and the most that a sample of one's own may take is 256 MiB"),
        ("other shape", r"field 'field0' (sample[0]) is float32 [9, 9]; by the first samples"),
        ("nothing", "sample is of type NoneType; in the first sample it has 0, 1"),
    ],
)
def test_what_goes_wrong_is_the_failure_of_that_sample_alone(serve, tmp_path, word, text):
    fields = {"image": (None, 4), "label": None} if word == "large" else None
    asker = serve(own.Wicked(str(tmp_path), r7=word), fields=fields)
    for _ in range(2):
        codes = asker.get(6, 7, 8)
        assert [answer.code for answer in codes] == [MADE, FAILED, MADE]
        assert codes[1].text.startswith(text), codes[1].text
        assert (codes[2].tensors[0] == own.Numbers()[8][0]).all()
    if word == "raise":
        assert "own_datasets.py" in codes[1].text and "provider_process.py" not in codes[1].text


def test_a_length_that_lies_is_a_failure_with_its_text(serve):
    answer = serve(own.Lying()).get(10)[0]
    assert answer.code == FAILED and answer.text.startswith("IndexError: list index 10 out")


def test_an_op_that_is_called_again_gets_its_input_again(serve):
    asker = serve(own.double)
    asker.give_region(8192, entries=8)
    image = np.ones(1000, np.float32)
    answer = asker.get(4, inputs=[payload([image])])[0]
    assert answer.code == TOO_LARGE
    asker.give_region(1 << 16)
    answer = asker.get(4, inputs=[payload([image * 3])])[0]  # another graph's sample
    assert (answer.tensors[0] == 6).all()


def test_another_object_under_the_same_name_is_refused_with_the_cure(serve):
    data = own.Numbers()
    serve(data)
    serve(data)  # more processes
    with pytest.raises(errors.AlreadyExists, match=r"serves another object .* Cure: close\(\)"):
        serve(own.Numbers(41))
    serve(own.double)  # an op is no source
    with pytest.raises(errors.AlreadyExists, match="op 'mine'"):
        serve(own.two)
    for one in serve.served:
        one.close()
    serve(own.Numbers(41))


def test_a_text_without_room_comes_again(serve, tmp_path):
    asker = serve(own.Wicked(str(tmp_path), r7="raise"))
    asker.give_region(4096, entries=62)  # 128 bytes are left
    answer = asker.get(7)[0]
    assert answer.code == TOO_LARGE and answer.size > 128
    asker.give_region(1 << 16)
    assert asker.get(7)[0].text.startswith("ValueError")


def test_a_fork_that_comes_back_and_threads_harm_nothing(serve, tmp_path):
    asker = serve(own.Wicked(str(tmp_path), r7="fork", r8="threads"))
    for _ in range(3):
        assert [answer.code for answer in asker.get(7, 8, 9)] == [MADE] * 3


@pytest.mark.parametrize(
    "word, words",
    [
        ("die", ""),
        ("crash", "Segmentation fault"),
        ("leave", ""),
        ("hang", "Timeout"),
        ("alarm", "Timeout"),
    ],
)
def test_a_process_that_ends_leaves_its_last_words_and_is_replaced(
    serve, daemon, tmp_path, word, words
):
    asker = serve(own.Wicked(str(tmp_path), r7=f"once {word}"), timeout=1)
    began = time.monotonic()
    with pytest.raises((EOFError, ConnectionError)):
        asker.get(6, 7)
    if word in ("hang", "alarm"):
        assert 0.9 < time.monotonic() - began < 10
    if words:
        assert words in asker.last_words() and "own_datasets.py" in asker.last_words()
    wait_for(lambda: len(daemon.askers) == 2)
    assert [answer.code for answer in daemon.askers[1].get(6, 7)] == [MADE, MADE]


def test_processes_that_end_again_and_again_end_the_service(serve, daemon, tmp_path, caplog):
    serve(own.Wicked(str(tmp_path), r7="leave"))
    for number in range(6):
        wait_for(lambda: len(daemon.askers) > number)  # noqa: B023
        with pytest.raises((EOFError, ConnectionError)):
            daemon.askers[number].get(7)
    served = serve.served[0]
    wait_for(lambda: not served.is_open)
    with pytest.raises(errors.FailedPrecondition, match=r"6 processes ended .* exit status 7"):
        served.check()
    assert sum("is provided no longer" in record.message for record in caplog.records) == 1


def test_a_fork_server_that_is_killed_is_replaced(serve, daemon):
    serve(own.Numbers(), workers=2)
    wait_for(lambda: len(daemon.askers) == 2)
    os.kill(min(processes_of(os.getpid())), signal.SIGKILL)
    wait_for(lambda: len(daemon.askers) == 4)
    assert [daemon.askers[number].get(4)[0].code for number in (2, 3)] == [MADE, MADE]


def test_as_many_processes_serve_as_were_asked_for(serve, daemon):
    serve(own.Numbers(), workers=3)
    wait_for(lambda: len(daemon.askers) == 3)
    for asker in daemon.askers:
        assert asker.get(4)[0].tensors[0][0, 0] == 4


def test_a_connection_that_ends_is_made_again_by_the_same_process(serve, daemon):
    asker = serve(own.Numbers())
    asker.get(1)
    before = sorted(processes_of(os.getpid()))
    asker.hang_up()
    wait_for(lambda: len(daemon.askers) == 2)
    assert daemon.askers[1].get(2)[0].code == MADE
    assert sorted(processes_of(os.getpid())) == before


def test_a_daemon_that_comes_back_is_served_again(serve, start, daemon):
    serve(own.Numbers()).get(1)
    directory = daemon.directory
    daemon.stop()
    time.sleep(0.3)
    again = type(daemon)(directory)
    try:
        wait_for(lambda: again.askers)
        assert again.askers[0].get(5)[0].code == MADE
        serve.served[0].close()
    finally:
        again.stop()


def test_a_region_that_is_none_ends_the_connection(serve, daemon):
    for number, faults in enumerate([{"seals": 0}, {"size": 4096}, {"windows": 9}]):
        if number == 0:
            serve(own.Numbers())
        wait_for(lambda: len(daemon.askers) > number)  # noqa: B023
        asker = daemon.askers[number]
        with pytest.raises((EOFError, ConnectionError)):
            asker.give_region(1 << 16, **faults)
            asker.get(1)


def test_a_list_of_numbers_is_told_to_be_an_array(serve, tmp_path):
    with pytest.raises(errors.InvalidArgument, match=r"one value as np.asarray\(\.\.\.\)"):
        serve(own.Listed(100))
    answer = serve(own.Listed(3), name="few").get(4)[0]
    assert answer.code == FAILED and "a list of numbers is one as np.asarray(...)" in answer.text


def test_processes_that_end_one_after_the_other_leave_their_last_words(serve, daemon):
    asker = serve(own.Hasty())
    served = serve.served[0]
    with contextlib.suppress(EOFError, ConnectionError):
        asker.get(7)
    number = 1
    while served.is_open and number < 20:
        if len(daemon.askers) > number:
            with contextlib.suppress(EOFError, ConnectionError):
                daemon.askers[number].get(7)
            number += 1
        time.sleep(0.01)
    with pytest.raises(errors.FailedPrecondition) as raised:
        served.check()
    text = str(raised.value)
    assert text.startswith("source 'mine': 6 processes ended one after the other, and made nothing")
    assert "killed by SIGSEGV; it left: Fatal Python error: Segmentation fault" in text
    assert "own_datasets.py" in text


# --- what is refused ------------------------------------------------------------------------------


def test_what_cannot_be_served_is_refused_with_the_cure(serve, tmp_path):
    for what, options, text in [
        (own.Stream(), {}, "Stream is an iterable dataset without __len__: say length="),
        (own.Stream(0), {"length": 4}, "sample 0 of worker 0: the dataset ended in worker 0 of 1"),
        (own.Stream(), {"length": 0}, "length is 0: an epoch has at least one"),
        (own.Numbers(), {"length": 40}, "length=40: Numbers says its length itself"),
        (own.Numbers, {}, r"the dataset is the class Numbers: give an object of it, Numbers\("),
        (own.Numbers(records=0), {}, "the dataset has no records"),
        (own.Unlisted(), {}, "the dataset has no length: OSError: the disk is gone"),
        (own.Wicked(str(tmp_path), r0="raise"), {}, "record 0 of 40: ValueError: record 0 is bad"),
        (own.Wicked(str(tmp_path), r39="exit"), {}, "record 39 of 40: SystemExit: enough"),
        (own.Wicked(str(tmp_path), r0="leave"), {}, r"ended \(exit status 7\) while it made"),
        (
            own.Wicked(str(tmp_path), r0="hang"),
            {"timeout": 0.5},
            "made record 0 of 40, which took longer than timeout=0.5. Cure: a larger timeout=",
        ),
        (own.Numbers(), {"fields": ["a"]}, r"2 values: .*names each; outputs= says which"),
        (own.Numbers(), {"name": "a/b"}, "name is 'a/b': it is 1 to 64"),
        (own.Numbers(), {"workers": 0}, "workers is 0: it is 1 to 64"),
        (own.Numbers(), {"timeout": 0}, "timeout is 0: it is a number of seconds"),
        (own.Numbers(), {"version": "v" * 65}, "at most 64 letters"),
    ]:
        with pytest.raises(errors.InvalidArgument, match=text):
            serve(what, **options)


def test_what_cannot_be_pickled_is_named_with_its_place(serve):
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        text = r"dataset\.transform\.steps\[0\] \(builtins.function\) cannot be given .*lambda.*"
        with pytest.raises(errors.InvalidArgument, match=text + "pip install cloudpickle"):
            serve(own.Unpicklable())
        return
    assert serve(own.Unpicklable()).get(1)[0].code == MADE


def test_a_refusal_of_the_daemon_is_raised(serve, daemon):
    daemon.faults.refuse_open = (6, "others serve something else as 'mine'")
    with pytest.raises(errors.AlreadyExists, match="something else"):
        serve(own.Numbers())


def test_no_daemon_is_an_error(folder):
    with pytest.raises(errors.DaemonLost):
        feedwater.serve_source("mine", own.Numbers(), address=str(folder / "nobody"))


# --- programs -------------------------------------------------------------------------------------


def test_a_main_module_without_a_guard_is_refused_with_the_cure(daemon, folder):
    program = run(MINE + "main()\n", str(daemon.directory), folder=folder)
    _, errors_ = program.communicate(timeout=PATIENCE_S)
    assert program.returncode != 0
    assert "if __name__ == '__main__':" in errors_ and errors_.count("Traceback") == 1


def test_classes_of_the_main_module_are_served(daemon, folder):
    program = run(
        MINE + "if __name__ == '__main__': main()\n", str(daemon.directory), folder=folder
    )
    wait_for(lambda: len(daemon.askers) == 2)
    assert daemon.askers[0].get(3)[0].code == MADE
    program.kill()
    program.communicate()


def test_a_class_of_a_notebook_cell_needs_cloudpickle(daemon, folder):
    text = PROGRAM + MINE.replace("sys.argv[1]", repr(str(daemon.directory))) + "main()\n"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, input="\n", timeout=PATIENCE_S
    )
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        assert "notebook cell" in done.stderr and "pip install cloudpickle" in done.stderr
    else:
        assert done.stdout == "serving\n", done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_leave_when_the_program_is_killed(daemon, folder, number):
    program = run(
        MINE + "if __name__ == '__main__': main()\n", str(daemon.directory), folder=folder
    )
    wait_for(lambda: len(daemon.askers) == 2)
    mine = processes_of(program.pid)
    assert len(mine) == 3
    program.send_signal(number)
    program.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() and is_alive(pid) for pid in mine))


def test_a_fork_of_the_program_keeps_nothing_alive(daemon, folder):
    text = MINE.replace(
        "print(", "import os, time\n    if os.fork() == 0: time.sleep(60)\n    print("
    )
    program = run(
        text + "if __name__ == '__main__': main()\n", str(daemon.directory), folder=folder
    )
    wait_for(lambda: len(daemon.askers) == 2)
    wait_for(lambda: len(processes_of(program.pid)) == 4)
    mine = processes_of(program.pid)
    program.kill()
    wait_for(lambda: sum(map(is_alive, mine)) == 1)
    os.kill(next(filter(is_alive, mine)), signal.SIGKILL)
    program.communicate()


def test_ten_interrupted_cells_leave_no_process(daemon, folder):
    text = """
import os, signal, threading
if __name__ == "__main__":
    served, data = None, own.Numbers()
    feedwater.serve_source  # an import that is interrupted harms other packages
    for number in range(10):
        try:
            interrupt = [os.getpid(), signal.SIGINT]
            threading.Timer(0.05 + 0.2 * number, os.kill, interrupt).start()
            served = feedwater.serve_source("mine", data, workers=2, address=sys.argv[1])
            threading.Event().wait(10)
        except KeyboardInterrupt:
            pass
    del served  # ends them without waiting for it
    from own_processes import processes_of, wait_for
    wait_for(lambda: processes_of(os.getpid()) == [])
"""
    program = run(text, str(daemon.directory), folder=folder)
    _, told = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, told
    # One may come while Python collects garbage, and is reported there.
    told = re.sub("Exception ignored in:.*?\nKeyboardInterrupt: *\n", "", told, flags=re.DOTALL)
    assert "Traceback" not in told, told
