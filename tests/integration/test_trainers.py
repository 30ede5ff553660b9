"""Whole jobs against a real daemon: several processes, kills at random moments, long runs.

The promise under test: whatever is killed, what the ranks saw is the promised order, each sample
once, and nothing is left behind: no descriptor, no memory, no file in /dev/shm.
"""

from __future__ import annotations

import hashlib
import os
import random
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

# A trainer that saves its state with what it has seen, as a checkpoint does, and can be killed at
# any time.
TRAINER = """
import hashlib, json, os, sys, time
import feedwater
address, path, rank, world, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
saved = {"state": None, "seen": []}
if os.path.exists(path):
    saved = json.load(open(path))
loader = feedwater.Loader("pictures", address=address, job="train", rank=rank, world_size=world,
                          output="numpy")
print("open", flush=True)
if saved["state"]:
    loader.load_state_dict(saved["state"])
while loader.epoch < epochs:
    for image, label, position in loader:
        digest = hashlib.sha256(image.tobytes() + label.tobytes()).hexdigest()[:16]
        saved["seen"].append([loader.epoch, position.tolist(), digest])
        saved["state"] = loader.state_dict()
        with open(path + ".new", "w") as file:
            json.dump(saved, file)
        os.replace(path + ".new", path)
        time.sleep(0.01)
print("done", flush=True)
"""


@pytest.fixture
def daemon(make_daemon):
    """A daemon with some hundred pictures."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", RECORDS)
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.start()
    return daemon


def start_trainer(daemon, path, rank, world, epochs):
    command = [sys.executable, "-c", TRAINER, daemon.address, str(path), str(rank), str(world)]
    return subprocess.Popen([*command, str(epochs)], stdout=subprocess.PIPE, text=True)


def seen(path):
    import json

    return json.loads(Path(path).read_text())["seen"]


def undisturbed(daemon, folder, world, epochs):
    """Return what each rank sees when nothing happens."""
    trainers = [
        start_trainer(daemon, folder / f"plain{world}-{rank}", rank, world, epochs)
        for rank in range(world)
    ]
    for trainer in trainers:
        assert trainer.communicate(timeout=120)[0] == "open\ndone\n"
    return [seen(folder / f"plain{world}-{rank}") for rank in range(world)]


def wait_until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.01)


def test_trainers_killed_at_random_moments_lose_and_repeat_nothing(daemon, folder):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    world, epochs = 2, 3
    expected = undisturbed(daemon, folder, world, epochs)
    kills = 0
    running = {
        rank: start_trainer(daemon, folder / f"r{rank}", rank, world, epochs)
        for rank in range(world)
    }
    while running:
        time.sleep(rng.uniform(0, 0.4))
        for rank, trainer in list(running.items()):
            if trainer.poll() is None and rng.random() < 0.5 and kills < 20:
                trainer.send_signal(signal.SIGKILL)
                kills += 1
            if trainer.poll() is None:
                continue
            trainer.wait()
            if trainer.returncode == 0:
                del running[rank]
            else:
                assert trainer.returncode == -signal.SIGKILL
                running[rank] = start_trainer(daemon, folder / f"r{rank}", rank, world, epochs)
            trainer.stdout.close()
    assert [seen(folder / f"r{rank}") for rank in range(world)] == expected
    assert kills > 0


def test_a_daemon_killed_at_random_moments_is_a_pause_for_all_ranks(daemon, folder):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    world, epochs = 4, 20
    expected = undisturbed(daemon, folder, world, epochs)
    trainers = [
        start_trainer(daemon, folder / f"r{rank}", rank, world, epochs) for rank in range(world)
    ]
    for trainer in trainers:
        assert trainer.stdout.readline() == "open\n"
    kills = 0
    while any(trainer.poll() is None for trainer in trainers):
        time.sleep(rng.uniform(0.1, 0.6))
        if kills < 8:
            daemon.kill()
            kills += 1
            time.sleep(rng.uniform(0, 0.2))
            daemon.start()
    for trainer in trainers:
        assert trainer.communicate(timeout=120)[0] == "done\n"
    assert [seen(folder / f"r{rank}") for rank in range(world)] == expected
    assert kills > 0


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
    assert "goes on after" in back


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
