"""A user's own dataset through a real daemon: `Loader.from_dataset` and `serve_source`.

The promise under test: batches are what the dataset gives, in the daemon's order, each record once;
whatever is killed or raised, nothing is lost, the trainer never hangs, and no process is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import own_datasets as own
import pytest
from own_loaders import (
    Pairs,
    daemon_fixture,  # noqa: F401
    open_loader_fixture,  # noqa: F401
)
from own_processes import PATIENCE_S, is_alive, processes_of, wait_for
from pictures import center

import feedwater
from feedwater import Loader, Pipeline, errors, ops

TESTS = Path(__file__).resolve().parents[1]
BATCH_SIZE = 8


def records_of(batches) -> list[int]:
    """Return the records of batches of `Numbers`."""
    return [int(record) for image, _ in batches for record in image[:, 0, 0]]


# --- order and bytes ------------------------------------------------------------------------------


def test_batches_are_what_the_dataset_gives_in_its_order(open_loader):
    data = own.Numbers()
    loader = open_loader(data, shuffle=False)
    assert (len(loader), len(loader.dataset), loader.classes) == (5, 40, ["even", "odd"])
    batches = list(loader)
    assert (np.concatenate([b[0] for b in batches]) == [data[i][0] for i in range(40)]).all()
    assert np.concatenate([b[1] for b in batches]).tolist() == [i % 2 for i in range(40)]
    assert loader.fields["field0"] == (np.dtype("f4"), (3, 4))


def test_each_epoch_has_another_order_that_the_seed_decides(open_loader):
    loader = open_loader(own.Numbers(), seed=5)
    epochs = [records_of(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != list(range(40))
    again = open_loader(own.Numbers(), seed=5, workers=1)
    assert [records_of(again) for _ in range(3)] == epochs
    assert records_of(open_loader(own.Numbers(), seed=6)) != epochs[0]


def test_the_rest_of_an_epoch_comes_or_is_left_out(open_loader):
    sizes = [len(b[0]) for b in open_loader(own.Numbers(), batch_size=16)]
    assert sizes == [16, 16, 8]
    assert [len(b[0]) for b in open_loader(own.Numbers(), batch_size=16, drop_last=True)] == [
        16,
        16,
    ]


def test_fields_of_differing_sizes_are_ragged(open_loader):
    data = own.Ragged()
    fields = {"boxes": (None, 4), "text": None}
    outputs = [{"boxes": {"max_rows": 8}}, {"text": {"max_rows": 8}}]
    loader = open_loader(data, shuffle=False, fields=fields, outputs=outputs)
    boxes, texts = next(iter(loader))
    for record in range(8):
        assert (boxes[record] == data[record]["boxes"]).all()
        assert texts[record].tobytes().decode() == data[record]["text"]


def test_encoded_bytes_go_on_in_the_daemons_graph(open_loader):
    graph = [ops.decode(), ops.center_crop(8)]
    loader = open_loader(own.Pictures(), shuffle=False, graph=graph)
    assert list(loader.fields) == ["image", "label"]
    images = np.concatenate([image for image, _ in loader])
    assert (images == [center(record) for record in range(40)]).all()


def test_what_is_random_does_not_depend_on_processes(open_loader):
    options = {"outputs": ["field0"], "seed": 1}
    one = np.concatenate([b[0] for b in open_loader(own.Random(), workers=1, **options)])
    two = np.concatenate([b[0] for b in open_loader(own.Random(), workers=3, **options)])
    assert (one == two).all() and len({tuple(row) for row in one}) == 40


def test_datasets_of_torch_are_taken_as_they_are(daemon):
    torch = pytest.importorskip("torch")
    images, labels = torch.rand(40, 3, 5).to(torch.bfloat16), torch.arange(40)
    data = torch.utils.data.Subset(
        torch.utils.data.TensorDataset(images, labels), range(39, -1, -1)
    )
    with Loader.from_dataset(data, 8, workers=2, shuffle=False, address=daemon.address) as loader:
        got = [(image.clone(), label.clone()) for image, label in loader]
    assert torch.equal(torch.cat([image for image, _ in got]), images.flip(0))
    assert torch.equal(torch.cat([label for _, label in got]), labels.flip(0))


def test_two_loaders_of_one_program_are_two(open_loader):
    one, two = open_loader(own.Numbers(40)), open_loader(own.Numbers(24))
    assert (len(one.dataset), len(two.dataset)) == (40, 24)
    assert sorted(records_of(two)) == list(range(24))
    assert sorted(records_of(one)) == list(range(40))


@pytest.mark.parametrize(
    "options, text",
    [
        ({}, r"'data' is a compressed image of varying length\. With graph=\[ops\.decode\(\), .*"
         r"np\.frombuffer.*max_rows.*The dataset has data \(uint8 \[\?\]\), label \(int64 \[\]\)"),
        ({"graph": [ops.resize([8, 8])], "outputs": ["label"]},
         r"Loader\.from_dataset: .*'image'.*The dataset has data .*fields=\[\.\.\.\] gives"),
        ({"outputs": ["lable"]}, r"Loader\.from_dataset: .*'lable'.*The dataset has data"),
    ],
)  # fmt: skip
def test_a_graph_that_does_not_fit_is_told_in_words_of_the_call(open_loader, options, text):
    with pytest.raises(errors.InvalidArgument, match=text):
        open_loader(own.Pictures(), **options)


def test_values_without_names_are_told_with_the_names_that_ops_read(daemon, open_loader):
    """And each cure works as it stands there."""
    names = '; fields=["data", "label"] where the dataset is served gives its values names'
    graph = [ops.decode(), ops.center_crop(8)]
    with pytest.raises(errors.InvalidArgument, match=r"unknown field 'data'") as refused:
        open_loader(Pairs(), graph=graph)
    assert "; cure: `decode: {in: field0}`" in str(refused.value) and names in str(refused.value)
    with pytest.raises(errors.InvalidArgument, match=r'graph=\[ops\.decode\(in_="field0"\), '):
        open_loader(Pairs())
    for options in (
        {"graph": graph, "fields": ["data", "label"]},
        {"graph": [ops.decode(in_="field0"), *graph[1:]]},
    ):
        assert "image" in open_loader(Pairs(), **options).fields
    pipeline = Pipeline(dataset={"format": "python", "name": "mine"}, graph=graph, batch=8)
    for fields in (None, ["data", "label"]):
        with feedwater.serve_source(
            "mine", Pairs(), workers=1, address=daemon.address, fields=fields
        ):
            if fields is None:
                with pytest.raises(errors.InvalidArgument) as refused:
                    Loader(pipeline, address=daemon.address)
                assert names in str(refused.value)
            else:
                Loader(pipeline, address=daemon.address, output="numpy").close()


def test_bytes_that_are_no_image_are_told_what_bytes_are_taken_for(open_loader):
    loader = open_loader(own.Words(), graph=[ops.decode(), ops.resize([8, 8])])
    with pytest.raises(errors.BadSample, match=r"not an image of a known .*np\.frombuffer"):
        list(loader)
    words = open_loader(own.Words(), shuffle=False, outputs=[{"data": {"max_rows": 9}}, "label"])
    assert next(iter(words))[0][3].tobytes() == b"word 3"


# --- position and ranks ---------------------------------------------------------------------------


def test_a_resumed_loader_goes_on_with_the_same_bytes(open_loader):
    loader = open_loader(own.Random(), seed=3, outputs=["field0", "sample_id"])
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = list(batches)
    again = open_loader(own.Random(), seed=3, workers=1, outputs=["field0", "sample_id"])
    again.load_state_dict(state)
    for one, two in zip(rest, again):
        assert (one[0] == two[0]).all() and (one[1] == two[1]).all()
    assert len(rest) == 3


def test_a_state_of_another_version_is_refused(open_loader):
    state = open_loader(own.Numbers(), version="1").state_dict()
    open_loader(own.Numbers(), version="1").load_state_dict(state)
    with pytest.raises(errors.FailedPrecondition, match="another dataset"):
        open_loader(own.Numbers(), version="2").load_state_dict(state)


RANK = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, own_datasets as own, feedwater
if __name__ == "__main__":
    rank, address = int(sys.argv[1]), sys.argv[2]
    with feedwater.Loader.from_dataset(
        own.Numbers(), batch_size=4, workers=2, seed=7, rank=rank, world_size=2, job="ours",
        address=address, output="numpy",
    ) as loader:
        print(json.dumps([image[:, 0, 0].astype(int).tolist() for image, _ in loader]))
        sys.stdout.flush()
        sys.stdin.readline()
"""


