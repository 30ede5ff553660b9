"""Storage that fails or hangs: no sample is lost or replaced, and only its own user waits.

Two mounts of a file system that does as it is told (tests/testing/fuse_storage.py): one goes bad,
the other stays good. Needs root and /dev/fuse.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from daemon_process import BUILD, ROOT, DaemonProcess
from pictures import write_folder

sys.path.insert(0, str(ROOT / "tests/testing"))

import fuse_storage

import feedwater
from feedwater.control import Control, messages

pytestmark = pytest.mark.skipif(not fuse_storage.available(), reason="needs root and /dev/fuse")

RECORDS, USER = 48, 52001
PIPELINE = """version: 1
dataset: {{format: image_folder, root: {root}, path: pictures}}
sampler: {{shuffle: full}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [8, 8]}}
batch: {{size: 4}}
outputs: [image, sample_id]
on_bad_sample: {policy}
cache: {{kind: none}}
"""
# Reads epochs for ever, and says so.
TRAINER = """
import os, sys
import feedwater
address, pipeline, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
with feedwater.Loader(pipeline, address=address, output="numpy", slots=2, rank=0,
                      world_size=1) as loader:
    while True:
        ids = []
        for _, more in loader:
            ids += more.tolist()
            print("batch", flush=True)
        assert sorted(ids) == list(range(48)), ids
        print("epoch", flush=True)
