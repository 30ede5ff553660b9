"""What the scenarios share: daemons, trainers that check every byte, seeds, limits, verdicts."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for needed in ("tests", "tests/conformance", "tests/testing", "client/python"):
    if str(ROOT / needed) not in sys.path:
        sys.path.insert(0, str(ROOT / needed))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")])
)

from daemon_process import BUILD, OTHER_USER, DaemonProcess  # noqa: E402
from driver import Driver, Refused, digests  # noqa: E402
from pictures import write_folder  # noqa: E402

from .leftovers import fd_kinds  # noqa: E402

DATA = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared" / "data"))
PHOTOS = 96
EPOCHS = 3  # of a golden run; trainers go round in these
HANG_S = 75.0  # longer than any client's reconnect_timeout

PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: photos}
sampler: {shuffle: full, seed: 7}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [24, 24]}
  - random_horizontal_flip: {in: image}
  - normalize: {in: image, mean: [123, 116, 103], std: [58, 57, 57]}
batch: {size: 2}
cache: {kind: none}
outputs: [image, label, sample_id, position]
"""
# For attackers, whose sessions shall cost no decoding to speak of: that would be sharing, not harm.
TINY = """version: 1
dataset: {format: image_folder, root: data, path: tiny}
sampler: {shuffle: full, seed: 7}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: [8, 8]}
batch: {size: 1}
outputs: [image, label]
"""


@dataclass
class Check:
    """One thing that must be so. A `timing` one is judged only where the machine is quiet."""

    what: str
    got: str
    must: str
    ok: bool
    timing: bool = False


@dataclass
class Settings:
    """How much, from which seed, until when."""

    count: int
    seed: int
    minutes: float | None = None
    judge_times: bool = True
    everything: bool = True  # all files of a corpus, not a sample
    progress: Callable[[str], None] = field(default=lambda line: None)