def test_two_ranks_share_the_records_and_the_processes(daemon, folder, open_loader):
    script = folder / "rank.py"
    script.write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), daemon.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    got = [json.loads(rank.stdout.readline()) for rank in ranks]
    for rank in ranks:
        rank.communicate("\n", timeout=PATIENCE_S)
        assert rank.returncode == 0
    alone = records_of(open_loader(own.Numbers(), seed=7))
    assert [record for step in zip(*got) for rank in step for record in rank] == alone


LAUNCHED = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, os, own_datasets as own, feedwater
if __name__ == "__main__":
    given = {{"batch_size": 4, "workers": 1, "address": sys.argv[1], "output": "numpy"}}
    val = None
    if os.environ["RANK"] == "0":
        val = feedwater.Loader.from_dataset(own.Part(1), rank=0, world_size=1, **given)
    train = feedwater.Loader.from_dataset(own.Part(2), **given)
    print(json.dumps([train.job, [image[:, 0, 0].astype(int).tolist() for image, _ in train],
                      val and len(list(val))]), flush=True)
    sys.stdin.readline()
    train.close()
"""


def test_a_rank_that_validates_alone_leaves_the_others_as_they_are(daemon, folder):
    script = folder / "launched.py"
    script.write_text(LAUNCHED)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, daemon.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                 "TORCHELASTIC_RUN_ID": "alone"},
        )
        for rank in range(2)
    ]  # fmt: skip
    told = [json.loads(rank.stdout.readline()) for rank in ranks]
    for rank in ranks:
        rank.communicate("\n", timeout=PATIENCE_S)
    assert told[0][0] == told[1][0]
    got = [record for one in told for batch in one[1] for record in batch]
    assert sorted(got) == list(range(40))
    assert [one[2] for one in told] == [10, None]


RETRIES = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, os, own_datasets as own, feedwater

class Based(own.Numbers):
    def __init__(self, base):
        super().__init__()
        self.base = self.base + base

if __name__ == "__main__":
    def make(base, **options):
        return feedwater.Loader.from_dataset(
            Based(base), 4, workers=1, version="1", address=sys.argv[1], output="numpy", **options)

    if os.environ["RANK"] == "0":
        try:
            make(0, graph=[feedwater.ops.resize([8, 8])])
        except feedwater.InvalidArgument:
            pass
    train, val = make(0), make(1000)
    print(json.dumps([[one.job, [int(record) for image, _ in one for record in image[:, 0, 0]]]
                      for one in (train, val)]), flush=True)
    sys.stdin.readline()
"""


