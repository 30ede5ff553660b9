"""train_classifier.py learns, and what it trains on is the same whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import command, environment, run

torch = pytest.importorskip("torch")
pytest.importorskip("tqdm")

LEARNT = 4  # epochs until the classes are known
EPOCHS = 15  # long enough that a kill finds the training at work
STEPS = {1: 12, 2: 6}  # of an epoch: 192 pictures, 16 a rank
LINE = re.compile(r"epoch (\d+): loss ([\d.]+), accuracy ([\d.]+) over (\d+) samples")


def arguments(epochs: int = EPOCHS) -> tuple:
    return ("shapes", "--epochs", epochs, "--journal", "journal", "--save-every", 5)


def journal(folder: Path, rank: int = 0) -> list[list[dict]]:
    """Return a rank's steps, one list for each process that it had."""
    processes: list[list[dict]] = []
    path = folder / "journal" / f"rank{rank}.jsonl"
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            continue  # being written, or cut by the kill
        entry = json.loads(line)
        if "pid" in entry:
            processes.append([])
        else:
            processes[-1].append(entry)
    return processes


def pid_of(path: Path) -> int:
    """Return the first process that wrote a journal."""
    return json.loads(path.read_text().splitlines()[0])["pid"]


def wait_until_gone(pid: int) -> None:
    """Wait for a process that is not a child of this one."""
    deadline = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def as_order(steps: list[dict]) -> dict:
    return {(s["epoch"], s["step"]): (s["batch"], s["loss"]) for s in steps}


def train(daemon, folder: Path, ranks: int, epochs: int = EPOCHS) -> str:
    folder.mkdir(exist_ok=True)
    return run(daemon, command("train_classifier.py", *arguments(epochs), ranks=ranks), folder)


def weights(folder: Path) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=True)["model"]


def same_weights(one: Path, other: Path) -> bool:
    left, right = weights(one), weights(other)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class Killed:
    """A training that the test kills once rank 0 has begun that many steps."""

    def __init__(self, daemon, folder: Path, ranks: int, restarts: int = 0) -> None:
        folder.mkdir()
        self.folder = folder
        self.process = subprocess.Popen(
            command("train_classifier.py", *arguments(), ranks=ranks, restarts=restarts),
            cwd=folder,
            env=environment(daemon),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for_step(self, number: int) -> None:
        deadline = time.monotonic() + 120
        while sum(map(len, journal(self.folder))) < number:
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < deadline, "no steps"
            time.sleep(0.002)

    def kill_all(self) -> None:
        """Kill the launcher and its ranks, which torchrun starts in sessions of their own."""
        self.process.kill()
        for path in sorted((self.folder / "journal").glob("rank*.jsonl")):
            pid = pid_of(path)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)
        self.process.wait()

    def end(self) -> None:
        """Leave nothing behind, when the test is over."""
        if self.process.poll() is None:
            self.kill_all()
        self.process.stdout.close()


@pytest.fixture
def kill_later(daemon, tmp_path):
    made = []

    def make(name: str, ranks: int, restarts: int = 0) -> Killed:
        made.append(Killed(daemon, tmp_path / name, ranks, restarts))
        return made[-1]

    yield make
    for killed in made:
        killed.end()


@pytest.mark.parametrize("ranks", [0, 2])
def test_the_loss_falls_and_the_classes_are_learnt(daemon, tmp_path, ranks):
    output = train(daemon, tmp_path, ranks, LEARNT)
    epochs = [tuple(map(float, found)) for found in LINE.findall(output)]
    assert [int(epoch) for epoch, *_ in epochs] == list(range(LEARNT)), output
    assert all(samples == 192 for *_, samples in epochs)
    losses = [loss for _, loss, *_ in epochs]
    assert losses[-1] < 0.3 * losses[0], losses
    assert epochs[-1][2] > 0.95, output


