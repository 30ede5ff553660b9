"""Fixtures of the conformance suite: a real daemon with a small dataset, and drivers of each
client.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from daemon_process import DAEMON, ROOT, DaemonProcess
from driver import COMMANDS, Driver
from pictures import write_folder

sys.path.append(str(ROOT / "tests/client/python"))
from fake_daemon import FakeDaemon

RECORDS = 42
SEED = 5
BAD = 17

HEAD = """version: 1
dataset: {{format: image_folder, root: data, path: {path}}}
sampler: {{shuffle: {shuffle}, seed: 5, last: {last}}}
{more}graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
{ops}batch: {{size: 4}}
outputs: [image, label, sample_id, position, is_real]
"""
AUGMENT = """  - random_horizontal_flip: {in: image, p: 0.5}
  - color_jitter: {in: image, brightness: 0.4, contrast: 0.4}
  - normalize: {in: image, mean: [123, 116, 103], std: [58, 57, 57]}
"""


def pipeline(path="good", shuffle="full", last="drop", more="", ops="") -> str:
    """Return the text of a pipeline that delivers 8x8 pictures in batches of 4."""
    return HEAD.format(path=path, shuffle=shuffle, last=last, more=more, ops=ops)


PIPELINES = {
    "crop": pipeline(),
    "plain": pipeline(shuffle="none"),
    "partial": pipeline(last="partial"),
    "pad": pipeline(last="pad"),
    "augment": pipeline(ops=AUGMENT),
    "fails": pipeline(path="bad", shuffle="none", more="on_bad_sample: fail\n"),
    "substitutes": pipeline(path="bad", shuffle="none", more="on_bad_sample: substitute\n"),
    "skips": pipeline(path="bad", shuffle="none", more="on_bad_sample: skip_with_count\n"),
    "strict": pipeline(
        path="bad",
        shuffle="none",
        more="on_bad_sample: substitute\nmax_bad_fraction: 0\n",
    ),
    "missing": pipeline(path="no/such/folder"),
    "dots": pipeline(path="../.."),
    "outside": pipeline(path="link"),
}


def _fill(daemon: DaemonProcess) -> DaemonProcess:
    write_folder(daemon.data / "good", RECORDS)
    write_folder(daemon.data / "bad", RECORDS, bad=(BAD,))
    write_folder(daemon.folder / "elsewhere", RECORDS)
    (daemon.data / "link").symlink_to(daemon.folder / "elsewhere")
    for name, text in PIPELINES.items():
        daemon.add_pipeline(name, text)
    return daemon


@pytest.fixture(scope="session")
def shared_daemon():
    """One daemon for all cases that leave it as it was."""
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built (FEEDWATER_BUILD_DIR says where)")
    folder = Path(tempfile.mkdtemp(prefix="fw-"))
    with _fill(DaemonProcess(folder)) as daemon:
        yield daemon
    assert daemon.process.returncode == 0, daemon.tail()
    shutil.rmtree(folder)


@pytest.fixture
def daemon(shared_daemon):
    """The shared daemon; it must have survived the case."""
    yield shared_daemon
    assert shared_daemon.alive(), shared_daemon.tail()


@pytest.fixture
def own_daemon(make_daemon):
    """A daemon that the case may kill."""
    daemon = _fill(make_daemon())
    daemon.start()
    return daemon


@pytest.fixture
def fake(folder):
    """A made-up daemon with faults. At the end no client may have broken the protocol."""
    daemon = FakeDaemon(folder / "fake")
    daemon.address = str(daemon.directory)
    yield daemon
    daemon.stop()
    assert daemon.problems == []


@pytest.fixture(params=["python", "cpp"])
def client(request) -> str:
    """Each client in turn."""
    return _require(request.param)


def _require(name: str) -> str:
    if not Path(COMMANDS[name][-1]).exists():
        wanted = os.environ.get("FEEDWATER_CONFORMANCE", "").split(",")
        message = f"the driver {COMMANDS[name][-1]} is not there"
        pytest.fail(message) if name in wanted else pytest.skip(message)
    return name


@pytest.fixture
def start(client, monkeypatch):
    """Start drivers of the case's client (or of another), which are ended afterwards."""
    drivers = []

    def start_one(daemon: DaemonProcess, other: str | None = None, **environment) -> Driver:
        driver = Driver(_require(other or client), daemon.address, **environment)
        drivers.append(driver)
        return driver

    yield start_one
    for driver in drivers:
        driver.end()


@pytest.fixture(scope="session")
def reference() -> dict:
    """The functions of the code block in server/sampler/README.md: the order as formulas."""
    text = (ROOT / "server/sampler/README.md").read_text()
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S).group(1), names)
    return names
