"""Faults of the machine: the real feedwaterd, with its system calls failing as points.py lists.

For each point and storage engine: a daemon under fault_injection.cc serves a bystander, the fault
comes, a victim opens a pipeline or reads on. What must come of it is in the table; what must never
come of it is checked here: an end by a signal, a wait without end, a lost descriptor, other bytes,
or harm to the bystander.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from daemon_process import BUILD
from faults import FaultyDaemon
from pictures import pixels, png, write_folder
from points import POINTS, Either, Ends, Point, Recovers, Refused

import feedwater

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
from driver import Driver

RECORDS = 48
_WAIT_S = 60.0
PIPELINE = """version: 1
dataset: {{format: image_folder, root: data, path: {path}}}
sampler: {{shuffle: full, seed: 9}}
{more}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
  - random_horizontal_flip: {{in: image}}
batch: {{size: 4}}
outputs: [image, label, position]
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """One folder of pictures, to be copied."""
    folder = tmp_path_factory.mktemp("pictures")
    write_folder(folder, RECORDS)
    return folder


class Files:
    """What may happen to a dataset's files while they are read. The first batches stay whole."""

    def __init__(self, folder) -> None:
        self.paths = sorted(folder.rglob("*.png"))

    def truncate(self) -> None:
        for path in self.paths:
            os.truncate(path, 40)

    def unlink(self) -> None:
        for path in self.paths:
            path.unlink()

    def replace(self) -> None:
        for number, path in enumerate(self.paths):
            new = path.with_suffix(".new")
            new.write_bytes(png(pixels(number + 1000)))
            new.replace(path)

    def make_folder(self) -> None:
        self.unlink()
        for path in self.paths:
            path.mkdir()

    def make_fifo(self) -> None:
        self.unlink()
        for path in self.paths:
            os.mkfifo(path)


def digest(batch) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in batch)).hexdigest()[:16]


class Trainer:
    """A loader that takes batches in a thread, so that a wait without end can be seen."""

    def __init__(self, daemon, pipeline: str, epochs: int = 1) -> None:
        self.daemon, self.pipeline, self.epochs = daemon, pipeline, epochs
        self.digests: list[str] = []
        self.error: Exception | None = None
        self.loader = None
        self.iterator = None

    def open(self) -> None:
        self.loader = feedwater.Loader(
            self.pipeline, address=self.daemon.address, output="numpy", rank=0, world_size=1,
            slots=2, reconnect_timeout=self.daemon.patience_s,
        )  # fmt: skip

    def take(self, count: int) -> None:
        if self.iterator is None:
            self.iterator = iter(self.loader)
        for _ in range(count):
            self.digests.append(digest(next(self.iterator)))

    def take_all(self) -> None:
        while True:
            if self.iterator is None:
                self.iterator = iter(self.loader)
            self.digests += [digest(batch) for batch in self.iterator]
            self.iterator = None
            if self.loader.epoch >= self.epochs:
                return

    def run(self, *steps) -> None:
        """Do steps within a time; remember the error that one of them gave."""

        def run() -> None:
            try:
                for step in steps:
                    step()
            except feedwater.Error as error:
                error.__context__ = error.__cause__ = None
                self.error = error.with_traceback(None)  # its frames hold batches

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_WAIT_S)
        assert not thread.is_alive(), f"a wait without end\n{self.daemon.tail()}"

    def close(self) -> None:
        self.iterator = None
        if self.loader is not None:
            self.loader.close()


def await_ready(trainer: Trainer) -> None:
    """Wait until its next batch is made, so that no worker has anything of it in hand."""
    command = [BUILD / "bin/feedwater", "--address", trainer.daemon.address, "status", "--json"]
    deadline = time.monotonic() + 20
    while True:
        status = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        (rank,) = [
            r for job in status["jobs"] for r in job["ranks"] if job["pipeline"] == trainer.pipeline
        ]
        if rank["slots_lent"] == rank["slots"]:
            return
        assert time.monotonic() < deadline, repr(rank)
        time.sleep(0.01)


def serve(daemon, pipeline: str, epochs: int = 1) -> list[str]:
    """Return a whole run's digests."""
    trainer = Trainer(daemon, pipeline, epochs)
    trainer.run(trainer.open, trainer.take_all)
    trainer.close()
    if trainer.error is not None:
        raise trainer.error
    return trainer.digests


@pytest.fixture(scope="module")
def expected(pictures, tmp_path_factory):
    """Three epochs' digests, from a daemon without faults."""
    folder = tmp_path_factory.mktemp("d")
    daemon = FaultyDaemon(folder, "cpus: 2\nmemory: 1GiB\n")
    shutil.copytree(pictures, daemon.data / "victim")
    daemon.add_pipeline("victim", PIPELINE.format(path="victim", more=""))
    with daemon:
        return serve(daemon, "victim", 3)


@pytest.fixture
def make(folder, pictures):
    """Make the daemon of a point."""
    made = []

    def make_one(point: Point, engine: str) -> FaultyDaemon:
        config = "cpus: 2\nmemory: 1GiB\n"
        config += point.config.replace("ENGINE", engine) + "\n"
        if "storage:" not in point.config:
            config += f"storage: {{engine: {engine}}}\n"
        if "numa_node" in point.config:
            config = config.replace("cpus: 2\n", "")
        daemon = FaultyDaemon(folder / "d", config)
        if "numa_node" in point.config:
            daemon.config.write_text(daemon.config.read_text().replace("numa_node: none\n", ""))
        for name in ("victim", "bystander"):
            shutil.copytree(pictures, daemon.data / name)
        daemon.add_pipeline("victim", PIPELINE.format(path="victim", more=point.pipeline))
        daemon.add_pipeline("bystander", PIPELINE.format(path="bystander", more=""))
        if point.limits:
            names = " ".join(f"--{name.lower()}={value}" for name, value in point.limits.items())
            daemon.command = ["prlimit", *names.split(), *daemon.command]
        if isinstance(point.expect, Either):  # it may end, and nobody starts it again
            daemon.patience_s = 1.0
        made.append(daemon)
        return daemon

    yield make_one
    for daemon in made:
        if daemon.alive():
            daemon.kill()


