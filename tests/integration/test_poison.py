"""A sample that crashes the daemon: fenced off after the second time, and the job goes on.

The daemon is the real one with one op more, which faults on a label; it is restarted as systemd
would. The client is not told of anything but the pause.
"""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest
from daemon_process import BUILD, dying_by_signals
from pictures import pixels, png

import feedwater

RECORDS, CRASHING = 12, BUILD / "tools/crashing_feedwaterd"
PIPELINE = """version: 1
dataset: {{format: image_folder, root: data, path: pictures}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
  - crash_at: {{in: label, out: checked, value: {poison}}}
batch: {{size: 4}}
outputs: [image, checked, sample_id, position, is_real]
on_bad_sample: {policy}
"""


@pytest.fixture
def daemon(make_daemon):
    """A daemon that dies of one sample, and comes back by itself."""
    if not CRASHING.exists():
        pytest.skip(f"{CRASHING} is not built")
    daemon = make_daemon()
    daemon.command = [CRASHING]
    daemon.environment = dying_by_signals()
    for number in range(RECORDS):  # each in a class of its own, so that the label is the record
        folder = daemon.data / f"pictures/{number:02}"
        folder.mkdir(parents=True)
        (folder / "picture.png").write_bytes(png(pixels(number)))
    for policy in ("fail", "substitute", "skip_with_count"):
        daemon.add_pipeline(policy, PIPELINE.format(poison=7, policy=policy))
    daemon.start()
    daemon.deaths = []
    stop = threading.Event()

    def restart():
        while not stop.wait(0.01):
            if not daemon.alive():
                died = daemon.process.returncode
                daemon.start()
                daemon.deaths.append(died)  # it serves again

    supervisor = threading.Thread(target=restart)
    supervisor.start()
    yield daemon
    stop.set()
    supervisor.join()


def await_death(daemon, number):
    """Wait until the daemon has died so often and serves again."""
    deadline = time.monotonic() + 60
    while len(daemon.deaths) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def epoch(daemon, policy):
    """Return the sample ids of one epoch and which of them are real."""
    ids, real = [], []
    with feedwater.Loader(policy, address=daemon.address, output="numpy", as_dict=True) as loader:
        for batch in loader:
            ids += batch["sample_id"].tolist()
            real += batch["is_real"].tolist()
            assert batch["position"].tolist() == list(range(len(ids) - 4, len(ids)))
    return ids, real


def test_a_sample_that_crashes_the_daemon_twice_is_fenced_off_and_the_job_finishes(daemon):
    ids, _ = epoch(daemon, "substitute")
    assert ids == [0, 1, 2, 3, 4, 5, 6, 8, 8, 9, 10, 11]
    assert len(daemon.deaths) == 2, daemon.tail()
    ids, real = epoch(daemon, "skip_with_count")
    assert ids == list(range(RECORDS))
    assert [i for i, is_real in zip(ids, real) if not is_real] == [7]
    with pytest.raises(feedwater.BadSample, match="put aside") as caught:
        epoch(daemon, "fail")
    assert caught.value.record == 7
    assert "07/picture.png" in caught.value.path

    # It stays fenced off over a restart, and stands in the list.
    daemon.process.kill()
    await_death(daemon, 3)
    assert epoch(daemon, "substitute")[0][7] == 8
    assert daemon.deaths == [-signal.SIGSEGV, -signal.SIGSEGV, -signal.SIGKILL]
    lines = (daemon.folder / "state/bad_samples.jsonl").read_text().splitlines()
    [entry] = [json.loads(line) for line in lines if json.loads(line)["record"] == 7][-1:]
    assert entry["crashes"] == 2 and entry["quarantined"] and entry["signal"] == 11
    assert entry["path"].endswith("07/picture.png") and entry["length"] > 0
