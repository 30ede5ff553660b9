"""Seek indexes: the same bytes, fewer of them decoded, and kept over restarts and kill -9."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time

import pytest
from daemon_process import BUILD, DAEMON, DaemonProcess

import feedwater

PHOTOS = 48
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: photos}
sampler: {shuffle: full, seed: 11}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [64, 64]}
cache: {kind: none}
outputs: [image, label, sample_id]
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    tool = BUILD / "tools/make_photos"
    if not DAEMON.exists() or not tool.exists():
        pytest.skip(f"{DAEMON} or {tool} is not built")
    folder = tmp_path_factory.mktemp("photos")
    subprocess.run([tool, folder, "--count", str(PHOTOS)], check=True, capture_output=True)
    return folder


def make_daemon(folder, photos, config: str = "") -> DaemonProcess:
    daemon = DaemonProcess(folder, config=f"cpus: 2\nmemory: 1GiB\n{config}")
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace(f"data: {daemon.data}", f"data: {photos.parent}"))
    daemon.add_pipeline("photos", PIPELINE.replace("path: photos", f"path: {photos.name}"))
    return daemon


def epochs(daemon: DaemonProcess, count: int) -> tuple[list[str], dict]:
    """Return the digest of each of the first epochs, and then the job's status."""
    digests = []
    with feedwater.Loader("photos", batch_size=8, address=daemon.address, output="numpy") as loader:
        for _ in range(count):
            digest = hashlib.sha256()
            for batch in loader:
                for field in batch:
                    digest.update(field.tobytes())
            digests.append(digest.hexdigest())
        return digests, status(daemon)


def status(daemon: DaemonProcess) -> dict:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"][0]


def test_they_grow_are_saved_and_change_no_byte(tmp_path, photos):
    with make_daemon(tmp_path / "plain", photos, "cache: {seek_indexes: 0}\n") as plain:
        expected, job = epochs(plain, 3)
        assert "own_with_seek_index" not in job["decoded"] and job["cache"]["seek_indexes"] == 0
    with make_daemon(tmp_path / "d", photos) as daemon:
        digests, job = epochs(daemon, 3)
        assert digests == expected
        assert job["cache"]["seek_indexes"] == PHOTOS
        assert job["decoded"]["own_with_seek_index"] >= 2 * PHOTOS
    (saved,) = (tmp_path / "d/state/indexes").glob("*.seek")
    daemon.start()  # with what was saved
    try:
        digests, job = epochs(daemon, 1)
        assert digests == expected[:1]
        assert job["decoded"]["own_with_seek_index"] >= PHOTOS
        daemon.kill()
        saved.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
        daemon.start()
        assert epochs(daemon, 3)[0] == expected
    finally:
        assert daemon.stop() == 0
    assert "cut or damaged" in daemon.log.read_text()


def test_a_command_makes_them_ahead_of_time(tmp_path, photos):
    daemon = make_daemon(tmp_path / "d", photos)
    (tmp_path / "d/state").mkdir()
    command = [BUILD / "bin/feedwater", "index", "photos", "--config", daemon.config, "--json"]
    done = subprocess.run([*command, "--seek"], check=True, capture_output=True)
    (entry,) = json.loads(done.stdout)["indexes"]
    assert entry["seek_indexes"] == PHOTOS
    with (
        daemon,
        feedwater.Loader(
            "photos", batch_size=8, slots=1, address=daemon.address, output="numpy"
        ) as loader,
    ):
        batches = iter(loader)
        first = next(batches)  # while it is held, nothing else is decoded
        deadline = time.monotonic() + 20
        while status(daemon)["cache"]["seek_indexes"] < PHOTOS:  # the file is read meanwhile
            assert time.monotonic() < deadline
            time.sleep(0.01)
        del first
        for batch in batches:
            del batch  # of the only slot
        decoded = status(daemon)["decoded"]
    assert decoded["own_with_seek_index"] >= PHOTOS - 8, decoded