@pytest.mark.parametrize("step", [3, 8, 20])
def test_a_killed_training_goes_on_with_the_same_batches_and_ends_with_the_same_weights(
    daemon, tmp_path, kill_later, step
):
    """Kill -9 before the first checkpoint, after one, and in a later epoch. The second process
    starts after the last checkpoint, and from there on everything equals a run that nobody killed.
    """
    train(daemon, tmp_path / "whole", 0)
    (whole,) = journal(tmp_path / "whole")
    expected = as_order(whole)
    assert len(whole) == len(expected) == EPOCHS * STEPS[1]

    killed = kill_later("killed", 0)
    killed.wait_for_step(step)
    killed.process.kill()
    assert killed.process.wait() == -signal.SIGKILL
    output = train(daemon, killed.folder, 0)
    first, second = journal(killed.folder)
    assert step <= len(first) < EPOCHS * STEPS[1], "it was killed in the middle"
    assert as_order(first) == dict(list(expected.items())[: len(first)])
    assert as_order(second) == dict(list(expected.items())[-len(second) :])
    assert len(first) + len(second) >= len(expected), "no step is missing"
    assert len(first) + len(second) <= len(expected) + 6, "no more is repeated than was not saved"
    assert ("continuing" in output) == (len(second) < len(expected))
    assert same_weights(tmp_path / "whole", killed.folder)


def test_two_ranks_continue_with_the_same_batches_after_a_kill_of_the_whole_launch(
    daemon, tmp_path, kill_later
):
    train(daemon, tmp_path / "whole", 2)
    killed = kill_later("killed", 2)
    killed.wait_for_step(9)
    killed.kill_all()
    train(daemon, killed.folder, 2)
    check_both_ranks(tmp_path / "whole", killed.folder)


def test_two_ranks_continue_with_the_same_batches_when_torchrun_restarts_them(
    daemon, tmp_path, kill_later
):
    """Kill -9 of one rank: torchrun ends the other one and starts both again, by itself."""
    train(daemon, tmp_path / "whole", 2)
    killed = kill_later("killed", 2, restarts=1)
    killed.wait_for_step(9)
    os.kill(pid_of(killed.folder / "journal/rank1.jsonl"), signal.SIGKILL)
    output, _ = killed.process.communicate(timeout=200)
    assert killed.process.returncode == 0, output
    assert "continuing checkpoint.pt" in output
    check_both_ranks(tmp_path / "whole", killed.folder)


def check_both_ranks(whole: Path, killed: Path) -> None:
    for rank in range(2):
        (steps,) = journal(whole, rank)
        expected = as_order(steps)
        assert len(expected) == EPOCHS * STEPS[2]
        first, second = journal(killed, rank)
        assert 0 < len(second) < len(expected), "it continued in the middle"
        for part in (first, second):
            for place, step in as_order(part).items():
                assert step == expected[place], f"rank {rank} at {place}"
        assert {**as_order(first), **as_order(second)} == expected
    assert same_weights(whole, killed)


def test_a_checkpoint_of_two_ranks_goes_on_with_one(daemon, tmp_path, kill_later):
    """The position is a place in the order of all ranks: one rank takes the rest alone."""
    killed = kill_later("killed", 2)
    killed.wait_for_step(9)
    killed.kill_all()
    state = torch.load(killed.folder / "checkpoint.pt", weights_only=True)["loader"]
    train(daemon, killed.folder, 0)
    steps = journal(killed.folder)[-1]
    left = (EPOCHS - state["epoch"]) * STEPS[1] - state["position"] // 16
    assert len(steps) == left
    assert (steps[0]["epoch"], steps[0]["step"]) == (state["epoch"], state["position"] // 16)


def test_a_finished_training_has_nothing_to_do(daemon, tmp_path):
    train(daemon, tmp_path, 0, epochs=1)
    assert train(daemon, tmp_path, 0, epochs=1) == "continuing checkpoint.pt in epoch 1\n"
    assert len(journal(tmp_path)[1]) == 0


def test_a_pipeline_without_labels_is_named(daemon, tmp_path):
    done = subprocess.run(
        command("train_classifier.py", "pixels"),
        cwd=tmp_path,
        env=environment(daemon),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "the pipeline's outputs have no label\n"


def test_its_help_teaches(tmp_path):
    done = subprocess.run(
        command("train_classifier.py", "--help"), capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    for word in ("torchrun --nproc-per-node 2", "--save-every", "kill -9", "--journal"):
        assert word in done.stdout
