"""`isolation: process`: the same bytes, and a hole in a decoder costs a record and nothing else.

The daemon is the real one with its real decoder; for crashes and attempts to break out both have
two ops more, which fault and make system calls on a label.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD
from pictures import pixels, png, write_folder
from test_config_pipelines import write_cifar10, write_mnist

import feedwater

CRASHING = BUILD / "tools/crashing_feedwaterd"
CACHE = BUILD / "CMakeCache.txt"
SANITIZED = CACHE.exists() and re.search(r"FEEDWATER_SANITIZE:STRING=\S", CACHE.read_text())
CONFIG = "cpus: 2\nmemory: 1GiB\ncache: {ram: 128MiB, disk: 64MiB}\nisolation: %s\n"
NORMALIZE = "  - normalize: {mean: [123, 116, 103], std: [58, 57, 57]}\n"
IMAGES = "  - decode: {}\n  - random_resized_crop: {size: 32}\n  - random_horizontal_flip: {}\n"
DATASETS = {
    "photos": ("image_folder", IMAGES + NORMALIZE),
    "pictures": ("image_folder", "  - decode: {}\n  - resize: {size: [9, 11]}\n" + NORMALIZE),
    "cifar10": ("cifar10", "  - random_crop: {size: 32, padding: 4}\n" + NORMALIZE),
    "mnist": ("mnist", "  - resize: {size: [20, 20]}\n  - random_horizontal_flip: {}\n"),
}
KINDS = ("none", "bytes", "coefficients", "decoded")


def pipeline(dataset: str, graph: str, kind: str = "none", more: str = "") -> str:
    data_format = DATASETS.get(dataset, ("image_folder",))[0]
    return (
        f"version: 1\ndataset: {{format: {data_format}, root: data, path: {dataset}}}\n"
        f"sampler: {{shuffle: full, seed: 5}}\ngraph:\n{graph}batch: {{size: 6}}\n"
        f"outputs: [image, label, sample_id, position]\ncache: {{kind: {kind}}}\n{more}"
    )


def digests(daemon, name: str, epochs: int = 1, meanwhile=None) -> list[str]:
    """Return a digest of each batch of the first epochs; call `meanwhile` after each batch."""
    seen = []
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        for _ in range(epochs):
            for batch in loader:
                joined = b"".join(np.ascontiguousarray(field).tobytes() for field in batch)
                seen.append(hashlib.sha256(joined).hexdigest())
                if meanwhile is not None:
                    meanwhile()
    return seen


def status(daemon) -> dict:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def decoders(pid: int) -> list[int]:
    """Return the processes that a daemon has started and not waited for."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def await_decoders(daemon, number: int) -> None:
    deadline = time.monotonic() + 30
    while len(decoders(daemon.process.pid)) != number:
        assert time.monotonic() < deadline, decoders(daemon.process.pid)
        time.sleep(0.02)


# --- the same bytes ---


