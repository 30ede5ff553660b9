"""Fixtures of the Python client's unit tests: a fake daemon in the test's own process."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

try:
    import feedwater
except ImportError:  # not installed: test the tree
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
    import feedwater
from fake_daemon import FakeDaemon

LAUNCHER_VARIABLES = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "FEEDWATER_ADDRESS",
    "FEEDWATER_STALL_TIMEOUT",
]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No launcher, no address: whatever the tests themselves run under."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder():
    """A directory whose name is short enough for a Unix socket."""
    path = Path(tempfile.mkdtemp(prefix="fw-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start(folder):
    """Start fake daemons. At the end no client may have broken the protocol."""
    daemons = []

    def start_one(**options) -> FakeDaemon:
        daemon = FakeDaemon(folder / f"d{len(daemons)}", **options)
        daemons.append(daemon)
        return daemon

    yield start_one
    for daemon in daemons:
        daemon.stop()
        assert daemon.problems == []


@pytest.fixture
def daemon(start) -> FakeDaemon:
    """A fake daemon with 40 records and batches of 4: ten steps an epoch."""
    return start()


@pytest.fixture
def open_loader(monkeypatch):
    """Open loaders of `numbers` that are closed at the end."""
    loaders = []

    def open_one(daemon, **options) -> feedwater.Loader:
        options = {"address": str(daemon.directory), "output": "numpy", "as_dict": True, **options}
        loader = feedwater.Loader("numbers", **options)
        loaders.append(loader)
        return loader

    yield open_one
    for loader in loaders:
        loader.close()
    loaders.clear()
    gc.collect()
