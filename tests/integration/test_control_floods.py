"""A listed user floods control.sock; a second user's calls go on, and the memory stays bounded.

Goal: what one user sends to gRPC costs that user alone. Method: the floods of
tests/testing/control_flood.py against a real daemon, each from eight connections; meanwhile the
operator asks for a description, as an opening does. Afterwards the memory has come back.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from daemon_process import NO_OTHER_USERS, OTHER_USER, ROOT, SANITIZERS, DaemonProcess, other_users
from pictures import write_folder

sys.path.insert(0, str(ROOT / "tests/testing"))

import control_flood

import feedwater
from feedwater.control import METHODS, Control

SECONDS = 2.5
MORE_KIB = 128 << 10  # that a flood may take: gRPC, and four texts that are being read
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: [8, 8]}
batch: {size: 1}
outputs: [image, label]
sampler: {last: pad}
"""


@pytest.fixture(scope="module")
def daemon():
    if not other_users():
        pytest.skip(NO_OTHER_USERS)
    folder = Path(tempfile.mkdtemp(prefix="feedwater-floods-"))
    folder.chmod(0o755)
    config = f"cpus: 2\nmemory: 512MiB\naccess: {{users: [{OTHER_USER}]}}\n"
    daemon = DaemonProcess(folder, config)
    write_folder(daemon.data / "pictures", 6)
    daemon.add_pipeline("pictures", PIPELINE)
    with daemon:
        describe(daemon)  # what a first call takes stays taken
        wide = {"job": "wide", "rank": 0, "world_size": 8192, "batch_size": 2}
        with feedwater.Loader("pictures", address=daemon.address, output="numpy", **wide):
            yield daemon
    shutil.rmtree(folder)


def describe(daemon) -> float:
    """Ask for a description over a connection of its own; return how long it took."""
    request, _ = METHODS["DescribePipeline"]
    start = time.monotonic()
    with Control(daemon.address) as control:
        wanted = request()
        wanted.pipeline.name = "pictures"
        assert control.call("DescribePipeline", wanted, 30).records == 6
    return time.monotonic() - start


@pytest.mark.parametrize("kind", control_flood.KINDS)
def test_a_flood_costs_its_user_alone(daemon, kind):
    before = daemon.resident_kib()
    flood = subprocess.Popen(
        [
            sys.executable,
            control_flood.__file__,
            daemon.address,
            str(OTHER_USER),
            kind,
            str(SECONDS),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    peak, took = before, []
    while flood.poll() is None:
        took.append(describe(daemon))
        peak = max(peak, daemon.resident_kib())
        time.sleep(0.05)
    assert int(flood.communicate()[0]) > 0
    assert daemon.alive(), daemon.tail()
    assert len(took) >= 2 and max(took) < 10, took  # 12 to 24 s when all shared one account
    deadline = time.monotonic() + 10
    while daemon.resident_kib() > before + MORE_KIB // 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    print(
        f"{kind}: {before} KiB, peak {peak}, then {daemon.resident_kib()}; calls {max(took):.2f} s"
    )
    if not SANITIZERS:  # which keep what is freed
        assert peak - before < MORE_KIB
        assert daemon.resident_kib() < before + MORE_KIB // 4