def test_a_rank_whose_loader_was_refused_at_first_reads_the_same_datasets_as_the_others(
    daemon, folder
):
    script = folder / "retries.py"
    script.write_text(RETRIES)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, daemon.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                 "TORCHELASTIC_RUN_ID": "retries"},
        )
        for rank in range(2)
    ]  # fmt: skip
    told = [json.loads(rank.stdout.readline()) for rank in ranks]
    for rank in ranks:
        rank.communicate("\n", timeout=PATIENCE_S)
    for base, (one, other) in zip((0, 1000), zip(*told)):
        assert one[0] == other[0], "the job"
        assert sorted(one[1] + other[1]) == list(range(base, base + 40))


LATE = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, fake_group, own_datasets as own, feedwater

if __name__ == "__main__":
    loader = feedwater.Loader.from_dataset(
        own.Numbers(), 4, workers=1, address=sys.argv[2], output="numpy")
    print(loader.world_size, flush=True)
    sys.stdin.readline()
    fake_group.join(int(sys.argv[1]), 2, sys.argv[3])
    try:
        print(json.dumps(len(list(loader))), flush=True)
    except feedwater.FailedPrecondition as error:
        print(json.dumps(str(error)), flush=True)
    sys.stdin.readline()
"""


def test_a_loader_made_before_the_group_is_refused_there_with_the_cure(daemon, folder):
    script = folder / "late.py"
    script.write_text(LATE)
    (folder / "group").mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), daemon.address, folder / "group"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    told = []
    assert [rank.stdout.readline() for rank in ranks] == ["1\n", "1\n"]
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
        told.append(json.loads(rank.stdout.readline()))
    for rank in ranks:
        rank.communicate("\n", timeout=PATIENCE_S)
    assert told[0] == 5
    assert "source 'Numbers-" in told[1]
    assert told[1].endswith("after the group is initialised, or give rank, world_size and job")


SPAWNED = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, multiprocessing, own_datasets as own, feedwater

class Mine(own.Numbers):
    pass

def rank(number, address, told, over):
    with feedwater.Loader.from_dataset(
        Mine(), batch_size=4, workers=2, rank=number, world_size=2, job="ours", address=address,
        output="numpy",
    ) as loader:
        told.put([int(record) for image, _ in loader for record in image[:, 0, 0]])
        over.wait()

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    told, over = spawn.Queue(), spawn.Event()
    ranks = [spawn.Process(target=rank, args=(n, sys.argv[1], told, over)) for n in range(2)]
    for one in ranks:
        one.start()
    print(json.dumps(sorted(told.get(timeout={PATIENCE_S}) + told.get(timeout={PATIENCE_S}))))
    over.set()
"""