def never_started(daemon, point) -> None:
    status = daemon.process.wait(_WAIT_S)
    assert status in (1, 2), f"status {status}\n{daemon.tail()}"
    assert isinstance(point.expect, (Ends, Either)), daemon.tail()


def ends(daemon) -> bool:
    """Tell whether the daemon has ended, or is about to: its sockets close before it is gone."""
    try:
        daemon.process.wait(2)
    except subprocess.TimeoutExpired:
        return False
    return True


def in_log(daemon, text: str) -> bool:
    return re.search(text, daemon.tail(100_000)) is not None


def reload(daemon) -> None:
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while not in_log(daemon, "reloaded;"):
        assert time.monotonic() < deadline, daemon.tail()
        time.sleep(0.01)


def check_victim(victim: Trainer, point: Point, expected: list[str]) -> None:
    wanted = expected[: point.epochs * RECORDS // 4]
    if isinstance(point.expect, Recovers):
        assert victim.error is None, f"{victim.error}\n{victim.daemon.tail()}"
        assert victim.digests == wanted
        assert in_log(victim.daemon, point.expect.log), victim.daemon.tail()
    elif isinstance(point.expect, Refused):
        assert victim.error is not None, "no error came"
        assert re.search(point.expect.text, str(victim.error)), victim.error
        assert victim.digests == wanted[: len(victim.digests)]
    elif victim.error is None:
        assert victim.digests == wanted
    else:
        assert victim.digests == wanted[: len(victim.digests)]


def cases():
    """Every point; with FEEDWATER_FAULTS=all with each of its engines, else with one of them."""
    for number, point in enumerate(POINTS):
        every = os.environ.get("FEEDWATER_FAULTS") == "all"
        engines = point.engines if every else [point.engines[number % len(point.engines)]]
        for engine in engines:
            yield pytest.param(point, engine, id=f"{point.name} [{engine}]")


@pytest.mark.parametrize(("point", "engine"), list(cases()))
def test_fault(make, expected, point, engine):
    daemon = make(point, engine)
    if point.when == "restart":
        with daemon:
            assert serve(daemon, "victim") == expected[:12]
        daemon.log.unlink()
    if point.when in ("start", "restart"):
        daemon.arm(point.plan())
    try:
        daemon.start()
    except RuntimeError:
        never_started(daemon, point)
        assert in_log(daemon, point.expect.text), daemon.tail()
        assert point.may_not_act or all(daemon.acted()), "the fault never came"
        return
    assert not isinstance(point.expect, Ends), "it started"

    ended = False
    try:
        bystander = Trainer(daemon, "bystander")
        if point.when in ("open", "running"):
            serve(daemon, "bystander")
            descriptors = daemon.settled_descriptors()
            bystander.run(bystander.open, lambda: bystander.take(1))
            await_ready(bystander)
        victim = Trainer(daemon, "victim", point.epochs)
        if point.when == "running":
            victim.run(victim.open, lambda: victim.take(1))
        if point.when in ("open", "running"):
            daemon.arm(point.plan())
        if point.damage:
            getattr(Files(daemon.data / "victim"), point.damage)()
        victim.run(*([victim.open] if victim.loader is None else []), victim.take_all)
        acted = daemon.acted()
        daemon.arm("")
        assert point.may_not_act or all(acted), f"the fault never came\n{daemon.tail()}"
        check_victim(victim, point, expected)
        victim.close()
        if point.when in ("open", "running"):
            bystander.run(bystander.take_all)
        else:
            bystander.run(bystander.open, bystander.take_all)
        assert bystander.error is None, f"{bystander.error}\n{daemon.tail()}"
        assert bystander.digests == expected[:12], "the bystander was harmed"
        bystander.close()
        if point.reload:
            reload(daemon)
        if not point.damage:
            assert serve(daemon, "victim") == expected[:12], "the next one is served as ever"
        if point.when in ("open", "running"):
            daemon.wait_for_no_more_descriptors_than(descriptors)
    except (feedwater.Error, AssertionError):
        if not isinstance(point.expect, Either) or not ends(daemon):
            raise
        ended = True
    if ended:
        assert daemon.process.wait(10) in (1, 2), f"{daemon.process.returncode}\n{daemon.tail()}"
        assert in_log(daemon, point.expect.text), daemon.tail()
        return
    assert daemon.alive(), daemon.tail()
    assert daemon.stop() == 0, daemon.tail()


@pytest.mark.parametrize("thread", ["fw-data", "grpcpp"])
def test_a_cpp_client_comes_back_too_when_its_first_messages_cannot_be_sent(make, expected, thread):
    """The welcome is sent by the first of these threads, the arena by the other one."""
    point = Point(thread, "open", f"sendmsg errno=ETOOMANYREFS thread={thread}", Recovers())
    daemon = make(point, "pread")
    with daemon:
        serve(daemon, "victim")  # the dataset has been opened
        daemon.arm(point.plan())
        driver = Driver("cpp", daemon.address)
        try:
            driver.open("victim", rank=0, world_size=1, slots=2)
            assert len(list(driver.batches())) == len(expected[:12])
            assert all(daemon.acted()), "the fault never came"
        finally:
            driver.end()
