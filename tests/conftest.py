"""What all Python tests share: the package under test, and real daemons."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

try:
    import feedwater  # noqa: F401
except ImportError:  # not installed: test the tree
    client = str(Path(__file__).resolve().parent.parent / "client/python")
    sys.path.insert(0, client)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [client, os.environ.get("PYTHONPATH", "")])
    )

from daemon_process import DAEMON, DaemonProcess

# Whoever started this in the background may have had SIGINT ignored, which children would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

LAUNCHER_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID",
    "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE",
    "FEEDWATER_ADDRESS", "FEEDWATER_STALL_TIMEOUT",
)  # fmt: skip


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
def make_daemon(folder):
    """Make real daemons, which the test starts; all are stopped at the end, and must stop well."""
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built (FEEDWATER_BUILD_DIR says where)")
    made = []

    def make(**options) -> DaemonProcess:
        daemon = DaemonProcess(folder / f"d{len(made)}", **options)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        if daemon.alive():
            assert daemon.stop() == 0, daemon.tail()
