"""A daemon in a container and its clients: processes outside of its PID namespace, which the kernel
tells it of by the number 0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from daemon_process import DAEMON

import feedwater

PIPELINE = (
    "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
    "sampler: {seed: 3}\noutputs: [sample_id]\nbatch: {size: 4}\n"
)
CLIENT = """
import sys, feedwater
feedwater.Loader("ids", address=sys.argv[1], output="numpy", rank=0, world_size=1).close()
"""
TWINS = "are each rank 0 of 1 over the same data"


def can_make_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "--pid", "--fork", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def daemon(make_daemon):
    if not can_make_namespaces():
        pytest.skip("only root can make a PID namespace, with unshare")
    daemon = make_daemon()
    for i in range(12):
        path = daemon.data / f"images/a/{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not looked into")
    daemon.add_pipeline("ids", PIPELINE)
    daemon.command = ["unshare", "--pid", "--fork", "--kill-child", DAEMON]
    daemon.start()
    yield daemon
    daemon.kill()  # unshare lets no signal through


def test_twins_are_told_of(daemon):
    """Two loaders of one process are no twins, and another process's is one."""
    options = {"address": daemon.address, "output": "numpy", "rank": 0, "world_size": 1}
    with feedwater.Loader("ids", **options), feedwater.Loader("ids", **options):
        assert TWINS not in daemon.tail()
        subprocess.run([sys.executable, "-c", CLIENT, daemon.address], check=True)
        assert TWINS in daemon.tail()
        assert "of another PID namespace" in daemon.tail()


def test_a_process_that_comes_back_at_once_gets_its_rank_back(daemon):
    options = {"address": daemon.address, "output": "numpy", "rank": 0, "world_size": 1}
    for _ in range(5):
        feedwater.Loader("ids", job="mine", **options).close()
