"""Goal: whatever one user takes of the daemon's memory, the next user finds room.

Method: a listed user opens streams with large slots until the daemon refuses, and keeps them; then
another one opens one and reads. With `access` from the start, and with one that a reload brings.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from daemon_process import DaemonProcess, other_users

import feedwater

pytestmark = pytest.mark.skipif(not other_users(), reason="needs root to be two users")

USER = 52002
PIPELINE = """version: 1
dataset: {format: cifar10, root: data, path: cifar}
batch: {size: 2048}
outputs: [image, label]
cache: {kind: none}
"""
# Opens streams until one is refused, says so, and waits.
HOARDER = """
import os, sys
import feedwater
address, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
kept = []
try:
    for i in range(30):
        kept.append(feedwater.Loader("large", address=address, output="numpy", slots=8, rank=0,
                                     world_size=1, job=f"job-{i}"))
        next(iter(kept[-1]))
except feedwater.Error as error:
    print(len(kept), str(error).replace(chr(10), " "), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def daemon(folder):
    folder.chmod(0o755)
    daemon = DaemonProcess(folder / "d", "cpus: 1\npin_cpus: false\nmemory: 1GiB\n")
    cifar = daemon.data / "cifar"
    cifar.mkdir(parents=True)
    for part in range(1, 6):
        (cifar / f"data_batch_{part}.bin").write_bytes(bytes(3073) * 1000)
    daemon.add_pipeline("large", PIPELINE)
    yield daemon
    if daemon.alive():
        assert daemon.stop() == 0, daemon.tail()


@pytest.mark.parametrize("when", ["at the start", "after a reload"])
def test_one_user_leaves_half_of_the_memory_to_others(daemon, when):
    text = daemon.config.read_text()
    admitting = text + f"access: {{users: ['{USER}']}}\n"
    if when == "at the start":
        daemon.config.write_text(admitting)
        daemon.start()
    else:
        daemon.start()
        daemon.config.write_text(admitting)
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while "reloaded" not in daemon.tail() and time.monotonic() < deadline:
            time.sleep(0.05)
    hoarder = subprocess.Popen(
        [sys.executable, "-c", HOARDER, daemon.address, str(USER)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        count, refused = hoarder.stdout.readline().split(" ", 1)
        assert int(count) > 2, refused
        assert re.search(r"over the limit of 512.0 MiB for one user", refused), refused
        with feedwater.Loader(
            "large", address=daemon.address, output="numpy", slots=8, rank=0, world_size=1
        ) as loader:
            assert next(iter(loader))[0].shape[0] == 2048
    finally:
        hoarder.kill()
        hoarder.communicate()


def test_what_a_batch_of_bad_samples_takes_is_reserved(daemon):
    """Each of a million places may be bad, and be remembered until the batch is published."""
    daemon.add_pipeline(
        "labels", PIPELINE.replace("[image, label]", "[label]") + "sampler: {last: pad}\n"
    )
    daemon.config.write_text(daemon.config.read_text().replace("1GiB", "256MiB"))
    daemon.start()
    with pytest.raises(feedwater.InvalidArgument, match="it must be 1 to 1048576"):
        open_labels(daemon, 2**20 + 1)
    with pytest.raises(feedwater.ResourceExhausted, match="bad samples"):
        open_labels(daemon, 2**20)


def open_labels(daemon, batch_size: int) -> None:
    feedwater.Loader(
        "labels", address=daemon.address, output="numpy", batch_size=batch_size, slots=4
    ).close()
