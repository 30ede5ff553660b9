"""Trainers that end in odd places or do not end at all: in namespaces of their own, stopped.

The kernel names the process to the daemon by a descriptor (SO_PEERPIDFD), so numbers that mean
nothing on the other side do not matter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pictures import write_folder

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))

from daemon_process import DAEMON
from driver import COMMANDS, Driver, digests

from feedwater.control import Control, messages

PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
sampler: {shuffle: full, seed: 9}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [16, 16]}
batch: {size: 4}
outputs: [image, label]
"""
NAMESPACES = {
    "pid": ("unshare", "--pid", "--fork"),
    "user": ("unshare", "--user", "--map-root-user"),
    "pid and user": ("unshare", "--user", "--map-root-user", "--pid", "--fork"),
}


@pytest.fixture
def daemon(make_daemon):
    if not Path(COMMANDS["cpp"][-1]).exists():
        pytest.skip("the C++ driver is not there")
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 40)
    daemon.add_pipeline("pictures", PIPELINE)
    return daemon


def jobs(daemon) -> dict[str, int]:
    """Return the ranks that the daemon has, by job."""
    with Control(daemon.address) as control:
        status = control.call("GetStatus", messages.GetStatusRequest(), 20)
    return {job.job: len(job.ranks) for job in status.jobs}


def wait_until(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.01)


def require(prefix):
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"{' '.join(prefix)} is not permitted here")


def innermost(pid: int) -> int:
    """Return the process below wrappers such as unshare."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_trainer_that_dies_in_a_namespace_of_its_own_is_reclaimed(daemon, namespace):
    require(NAMESPACES[namespace])
    daemon.start()
    neighbour = Driver("cpp", daemon.address)
    neighbour.open("pictures", job="neighbour")
    golden = digests(neighbour.batches())
    before = daemon.settled_file_descriptors()
    for _ in range(3):
        victim = Driver("cpp", daemon.address, prefix=NAMESPACES[namespace])
        victim.open("pictures", job="victim")
        assert digests(victim.batches(count=3)) == golden[:3]
        assert jobs(daemon) == {"neighbour": 1, "victim": 1}
        os.kill(innermost(victim.process.pid), signal.SIGKILL)
        wait_until(lambda: jobs(daemon) == {"neighbour": 1}, "the dead one's session is over")
        victim.process.wait()
    wait_until(lambda: not daemon.file_descriptors() - before, "its descriptors are closed")
    neighbour.call("set_epoch", epoch=0)
    assert digests(neighbour.batches()) == golden
    neighbour.end()


def test_a_daemon_in_a_pid_namespace_sees_the_death_of_a_trainer_that_has_no_number_there(daemon):
    prefix = NAMESPACES["pid"]
    require(prefix)
    daemon.command = [*prefix, DAEMON]
    daemon.start()
    try:
        for _ in range(2):
            victim = Driver("cpp", daemon.address)
            victim.open("pictures", job="victim")
            victim.batches(count=3)
            victim.kill()
            wait_until(lambda: jobs(daemon) == {}, "the dead one's session is over")
    finally:
        os.kill(innermost(daemon.process.pid), signal.SIGTERM)
    assert daemon.process.wait(60) == 0


def test_a_stopped_trainer_is_not_reaped_and_harms_nobody(daemon):
    daemon.start()
    drivers = [Driver("cpp", daemon.address) for _ in range(2)]
    stopped, neighbour = drivers
    try:
        neighbour.open("pictures", job="neighbour")
        golden = digests(neighbour.batches())
        stopped.open("pictures", job="stopped")
        assert digests(stopped.batches(count=2, hold="kept")) == golden[:2]
        stopped.process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            neighbour.call("set_epoch", epoch=0)
            assert digests(neighbour.batches()) == golden
        assert jobs(daemon) == {"neighbour": 1, "stopped": 1}
        stopped.process.send_signal(signal.SIGCONT)
        assert digests(stopped.call("held", hold="kept")["batches"]) == golden[:2]
        stopped.call("release", hold="kept")
        assert digests(stopped.batches()) == golden[2:]
    finally:
        stopped.process.send_signal(signal.SIGCONT)
        for driver in drivers:
            driver.end()