"""


class Trainer:
    """A trainer in a process of its own."""

    def __init__(self, daemon, pipeline: str, uid: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, daemon.address, pipeline, str(uid)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.batches = self.epochs = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        for line in self.process.stdout:
            self.batches += line == "batch\n"
            self.epochs += line == "epoch\n"

    def get_on(self, epochs: int) -> None:
        """Wait until it has read so many epochs more."""
        until = self.epochs + epochs
        wait_for(lambda: self.epochs >= until, f"{epochs} epochs more")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(condition, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: has not come"
        time.sleep(0.02)


def jobs(daemon) -> dict:
    """Return the running jobs, as status has them, by pipeline."""
    with Control(daemon.address) as control:
        status = control.call("GetStatus", messages.GetStatusRequest(), 60)
    return {job.pipeline: job for job in status.jobs}


@pytest.fixture
def mounts(folder):
    """Two of them: the first goes bad."""
    write_folder(folder / "source/pictures", RECORDS)
    for path, _, names in os.walk(folder):
        os.chmod(path, 0o755)
        for name in names:
            os.chmod(os.path.join(path, name), 0o644)
    with fuse_storage.FuseStorage(folder / "source", folder / "bad") as bad:
        with fuse_storage.FuseStorage(folder / "source", folder / "good") as good:
            yield bad, good


@pytest.fixture
def daemon(mounts, folder):
    """A daemon with one worker over both."""
    bad, good = mounts
    daemon = DaemonProcess(
        folder / "d",
        "cpus: 1\npin_cpus: false\nmemory: 1GiB\nlimits: {max_open_files: 16}\n"
        f"access: {{users: ['{USER}']}}\n",
    )
    text = daemon.config.read_text()
    daemon.config.write_text(
        text.replace("roots: {", f"roots: {{bad: {bad.mount}, good: {good.mount}, ")
    )
    for policy in ("fail", "substitute"):
        daemon.add_pipeline(f"bad-{policy}", PIPELINE.format(root="bad", policy=policy))
    daemon.add_pipeline("good", PIPELINE.format(root="good", policy="fail"))
    yield daemon
    bad.heal()
    if daemon.alive():
        assert daemon.stop() == 0, daemon.tail()


def load(daemon, pipeline: str) -> feedwater.Loader:
    return feedwater.Loader(
        pipeline, address=daemon.address, output="numpy", slots=2, rank=0, world_size=1
    )


@pytest.mark.parametrize("policy", ["fail", "substitute"])
def test_an_error_that_passes_is_seen_by_nobody(daemon, mounts, policy):
    faults = [("lookup", errno.ESTALE), ("open", errno.EIO), ("read", errno.ENOTCONN),
              ("read", errno.ETIMEDOUT), ("getattr", errno.EIO)]  # fmt: skip
    daemon.start()
    with load(daemon, f"bad-{policy}") as loader:
        for call, error in faults:
            ids = []
            for step, (_, more) in enumerate(loader):
                ids += more.tolist()
                assert loader.batch_info.substituted == 0
                if step == 2:
                    mounts[0].fail(call, error)
                    healer = threading.Timer(0.3, mounts[0].heal)
                    healer.start()
            healer.join()
            assert sorted(ids) == list(range(RECORDS)), (call, error)
        assert jobs(daemon)[f"bad-{policy}"].bad_samples == 0
    assert "tried again for at most" in daemon.tail()


def test_a_mount_that_ended_and_came_back_needs_no_reload(daemon, mounts, folder):
    text = daemon.config.read_text()
    daemon.config.write_text(
        text.replace("roots: {", f"roots: {{mended: {folder / 'mended'}, ")
        + "storage: {retry_for: 1s}\n"
    )
    daemon.add_pipeline("mended", PIPELINE.format(root="mended", policy="fail"))

    def epoch() -> list[int]:
        with load(daemon, "mended") as loader:
            return sorted(i for _, more in loader for i in more.tolist())

    with fuse_storage.FuseStorage(folder / "source", folder / "mended") as first:
        daemon.start()
        assert epoch() == list(range(RECORDS))
        first.break_off()
        with pytest.raises(feedwater.Error, match=r"ENOTCONN|not connected"):
            epoch()
    with fuse_storage.FuseStorage(folder / "source", folder / "mended"):
        assert epoch() == list(range(RECORDS))


def test_an_error_that_stays_ends_the_job_and_opening_a_loader_is_tried_again(daemon, mounts):
    daemon.config.write_text(daemon.config.read_text() + "storage: {retry_for: 1s}\n")
    daemon.start()
    mounts[0].fail("lookup", errno.ESTALE)
    healer = threading.Timer(0.3, mounts[0].heal)
    healer.start()
    with load(daemon, "bad-substitute") as loader:
        healer.join()
        iterator = iter(loader)
        next(iterator)
        mounts[0].fail("read", errno.EIO)
        with pytest.raises(feedwater.Error, match=r"Input/output error.*storage\.retry_for"):
            for _ in range(RECORDS):
                next(iterator)
        assert jobs(daemon)["bad-substitute"].bad_samples == 0
    mounts[0].heal()
    with load(daemon, "bad-substitute") as loader:
        assert sum(len(ids) for _, ids in loader) == RECORDS


@pytest.mark.parametrize(
    ("call", "engine"),
    [("lookup", "io_uring"), ("lookup", "pread"), ("open", "pread"), ("read", "io_uring")],
)
def test_a_hang_holds_up_nobody_else(daemon, mounts, call, engine):
    daemon.config.write_text(daemon.config.read_text() + f"storage: {{engine: {engine}}}\n")
    daemon.start()
    bad, _ = mounts
    victim, other = Trainer(daemon, "bad-fail"), Trainer(daemon, "good", USER)
    try:
        victim.get_on(1)
        other.get_on(1)
        bad.hang(call)
        wait_for(lambda: jobs(daemon)["bad-fail"].reads_held_up > 0, "held up reads")
        standing = victim.batches
        other.get_on(5)
        assert victim.batches <= standing + 4, "it hangs"
        assert jobs(daemon)["good"].reads_held_up == 0

        # It leaves, and with it all that is not the kernel's; it comes again, and waits again.
        victim.kill()
        wait_for(lambda: "bad-fail" not in jobs(daemon), "the end of the job")
        other.get_on(1)
        bad.heal()
        victim = Trainer(daemon, "bad-fail")
        victim.get_on(1)
        assert jobs(daemon)["bad-fail"].bad_samples == 0
    finally:
        victim.kill()
        other.kill()


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_a_new_daemon_starts_while_the_old_one_hangs_in_the_kernel(daemon, mounts, folder, way):
    daemon.start()
    bad, _ = mounts
    victim = Trainer(daemon, "bad-fail")
    old = daemon.process
    try:
        victim.get_on(1)
        bad.hang("lookup")
        wait_for(lambda: jobs(daemon)["bad-fail"].reads_held_up > 0, "held up reads")
        old.send_signal(way)
        if way == signal.SIGTERM:
            wait_for(lambda: "are left behind" in daemon.tail(), "its end")
        victim.kill()
        wait_for(lambda: state_of(old.pid) == "Z", "its main thread's end")
        assert old.poll() is None, "the kernel has not let go of it"
        daemon.start()
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
        if way == signal.SIGKILL:
            assert "was killed and hangs in the kernel: taken over" in daemon.tail()
    finally:
        victim.kill()
        bad.heal()
    old.wait(60)


def openings_of(pid: int) -> int:
    """Count the threads that open roots and have not come back."""
    names = [Path(task, "comm") for task in Path(f"/proc/{pid}/task").iterdir()]
    count = 0
    for name in names:
        with contextlib.suppress(OSError):  # it has ended
            count += name.read_text() == "fw-root\n"
    return count


def test_a_root_below_a_silent_mount_holds_up_neither_start_nor_reload_nor_end(
    daemon, mounts, folder
):
    bad, _ = mounts
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("roots: {",
        f"roots: {{below: {bad.mount}/pictures, gone: {bad.mount}/nothing, "))  # fmt: skip
    daemon.add_pipeline("below", PIPELINE.format(root="below", policy="fail").replace(
        "path: pictures", "path: ''"))  # fmt: skip
    bad.hang("lookup")
    daemon.start()
    old = daemon.process
    opening = None
    try:
        assert f"root 'below' ({bad.mount}/pictures): its storage has not answered" in daemon.tail()
        health = subprocess.run(
            [BUILD / "bin/feedwater", "--address", daemon.address, "health"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert f"but for root 'below' ({bad.mount}/pictures)" in health.stdout
        assert f"root 'gone' ({bad.mount}/nothing)" in health.stdout
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
        for reloads in (1, 2):
            old.send_signal(signal.SIGHUP)
            wait_for(lambda n=reloads: daemon.tail(20000).count("reloaded;") == n, "the reload")
        assert openings_of(old.pid) == 2, "reloads share one opening of each"

        # Who wants to read there waits, and goes on when the storage answers.
        opening = Trainer(daemon, "below")
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
        assert opening.batches == 0
        bad.heal()
        opening.get_on(1)
        with Control(daemon.address) as control:  # also of the one whose answer is an error
            wait_for(
                lambda: not control.call("GetStatus", messages.GetStatusRequest(), 60).silent_roots,
                "the storage's answers",
            )
        assert f"root 'gone' ({bad.mount}/nothing) does not exist" in daemon.tail(20000)
        opening.kill()

        bad.hang("lookup")
        old.send_signal(signal.SIGHUP)
        wait_for(lambda: daemon.tail(20000).count("reloaded;") == 3, "the reload")
        opening = Trainer(daemon, "below")  # hangs in an opening of its own user's
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
        old.send_signal(signal.SIGTERM)
        wait_for(lambda: old.poll() is not None or state_of(old.pid) == "Z", "its end")
        opening.kill()
        daemon.start()  # a new one, though the kernel has not let go of the old one
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
    finally:
        if opening is not None:
            opening.kill()
        bad.heal()
    old.wait(60)


def test_an_ops_file_on_a_silent_mount_holds_up_its_pipeline_alone(daemon, mounts, folder):
    bad, _ = mounts
    (folder / "source/words.txt").write_text("a\nb\n")
    os.chmod(folder / "source/words.txt", 0o644)
    op = "{in: data, out: [words, mask], tokenizer: {root: bad, path: words.txt}, kind: words, "
    op += "unknown_token: a, pad_token: b, max_length: 4, truncation: right, errors: replace}"
    text = PIPELINE.format(root="good", policy="fail")
    text = text.replace("batch:", f"  - tokenize: {op}\nbatch:")
    daemon.add_pipeline("text", text.replace("[image,", "[image, words,"))
    bad.hang("lookup")
    daemon.start()
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reloaded;" in daemon.tail(20000), "the reload")
    with Control(daemon.address) as control:
        names = control.call("ListPipelines", messages.ListPipelinesRequest(), 60).names
    assert "text" in names
    opened = threading.Event()
    failures = []

    def read() -> None:
        try:
            with load(daemon, "text") as loader:
                opened.set()
                assert sum(len(ids) for _, _, ids in loader) == RECORDS
        except (feedwater.Error, AssertionError) as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: bad.hanging() > 0, "its look-up")
        with load(daemon, "good") as loader:
            assert sum(len(ids) for _, ids in loader) == RECORDS
        assert not opened.is_set()
    finally:
        bad.heal()
        reader.join()
    assert failures == [] and opened.is_set()


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]
