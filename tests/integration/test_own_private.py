"""A user's own dataset and ops with a private daemon, which the program starts itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import DAEMON
from own_processes import PATIENCE_S
from private_home import BEGIN, Home

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def home(folder, make_daemon):
    make_daemon()  # skips where none is built
    home = Home(folder / "h")
    home.environment["FEEDWATERD"] = str(DAEMON)
    yield home
    home.end()


PRIVATE = f"""
sys.path.insert(0, {str(TESTS)!r})
import own_datasets as own
from own_processes import processes_of
loader = feedwater.Loader.from_dataset(own.Numbers(400), batch_size=8, workers=2, output="numpy")
"""


def test_a_private_daemon_is_started_and_ends_with_the_loader(home):
    out, told = home.run(
        PRIVATE
        + """
say(sorted(int(record) for image, _ in loader for record in image[:, 0, 0]) == list(range(400)))
image = None
loader.close()
say([pid for pid in processes_of(os.getpid())])
"""
    )
    assert out.splitlines() == ["true", "[]"] and told.count("started a private feedwaterd") == 1
    home.wait_until_nothing_is_left()


def test_a_main_module_without_a_guard_starts_no_second_daemon(home):
    script = home.folder / "train.py"
    script.write_text(
        BEGIN.format(pipeline=str(home.pipeline))
        + PRIVATE.replace("loader =", "class Mine(own.Numbers): pass\nloader =").replace(
            "own.Numbers(400)", "Mine()"
        )
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=PATIENCE_S,
        env=home.environment,
    )  # fmt: skip
    assert done.returncode != 0 and "if __name__ == '__main__':" in done.stderr
    assert done.stderr.count("started a private feedwaterd") == 1
    home.wait_until_nothing_is_left()


def test_forked_children_of_a_program_in_the_midst_of_an_epoch_end_as_any_do(home):
    """With the interpreter's whole end: finalizers, gRPC's, and what is not theirs to close."""
    out, _ = home.run(
        PRIVATE
        + """
batches = iter(loader)
next(batches)
for way in ("exit", "close", "collect", "iterate", "own"):
    child = os.fork()
    if child == 0:
        signal.alarm(50)
        if way == "close":
            loader.close()
        if way == "collect":
            del loader, batches
            import gc
            gc.collect()
        if way == "iterate":
            try:
                next(batches)
            except feedwater.FailedPrecondition:
                pass
        if way == "own":
            with feedwater.Loader.from_dataset(own.Numbers(16), batch_size=8, workers=1) as mine:
                assert len(list(mine)) == 2
        sys.exit(3)
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
say(len(list(batches)))
batches = None
loader.close()
"""
    )
    assert [int(line) for line in out.split()] == [3] * 5 + [49]
    home.wait_until_nothing_is_left()


@pytest.mark.parametrize("how", ["", 'daemon="private", cpus=1, '])
def test_a_pickled_loader_goes_to_the_daemon_where_its_dataset_is_served(home, how):
    out, told = home.run(
        PRIVATE.replace("workers=2, ", f"workers=2, {how}")
        + """
import pickle, subprocess
child = (
    "import pickle, sys; loader = pickle.load(sys.stdin.buffer)\\n"
    "print(sum(len(label) for _, label in loader)); loader.close()"
)
done = subprocess.run(
    [sys.executable, "-c", child], input=pickle.dumps(loader), stdout=subprocess.PIPE
)
say(done.stdout.decode().strip())
loader.close()
"""
    )
    assert out.splitlines() == ['"400"'] and told.count("started a private feedwaterd") == 1
    assert "have no effect" not in told
    home.wait_until_nothing_is_left()


def test_a_private_daemon_that_is_killed_is_started_again_and_served(home):
    program = home.start(
        PRIVATE
        + """
got = []
for image, _ in loader:
    got += [int(record) for record in image[:, 0, 0]]
    if len(got) == 80:
        say("half")
        sys.stdin.readline()
say(sorted(got) == list(range(400)))
"""
    )
    assert json.loads(program.line()) == "half"
    for pid in home.daemons():
        os.kill(pid, signal.SIGKILL)
    program.go_on()
    assert json.loads(program.line()) is True
    program.end()
    home.wait_until_nothing_is_left()


def test_an_op_and_a_source_use_the_private_daemon_of_their_program(home):
    """Whether they are served before the first loader or after it."""
    out, told = home.run(
        f"""
sys.path.insert(0, {str(TESTS)!r})
import own_datasets as own
with feedwater.serve_op("plus", own.plus, workers=1):
    with feedwater.serve_source("mine", own.Numbers(), workers=1) as mine:
        pipeline = feedwater.Pipeline(
            dataset={{"format": "python", "name": "mine"}}, batch=40, outputs=["field0"],
            graph=[feedwater.ops.python("plus", in_="field0", out="field0")],
        )
        with feedwater.Loader(pipeline, output="numpy") as loader:
            (batch,) = next(iter(loader))
            say([loader.address == mine.address, int(batch[3, 0, 0])])
            with feedwater.serve_op("late", own.plus, workers=1) as late:
                say(late.address == mine.address)
            del batch
"""
    )
    assert [json.loads(line) for line in out.splitlines()] == [[True, 4], True]
    assert told.count("started a private feedwaterd") == 1
    home.wait_until_nothing_is_left()


def test_the_example_of_the_clients_page_runs(home):
    page = (TESTS.parent / "client/python/README.md").read_text()
    program = page.split("## Your own Dataset and ops")[1].split("```python\n")[1].split("```")[0]
    script = home.folder / "example.py"
    script.write_text(program.replace("        ...\n", "        print(len(image), len(label))\n"))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=PATIENCE_S,
        env=home.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["64 64"] * 15 + ["40 40"]
    home.wait_until_nothing_is_left()
