"""Whole jobs against a real daemon: several processes, kills, long runs.

The promise under test: whatever is killed, what the ranks saw is the promised order, each sample
once, and nothing is left behind: no descriptor, no memory, no file in /dev/shm.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from daemon_process import SANITIZERS
from pictures import write_folder

from feedwater.control import METHODS, Control

RECORDS = 240
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
sampler: {shuffle: full, seed: 9}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [32, 32]}
  - random_horizontal_flip: {in: image}
  - normalize: {in: image, mean: [123, 116, 103], std: [58, 57, 57]}
batch: {size: 4}
outputs: [image, label, position]
"""


@pytest.fixture
def daemon(make_daemon):
    """A daemon with some hundred pictures."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.start()
    return daemon


def wait_until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.01)


def test_a_trainer_is_told_that_its_daemon_is_stopped(daemon, monkeypatch, caplog):
    import feedwater

    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "1")
    with feedwater.Loader("pictures", address=daemon.address, output="numpy") as loader:
        whole = [batch[1].tolist() for batch in loader]
        loader.set_epoch(0)
        daemon.process.send_signal(signal.SIGSTOP)

        def go_on():
            wait_until(lambda: caplog.records, "the trainer is told")
            daemon.process.send_signal(signal.SIGCONT)

        with caplog.at_level("WARNING", logger="feedwater"):
            thread = threading.Thread(target=go_on)
            thread.start()
            assert [batch[1].tolist() for batch in loader] == whole
            thread.join()
    stopped, back = (record.getMessage() for record in caplog.records)
    assert "kill -CONT" in stopped and daemon.address in stopped
    assert "continues after" in back


def test_fifty_killed_trainers_leave_nothing_behind(daemon):
    """The daemon has no descriptor more than before, its memory within a margin."""
    shm = set(os.listdir("/dev/shm"))
    code = (
        "import feedwater, os, signal, sys\n"
        "loader = feedwater.Loader('pictures', address=sys.argv[1], output='numpy', job='victim')\n"
        "it = iter(loader)\n"
        "kept = [next(it), next(it)]\n"
        "if os.fork() == 0:\n"
        "    signal.pause()\n"  # a child that keeps the socket open, as DataLoader workers do
        "print(os.getpid(), flush=True)\n"
        "for batch in it: pass\n"
        "signal.pause()\n"
    )

    def one_round():
        trainer = subprocess.Popen(
            [sys.executable, "-c", code, daemon.address],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        trainer.stdout.readline()
        trainer.send_signal(signal.SIGKILL)  # not its child
        trainer.wait()
        trainer.stdout.close()
        children.append(trainer.pid)

    def end_children():
        while children:
            os.killpg(children.pop(), signal.SIGKILL)

    children: list[int] = []
    try:
        for _ in range(3):
            one_round()
        end_children()
        wait_until(lambda: "arenas" not in memory_sum(daemon), "the arenas of the warm-up are gone")
        descriptors, memory = daemon.settled_file_descriptors(), daemon.resident_kib()
        for _ in range(50):
            one_round()  # each attaches the same rank of the same job
        # The dead trainers' sessions are over, and the daemon keeps no descriptor of them. Their
        # children still map the memory, so it counts.
        wait_until(lambda: not daemon.file_descriptors() - descriptors, "descriptors back to base")
        assert "arenas" in memory_sum(daemon)
        end_children()
        wait_until(lambda: "arenas" not in memory_sum(daemon), "the arenas are gone")
        if not SANITIZERS:  # they keep what was freed
            assert daemon.resident_kib() <= memory + 16 * 1024
        assert set(os.listdir("/dev/shm")) == shm
    finally:
        end_children()


def memory_sum(daemon) -> str:
    """Return what the daemon says of its memory: "arenas 1.2 MiB + indexes ..."."""
    request, _ = METHODS["GetStatus"]
    with Control(daemon.address) as control:
        return control.call("GetStatus", request(), 20).memory_sum


def test_memory_is_flat_over_many_epochs(daemon):
    """Of the daemon and of the trainer, from the third epoch to the twentieth."""
    import feedwater

    def own_kib():
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1])
        raise AssertionError

    with feedwater.Loader(
        "pictures", address=daemon.address, output="numpy", writable=True
    ) as loader:
        digests = set()
        for epoch in range(20):
            digest = hashlib.sha256()
            for step, (image, label, _) in enumerate(loader):
                digest.update(image.tobytes() + label.tobytes())
                if step % 2:
                    image += 1
            digests.add(digest.hexdigest())
            if epoch == 2:
                before = daemon.resident_kib(), own_kib()
        assert len(digests) == 20
    if not SANITIZERS:  # they keep what was freed
        assert daemon.resident_kib() <= before[0] + 8 * 1024
    assert own_kib() <= before[1] + 8 * 1024


def test_a_torch_training_loop_runs_as_the_readme_shows(daemon):
    torch = pytest.importorskip("torch")
    import feedwater

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    state, losses = None, []
    for _ in range(2):  # the second round is a resumed one
        with feedwater.Loader("pictures", address=daemon.address, batch_size=24) as loader:
            assert loader.output == "torch"
            if state:
                loader.load_state_dict(state)
            for epoch in range(loader.epoch, 3):
                loader.sampler.set_epoch(epoch)
                for image, label, _ in loader:
                    loss = torch.nn.functional.cross_entropy(model(image), label)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    losses.append(loss.item())
                    state = loader.state_dict()
                    if len(losses) == 15:
                        break
                if len(losses) == 15:
                    break
    assert len(losses) == 30


def test_eight_ranks_train_and_validate_and_somebody_looks_on(daemon):
    """Two loaders for each rank of one user, and one of a notebook, within the default limits."""
    import feedwater

    daemon.add_pipeline("validate", PIPELINE.replace("{shuffle: full, seed: 9}", "{last: partial}"))

    def opened(name, rank, world_size, job):
        return feedwater.Loader(
            name, address=daemon.address, output="numpy", rank=rank, world_size=world_size, job=job
        )

    with contextlib.ExitStack() as stack:
        ranks = [
            [stack.enter_context(opened(name, rank, 8, "training")) for rank in range(8)]
            for name in ("pictures", "validate")
        ]
        for loaders in ranks:
            seen = [place for loader in loaders for place in next(iter(loader))[2].tolist()]
            assert sorted(seen) == list(range(32))
        notebook = stack.enter_context(opened("pictures", 0, 1, "notebook"))
        assert len(next(iter(notebook))[2]) == 4