class Stage:
    """What one scenario runs on. Collects its checks; leaves nothing behind.

    Parameters
    ----------
    name : str
        The scenario's.
    settings : Settings
        Count, seed and limits.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.rng = random.Random(f"{name} {settings.seed}")
        self.checks: list[Check] = []
        self.figures: dict[str, object] = {}
        self.done = 0
        self.started = time.monotonic()
        self._told = 0.0
        self._wrong: Counter = Counter()
        self._lock = threading.Lock()
        self._exit = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="fw-torture-"))
        self.folder.chmod(0o755)  # trainers of other users pass through
        self._exit.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *unused: object) -> None:
        self._exit.close()

    def leave(self, callback: Callable[[], object]) -> None:
        """Have something done at the end, the last one first."""
        self._exit.callback(callback)

    # --- how far ---

    def rounds(self) -> Iterator[int]:
        """Yield 0, 1, ... until the count is reached or the time is up; says how far it is."""
        for number in range(self.settings.count):
            if self.time_is_up():
                break
            yield number
            self.done = number + 1
            now = time.monotonic()
            if now - self._told > 2:
                self._told = now
                self.settings.progress(f"{self.name}: {self.done} of {self.settings.count}")

    def time_is_up(self) -> bool:
        """Tell whether --minutes have passed."""
        limit = self.settings.minutes
        return limit is not None and time.monotonic() - self.started > 60 * limit

    # --- verdicts ---

    def check(self, what: str, ok: bool, got: object, must: object, timing: bool = False) -> None:
        """Note that something is, or is not, as it must be."""
        self.checks.append(Check(what, str(got), str(must), bool(ok), timing))

    def wrong(self, what: str, detail: str) -> None:
        """Note a violation as it happens; the first of each kind is told at once."""
        with self._lock:
            self._wrong[what] += 1
            if self._wrong[what] == 1:
                self.settings.progress(f"VIOLATION: {what}: {detail}")
                self.figures.setdefault("violations", []).append(f"{what}: {detail}")

    def none_wrong(self, *kinds: str) -> None:
        """Check that there was none of these violations, and none of any other kind."""
        for kind in sorted({*kinds, *self._wrong}):
            self.check(kind, self._wrong[kind] == 0, self._wrong[kind], 0)

    def times(self, what: str, seconds: list[float], quantile: float, limit_s: float) -> None:
        """Check a quantile of some durations, and keep the others."""
        if not seconds:
            return
        ordered = sorted(seconds)
        at = ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
        self.figures[what] = {
            "count": len(ordered),
            "p50_ms": round(1e3 * statistics.median(ordered), 2),
            "p99_ms": round(1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
            "max_ms": round(1e3 * ordered[-1], 2),
        }
        name = f"{what}, p{round(100 * quantile)}"
        self.check(
            name, at <= limit_s, f"{1e3 * at:.1f} ms", f"<= {1e3 * limit_s:.0f} ms", timing=True
        )

    def result(self) -> dict:
        """Return what goes into the result file."""
        judged = [c for c in self.checks if self.settings.judge_times or not c.timing]
        return {
            "scenario": self.name,
            "seed": self.settings.seed,
            "count": self.settings.count,
            "done": self.done,
            "seconds": round(time.monotonic() - self.started, 1),
            "passed": bool(judged) and all(c.ok for c in judged),
            "checks": [asdict(c) for c in self.checks],
            "figures": self.figures,
        }

    # --- what there is to break ---

    def photos(self, folder: Path, count: int = PHOTOS) -> None:
        """Draw photos as an image folder."""
        if not folder.exists():
            subprocess.run(
                [BUILD / "tools/make_photos", folder, "--count", str(count), "--classes", "4"],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def daemon(
        self,
        config: str = "cpus: 2\npin_cpus: false\nmemory: 1GiB\n",
        options: tuple[str, ...] = (),
        prefix: tuple[str, ...] = (),
    ) -> DaemonProcess:
        """Start a daemon over drawn photos, with the pipelines `photos` and `tiny`."""
        access = f"access: {{users: [{OTHER_USER}]}}\n" if os.geteuid() == 0 else ""
        daemon = DaemonProcess(self.folder / "d", config=config + access)
        daemon.folder.chmod(0o755)
        daemon.command = [*prefix, *daemon.command, *options]
        self.photos(daemon.data / "photos")
        daemon.add_pipeline("photos", PIPELINE)
        write_folder(daemon.data / "tiny", 12)
        daemon.add_pipeline("tiny", TINY)
        daemon.start()
        self._exit.callback(self._end_daemon, daemon)
        return daemon

    def _end_daemon(self, daemon: DaemonProcess) -> None:
        if daemon.alive() and daemon.stop() != 0:
            raise RuntimeError(
                f"feedwaterd ended with {daemon.process.returncode}: {daemon.tail()}"
            )

    def golden(
        self, daemon: DaemonProcess, world: int, batch: int = 2, pipeline: str = "photos"
    ) -> Golden:
        """Return what every rank gets when nothing happens."""
        return Golden(daemon, pipeline, world, batch)

    def trainer(self, *arguments, **options) -> Trainer:
        """Start a trainer that is ended with the scenario."""
        trainer = Trainer(self, *arguments, **options)
        self._exit.callback(trainer.kill)
        return trainer


class Golden:
    """The digests of an undisturbed run, by rank and epoch."""

    def __init__(self, daemon: DaemonProcess, pipeline: str, world: int, batch: int) -> None:
        self.pipeline, self.world, self.batch = pipeline, world, batch
        self.exact = True  # False: only the order is compared
        self.of: list[list[list[tuple]]] = []
        for rank in range(world):
            driver = Driver("cpp", daemon.address)
            try:
                driver.open(
                    pipeline, rank=rank, world_size=world, batch_size=batch, job=f"golden-{rank}"
                )
                self.of.append([digests(driver.batches()) for _ in range(EPOCHS)])
            finally:
                driver.end()
        assert self.of[0][0], "the golden run is empty"


@dataclass
class Saved:
    """A checkpoint: the client's state, and what the trainer had seen."""

    state: dict | None = None
    epoch: int = 0
    step: int = 0