def test_batches_are_the_same_with_every_format_and_cache(make_daemon):
    seen: dict[str, dict[str, list[str]]] = {}
    for isolation in ("none", "process"):
        daemon = make_daemon(config=CONFIG % isolation)
        command = [BUILD / "tools/make_photos", daemon.data / "photos", "--count", "24"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        write_folder(daemon.data / "pictures", 24, bad=(7,))
        write_cifar10(daemon.data / "cifar10")
        write_mnist(daemon.data / "mnist")
        for name, (_, graph) in DATASETS.items():
            for kind in KINDS:
                bad = "on_bad_sample: substitute\n" if name == "pictures" else ""
                daemon.add_pipeline(f"{name}-{kind}", pipeline(name, graph, kind, bad))
        daemon.start()
        seen[isolation] = {
            f"{name}-{kind}": digests(daemon, f"{name}-{kind}", epochs=2)
            for name in DATASETS
            for kind in KINDS
        }
        about = status(daemon)
        assert about["isolation"]["mode"] == isolation
        if isolation == "process":
            assert about["counters"]["decoders_started"] > 0
            assert about["counters"]["decoder_deaths"] == 0
            await_decoders(daemon, 0)
            assert status(daemon)["isolation"]["decoders"] == 0
        assert daemon.stop() == 0
    assert all(len(batches) >= 8 for batches in seen["none"].values())
    for name, batches in seen["none"].items():
        assert seen["process"][name] == batches, name
        assert batches == seen["none"][name.rpartition("-")[0] + "-none"], name


# --- who is isolated ---


@pytest.mark.parametrize("access", ["", "access: {users: [nobody]}\n"])
def test_auto_isolates_images_where_somebody_else_is_admitted(make_daemon, access):
    daemon = make_daemon(config=CONFIG.replace("isolation: %s\n", access))
    write_folder(daemon.data / "pictures", 8)
    write_cifar10(daemon.data / "cifar10")
    for name in ("pictures", "cifar10"):
        daemon.add_pipeline(name, pipeline(name, DATASETS[name][1], "none"))
    daemon.start()
    assert status(daemon)["isolation"]["mode"] == "auto"
    for name, wanted in (("pictures", bool(access)), ("cifar10", False)):
        with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
            next(iter(loader))
            assert bool(decoders(daemon.process.pid)) == wanted, name
        await_decoders(daemon, 0)


# --- crashes ---


@pytest.fixture
def crashing(make_daemon):
    """A daemon whose decoders die of record 7, or try to break out on it."""
    if not CRASHING.exists():
        pytest.skip(f"{CRASHING} is not built")
    daemon = make_daemon(config=CONFIG % "process")
    daemon.command = [CRASHING]
    for number in range(12):  # each in a class of its own, so that the label is the record
        folder = daemon.data / f"numbered/{number:02}"
        folder.mkdir(parents=True)
        (folder / "picture.png").write_bytes(png(pixels(number)))
    return daemon


def numbered(op: str, policy: str = "substitute", kind: str = "none") -> str:
    return (
        "version: 1\ndataset: {format: image_folder, root: data, path: numbered}\ngraph:\n"
        "  - decode: {in: data, out: image}\n  - center_crop: {in: image, size: [8, 8]}\n"
        f"  - {op}\nbatch: {{size: 4}}\noutputs: [image, checked, sample_id]\n"
        f"on_bad_sample: {policy}\ncache: {{kind: {kind}}}\n"
    )


def epoch(daemon, name: str) -> list[int]:
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        return [number for batch in loader for number in batch["sample_id"].tolist()]


def reasons(daemon) -> dict[int, str]:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--bad", "--json"]
    done = subprocess.run(command, check=True, capture_output=True)
    return {entry["record"]: entry["reason"] for entry in json.loads(done.stdout)["bad_samples"]}


def test_a_record_that_crashes_its_decoder_is_a_bad_sample(crashing):
    daemon = crashing
    op = "crash_at: {in: label, out: checked, value: 7}"
    for policy in ("substitute", "fail"):
        daemon.add_pipeline(policy, numbered(op, policy))
    daemon.add_pipeline("kept", numbered(op, kind="decoded"))
    daemon.add_pipeline("good", numbered("crash_at: {in: label, out: checked, value: -5}"))
    daemon.start()
    pid = daemon.process.pid
    with feedwater.Loader("good", address=daemon.address, output="numpy", batch_size=1) as other:
        neighbour = iter(other)
        next(neighbour)
        for name in ("substitute", "kept"):
            assert epoch(daemon, name) == [0, 1, 2, 3, 4, 5, 6, 8, 8, 9, 10, 11]
        with pytest.raises(feedwater.BadSample, match="died of SIGSEGV") as caught:
            epoch(daemon, "fail")
        assert caught.value.record == 7
        assert sum(1 for _ in neighbour) == 11, "the neighbour has not noticed"
    assert daemon.alive() and daemon.process.pid == pid
    assert "the decoder process died of SIGSEGV on this record" in reasons(daemon)[7]
    assert status(daemon)["counters"]["decoder_deaths"] >= 3
    await_decoders(daemon, 0)


@pytest.mark.skipif(bool(SANITIZED), reason="decoders of a sanitizer's build are not confined")
@pytest.mark.parametrize("how", ["open", "socket", "fork", "ptrace", "kill", "code", "execve"])
def test_a_decoder_that_reaches_for_the_world_ends(crashing, how):
    daemon = crashing
    op = f"break_out: {{in: label, out: checked, value: 7, how: {how}}}"
    daemon.add_pipeline("breaking", numbered(op))
    daemon.start()
    assert epoch(daemon, "breaking") == [0, 1, 2, 3, 4, 5, 6, 8, 8, 9, 10, 11]
    assert "died of SIGSYS" in reasons(daemon)[7]
    assert daemon.alive()


# --- kills, and what is left ---


def photos(make_daemon, isolation: str):
    daemon = make_daemon(config=CONFIG % isolation)
    command = [BUILD / "tools/make_photos", daemon.data / "photos", "--count", "60"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    daemon.add_pipeline("train", pipeline("photos", DATASETS["photos"][1]))
    daemon.start()
    return daemon


def test_killing_decoders_changes_no_byte(make_daemon):
    expected = digests(photos(make_daemon, "none"), "train", epochs=4)
    daemon = photos(make_daemon, "process")
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    batches = killed = 0

    def kill_one() -> None:  # seldom enough for the next one to start
        nonlocal batches, killed
        batches += 1
        time.sleep(rng.uniform(0, 0.02))
        for pid in decoders(daemon.process.pid)[: batches % 4 == 0]:
            os.kill(pid, signal.SIGKILL)
            killed += 1

    assert digests(daemon, "train", epochs=4, meanwhile=kill_one) == expected
    await_decoders(daemon, 0)
    # One that is killed with its job's end is no death, nor is one that is killed twice.
    assert 3 <= status(daemon)["counters"]["decoder_deaths"] <= killed


def test_no_descriptor_memory_or_process_is_left(make_daemon):
    daemon = photos(make_daemon, "process")

    def round_of_jobs():
        for name in ("one", "two"):
            with feedwater.Loader(
                "train", address=daemon.address, output="numpy", job=name
            ) as loader:
                next(iter(loader))
                assert decoders(daemon.process.pid)  # one worker may have been quick enough
        await_decoders(daemon, 0)

    round_of_jobs()
    before = daemon.settled_file_descriptors()
    for _ in range(3):
        round_of_jobs()
    deadline = time.monotonic() + 20
    while daemon.file_descriptors() - before:
        assert time.monotonic() < deadline, (before, daemon.file_descriptors())
        time.sleep(0.05)


def test_a_killed_daemon_leaves_no_decoder_behind(make_daemon):
    daemon = photos(make_daemon, "process")
    with feedwater.Loader(
        "train", address=daemon.address, output="numpy", reconnect_timeout=0.1
    ) as loader:
        next(iter(loader))
        await_decoders(daemon, 2)
        left = decoders(daemon.process.pid)
        daemon.kill()
        deadline = time.monotonic() + 20
        while any(_runs(pid) for pid in left):
            assert time.monotonic() < deadline, left
            time.sleep(0.01)


def test_stopped_decoders_do_not_hold_up_the_end(make_daemon):
    daemon = photos(make_daemon, "process")
    with feedwater.Loader(
        "train", address=daemon.address, output="numpy", reconnect_timeout=0.1
    ) as loader:
        batches = iter(loader)
        next(batches)
        await_decoders(daemon, 2)
        stopped = decoders(daemon.process.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

        def take_the_rest() -> None:  # so that the workers want to make more
            with contextlib.suppress(feedwater.Error):
                for _ in batches:
                    pass

        takes = threading.Thread(target=take_the_rest)
        takes.start()
        time.sleep(0.3)
        assert daemon.stop() == 0
        takes.join(20)
        assert not takes.is_alive()
    assert "exiting all the same" not in daemon.tail()
    assert "ended" in daemon.tail(200)
    assert not any(_runs(pid) for pid in stopped)


def _runs(pid: int) -> bool:
    """Tell whether a process lives: one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_decoders_ignore_the_signals_that_a_terminal_sends_to_all(make_daemon):
    daemon = photos(make_daemon, "process")
    with feedwater.Loader("train", address=daemon.address, output="numpy") as loader:
        next(iter(loader))
        await_decoders(daemon, 2)
        for pid in decoders(daemon.process.pid):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        assert sum(1 for _ in loader) >= 9
    assert status(daemon)["counters"]["decoder_deaths"] == 0


# --- a daemon that cannot ---


def test_a_parent_that_ignores_its_childrens_ends_changes_nothing(make_daemon):
    """SIGCHLD's disposition is inherited: ignored, nobody could learn how a decoder ended."""
    daemon = make_daemon(config=CONFIG % "process")
    daemon.command = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *daemon.command]
    daemon.start()
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    ignored = int(re.search(r"SigIgn:\s*([0-9a-f]+)", status).group(1), 16)
    assert not ignored >> (signal.SIGCHLD - 1) & 1


def test_a_daemon_without_its_decoder_says_so_and_does_not_start(make_daemon, folder):
    alone = folder / "alone"
    alone.mkdir()
    (alone / "feedwaterd").write_bytes((BUILD / "bin/feedwaterd").read_bytes())
    (alone / "feedwaterd").chmod(0o755)
    daemon = make_daemon(config=CONFIG % "process")
    daemon.command = [alone / "feedwaterd"]
    with pytest.raises(RuntimeError, match=r"no program .*alone/feedwater-decoder"):
        daemon.start()

    def check() -> subprocess.CompletedProcess:
        command = [*daemon.command, "--config", daemon.config, "--check"]
        return subprocess.run(command, capture_output=True, text=True)

    done = check()
    assert done.returncode == 2 and "feedwater-decoder" in done.stderr, done
    assert ": good" not in done.stdout
    copy = alone / "feedwater-decoder"
    copy.write_bytes((BUILD / "bin/feedwater-decoder").read_bytes())
    copy.chmod(0o644)
    done = check()
    assert done.returncode == 2 and "Permission denied" in done.stderr, done
    copy.chmod(0o755)
    done = check()
    assert done.returncode == 0, done