def test_spawned_ranks_of_a_program_serve_a_dataset_of_its_main_file(daemon, folder):
    script = folder / "spawn.py"
    script.write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, script, daemon.address],
        stdout=subprocess.PIPE, text=True, timeout=2 * PATIENCE_S,
    )  # fmt: skip
    assert json.loads(done.stdout) == list(range(40))


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_killed_process_loses_nothing(open_loader):
    wanted = records_of(open_loader(own.Numbers(400), seed=2))
    loader = open_loader(own.Numbers(400), seed=2)
    before = set(processes_of(os.getpid()))
    got, killed = [], 0
    for image, _ in loader:
        got += [int(record) for record in image[:, 0, 0]]
        if len(got) % 80 == 0:
            # Of this loader's: the youngest are those that were forked last. One may be ending.
            for pid in sorted(set(processes_of(os.getpid())) - {min(before)}, reverse=True):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                    time.sleep(0.5)  # what it was at is made by now, or two kills would end it
                    break
    assert got == wanted and killed == 5


@pytest.mark.parametrize("word", ["die", "crash", "leave", "hang"])
def test_a_record_that_ends_its_process_once_is_tried_again(open_loader, tmp_path, word):
    data = own.Wicked(str(tmp_path), r7=f"once {word}")
    loader = open_loader(data, timeout=1)
    assert sorted(records_of(loader)) == list(range(40))


def test_a_record_that_always_ends_its_process_is_bad_with_its_last_words(open_loader, tmp_path):
    loader = open_loader(own.Wicked(str(tmp_path), r7="crash"), shuffle=False)
    with pytest.raises(errors.BadSample) as caught:
        list(loader)
    assert caught.value.record == 7
    assert "ended, twice" in caught.value.reason and "Segmentation fault" in caught.value.reason


def test_a_record_that_hangs_is_bad_and_the_trainer_does_not_hang(open_loader, tmp_path):
    data = own.Wicked(str(tmp_path), r7="hang")
    loader = open_loader(data, timeout=1, on_bad_sample="substitute")
    began = time.monotonic()
    assert set(records_of(loader)) == set(range(40)) - {7}
    assert time.monotonic() - began < 30
    assert loader.stats()["substituted"] == 1
    failing = open_loader(data, timeout=1)
    with pytest.raises(errors.BadSample) as caught:
        list(failing)
    reason = caught.value.reason
    assert reason.startswith("source 'Wicked-")
    assert "took longer for it than timeout=1 s, twice; cure: a larger timeout=" in reason


def test_a_dataset_that_ends_every_process_is_given_up_with_the_reason(open_loader, tmp_path):
    most = {f"r{record}": "leave" for record in range(1, 39) if record != 20}
    loader = open_loader(own.Wicked(str(tmp_path), **most), on_bad_sample="substitute")
    with pytest.raises(errors.FailedPrecondition, match=r"6 processes ended .* exit status 7"):
        list(loader)


@pytest.mark.parametrize(
    "word, text",
    [
        ("raise", "ValueError: record 7 is bad"),
        ("exit", "SystemExit: enough"),
        ("other shape", "is float32 [9, 9]; by the first samples it is float32 [3, 4]"),
        ("nothing", "sample is of type NoneType"),
    ],
)
def test_a_record_that_cannot_be_made_is_bad_with_the_reason(open_loader, tmp_path, word, text):
    data = own.Wicked(str(tmp_path), r7=word)
    with pytest.raises(errors.BadSample) as caught:
        list(open_loader(data, shuffle=False))
    assert caught.value.record == 7 and text in caught.value.reason
    loader = open_loader(data, on_bad_sample="substitute")
    assert set(records_of(loader)) == set(range(40)) - {7}
    assert loader.stats()["substituted"] == 1
    if word == "raise":
        assert "Traceback" in caught.value.reason


def test_more_bad_records_than_allowed_name_the_argument_that_allows_them(open_loader, tmp_path):
    data = own.Wicked(str(tmp_path), **{f"r{record}": "raise" for record in range(1, 16)})
    bad = {"shuffle": False, "on_bad_sample": "substitute"}
    with pytest.raises(errors.BadSample, match="give from_dataset a larger max_bad_fraction=;"):
        list(open_loader(data, **bad))
    loader = open_loader(data, max_bad_fraction=0.5, **bad)
    assert set(records_of(loader)) == {0, *range(16, 40)}


def test_a_length_that_lies_is_a_bad_record(open_loader):
    with pytest.raises(errors.BadSample, match="IndexError: list index 10 out of range"):
        list(open_loader(own.Lying(), shuffle=False))