class Trainer(threading.Thread):
    """A real trainer process that takes batch after batch and saves its state after each.

    Every batch is compared with the golden run at the place where the saved state says it must be,
    so a wrong, a lost and a repeated one show at once. It goes round in the golden epochs.

    Parameters
    ----------
    stage : Stage
        Hears of violations.
    client : str
        ``"python"`` or ``"cpp"``.
    address : str
        The daemon's.
    golden : Golden
        What it must see.
    rank : int
        Of the golden run's world.
    job : str
        Its job's name.
    saved : Saved
        Where to go on.
    user : int
        Run as this user.
    prefix : list of str
        Words before the program's command line.
    """

    def __init__(
        self,
        stage: Stage,
        client: str,
        address: str,
        golden: Golden,
        rank: int,
        job: str,
        saved: Saved | None = None,
        user: int | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        super().__init__(daemon=True)
        self.stage, self.golden, self.rank, self.job = stage, golden, rank, job
        self.client, self.address, self.user, self.prefix = client, address, user, prefix
        self.saved = saved or Saved()
        self.batches = 0  # delivered and right
        self.last_s = 0.0  # when the last one came
        self.since_s = time.monotonic()
        self.period_s = 0.0  # between batches: a training step's time
        self.died_s = 0.0  # the wall clock, once it has been killed and is no more
        self.forgiven = ""  # text of an error that it may see
        self._ending = False
        self.driver = Driver(client, address, user=user, prefix=prefix)
        self.start()

    @property
    def pid(self) -> int:
        """The process's."""
        return self.driver.process.pid

    def run(self) -> None:
        """Take batches until killed or told to stop."""
        try:
            self._open()
            while not self._ending:
                due_s = time.monotonic() + self.period_s
                self._take()
                time.sleep(max(0.0, due_s - time.monotonic()))
        except (RuntimeError, OSError, ValueError) as error:  # the process has ended
            if not self._ending:
                self.stage.wrong("trainers that ended by themselves", f"{self.job}: {error}")
        except Refused as error:
            if not self._ending and (not self.forgiven or self.forgiven not in str(error)):
                self.stage.wrong("errors that a trainer saw", f"{self.job}: {error}")
        except Exception as error:
            if not self._ending:
                self.stage.wrong("trainers that hang", f"{self.job}: {error!r}")

    def _open(self) -> None:
        golden = self.golden
        self.driver.open(
            golden.pipeline,
            rank=self.rank,
            world_size=golden.world,
            batch_size=golden.batch,
            job=self.job,
        )
        if self.saved.state is not None:
            self.driver.call("load", state=self.saved.state)
            # As a training loop does: else a state of an epoch's end goes on with the next one.
            self.driver.call("set_epoch", epoch=self.saved.epoch)

    def _take(self) -> None:
        epoch, step = self.saved.epoch, self.saved.step
        expected = self.golden.of[self.rank]
        taken = self.driver.call("next")
        if taken["end"]:
            if step != len(expected[epoch]):
                self.stage.wrong("epochs cut short", f"{self.job}: {step} steps of epoch {epoch}")
            if epoch + 1 < EPOCHS:
                state = self.driver.state()
                self.saved = Saved(state, epoch + 1, 0)
            else:
                self.driver.call("set_epoch", epoch=0)
                self.saved = Saved(None, 0, 0)
            return
        batch = taken["batches"][0]
        got = (batch["epoch"], batch["step"])
        if got[0] != epoch or got[1] != step:
            self.stage.wrong("batches lost or repeated", f"{self.job}: {got} for {(epoch, step)}")
            raise ValueError("out of step")
        if self.golden.exact and digests([batch])[0] != expected[epoch][step]:
            self.stage.wrong("batches with wrong bytes", f"{self.job}: epoch {epoch}, step {step}")
        self.last_s = time.monotonic()
        self.batches += 1
        self.saved = Saved(self.driver.state(), epoch, step + 1)

    def kill(self) -> float:
        """Kill -9. Return when."""
        self._ending = True
        if self.driver.process.poll() is None:
            self.driver.process.kill()
        now = time.monotonic()
        self.driver.process.wait()
        self.died_s = time.time()
        self.join(HANG_S)
        with contextlib.suppress(OSError):
            self.driver.process.stdin.close()
        return now

    def again(self, client: str | None = None) -> Trainer:
        """Start its successor, which resumes from the last saved state."""
        return self.stage.trainer(
            client or self.client,
            self.address,
            self.golden,
            self.rank,
            self.job,
            self.saved,
            self.user,
            self.prefix,
        )

    def fd_kinds(self) -> Counter:
        """Count the process's open files by what they are."""
        return fd_kinds(self.pid)