def test_forks_and_threads_of_a_dataset_harm_nothing(open_loader, tmp_path):
    data = own.Wicked(str(tmp_path), r7="fork", r8="threads")
    assert sorted(records_of(open_loader(data))) == list(range(40))


def test_a_sample_larger_than_the_window_comes_once(open_loader, tmp_path):
    loader = open_loader(own.Large(str(tmp_path), 1 << 20), shuffle=False, batch_size=2)
    for number, (image, _) in zip(range(4), loader):
        assert image[0, 0] == 2 * number and image[1, -1] == 2 * number + 1 + (1 << 20) - 1
    loader.close()


def test_a_killed_daemon_that_comes_back_is_a_pause(daemon, open_loader):
    wanted = records_of(open_loader(own.Numbers(400), seed=4))
    loader = open_loader(own.Numbers(400), seed=4)
    got = []
    for image, _ in loader:
        got += [int(record) for record in image[:, 0, 0]]
        if len(got) == 160:
            daemon.kill()
            threading.Timer(0.5, daemon.start).start()
    assert got == wanted


def test_what_two_programs_serve_under_one_name_must_be_the_same(daemon):
    data = own.Numbers(41)
    with feedwater.serve_source("mine", data, workers=1, address=daemon.address):
        done = subprocess.run(
            [sys.executable, "-m", "feedwater.serve", "own_datasets:Numbers", "--as", "source",
             "--name", "mine", "--address", daemon.address],
            cwd=TESTS, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1 and "the number of records" in done.stderr
        feedwater.serve_source("mine", data, workers=1, address=daemon.address).close()


def test_a_pipeline_whose_source_nobody_serves_is_refused(daemon):
    pipeline = Pipeline(dataset={"format": "python", "name": "mine"}, outputs=["field0"])
    with pytest.raises(errors.NotServed, match=r"^no process of this user serves.* 'mine'"):
        Loader(pipeline, batch_size=4, address=daemon.address, reconnect_timeout=0)
    with feedwater.serve_source("mine", own.Numbers(), workers=1, address=daemon.address):
        with Loader(pipeline, batch_size=4, address=daemon.address, output="numpy") as loader:
            assert len(list(loader)) == 10


def test_an_interrupted_cell_that_is_run_again_ten_times_leaves_nothing(daemon, folder):
    script = folder / "cell.py"
    script.write_text(
        f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import os, signal, threading, json, own_datasets as own, feedwater
from own_processes import processes_of

feedwater.Loader  # an import that is interrupted harms other packages

def interrupt(after, caught):  # again where a finalizer has swallowed one
    while not caught.wait(after):
        os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    loader = None
    for number in range(10):
        caught = threading.Event()
        try:
            threading.Thread(target=interrupt, args=(0.05 + 0.15 * number, caught)).start()
            loader = feedwater.Loader.from_dataset(
                own.Numbers(), batch_size=4, workers=2, address=sys.argv[1], output="numpy"
            )
            while True:
                for image, label in loader:
                    pass
        except KeyboardInterrupt:
            caught.set()
    image = label = None
    loader.close()
    print(json.dumps(processes_of(os.getpid())))
"""
    )
    done = subprocess.run(
        [sys.executable, script, daemon.address], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_killed_trainer_leaves_no_process_and_its_name_free(daemon, folder):
    script = folder / "rank.py"
    script.write_text(RANK)
    for _ in range(2):
        rank = subprocess.Popen(
            [sys.executable, script, "0", daemon.address], stdout=subprocess.PIPE, text=True,
            stdin=subprocess.PIPE,
        )  # fmt: skip
        rank.stdout.readline()
        mine = processes_of(rank.pid)
        assert len(mine) == 3
        rank.kill()
        rank.communicate()
        wait_for(lambda: not any(map(is_alive, mine)))  # noqa: B023


def test_an_absent_program_is_an_error_that_says_how_to_go_on(daemon):
    served = feedwater.serve_source("mine", own.Numbers(), workers=1, address=daemon.address)
    pipeline = Pipeline(
        dataset={"format": "python", "name": "mine"}, batch=4, outputs=["field0", "field1"]
    )
    with Loader(pipeline, address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        got = records_of([next(batches)])
        served.close()
        with pytest.raises(errors.NotServed, match=r"load_state_dict.* go on with this") as raised:
            for batch in batches:
                got += records_of([batch])
        assert raised.value.state == loader.state_dict()
        with feedwater.serve_source("mine", own.Numbers(), workers=1, address=daemon.address):
            loader.load_state_dict(raised.value.state)
            got += records_of(loader)
    assert got == list(range(40))
