"""One listed user attacks while another one trains: what every such scenario measures.

The daemon has `memory: 512MiB` in a control group of 1 GiB without swap. It and its decoders run on
one half of the CPUs, everybody else on the other half, and attackers that open jobs step back
behind the one who trains, so that what an attacker's own program burns is not taken for harm. The
fair share of the one who trains is the rate that it has beside an honest job of the attacker's
user, the same as its own, before and after the attacks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from daemon_process import BUILD, NO_OTHER_USERS, OTHER_USER, DaemonProcess, other_users
from driver import Driver, Refused

from . import HANG_S, Stage
from .leftovers import becomes

BUDGET_MIB = 512
GROUP_MIB = 1024
MOST_MIB = 1.1 * BUDGET_MIB
MARGIN_MIB = 32  # above what it was, and still given back
BACK_S = 5.0
LEAST_SHARE = 0.8
OPEN_S = 2.0
MOST_LOG_KIB_PER_S = 16
FAIR_S = {True: 5.0, False: 1.0}  # how long the fair share is taken, judging times or not
BATCH = 4
DRIVER = BUILD / "tools/conformance_driver"
# Where several users share a daemon, their shared memory is to be limited.
CONFIG = (
    f"cpus: 2\npin_cpus: false\nmemory: {BUDGET_MIB}MiB\nlimits: {{arena_bytes_per_uid: 128MiB}}\n"
)


def can_be_laid(stage: Stage) -> bool:
    """Tell whether there is another user here to attack; notes it where there is none."""
    if other_users(DRIVER):
        return True
    stage.settings.progress(f"{stage.name}: nothing done: {NO_OTHER_USERS}")
    stage.figures["skipped"] = NO_OTHER_USERS
    stage.check("another user to attack", True, "none here", "any")
    return False


class MemoryGroup:
    """A control group for a daemon, version 1 or 2, with a limit of memory and no swap."""

    V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

    def __init__(self, stage: Stage) -> None:
        self.folder: Path | None = None
        for parent, limit in ((self.V1, "memory.limit_in_bytes"), (self.V2, "memory.max")):
            with contextlib.suppress(OSError):
                folder = Path(tempfile.mkdtemp(prefix="feedwater-torture-", dir=parent))
                stage.leave(lambda folder=folder: becomes(lambda: _remove(folder)))
                if not (folder / limit).exists():
                    continue  # there is no such controller
                (folder / limit).write_text(str(GROUP_MIB << 20))
                for without_swap in ("memory.swappiness", "memory.swap.max"):
                    if (folder / without_swap).exists():
                        (folder / without_swap).write_text("0")
                self.folder = folder
                break
        if self.folder is None:
            stage.settings.progress("no control group of memory can be made here: VmHWM alone")

    def command(self) -> tuple[str, ...]:
        """Return the words before a program's command line that bring it in."""
        if self.folder is None:
            return ()
        enter = f'echo $$ >{shlex.quote(str(self.folder))}/cgroup.procs && exec "$0" "$@"'
        return ("/bin/sh", "-c", enter)

    def used_kib(self) -> int:
        """Return what its processes have, page cache not counted."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").open())
        return (int(stat["rss" if "rss" in stat else "anon"]) + int(stat["shmem"])) >> 10

    def peak_mib(self) -> int:
        """Return the most that it has had, page cache counted."""
        v1 = self.folder / "memory.max_usage_in_bytes"
        return int((v1 if v1.exists() else self.folder / "memory.peak").read_text()) >> 20

    def killed(self) -> int:
        """Return how many of its processes the kernel ended for want of memory."""
        v1 = self.folder / "memory.oom_control"
        events = (v1 if v1.exists() else self.folder / "memory.events").read_text()
        return int(dict(line.split() for line in events.splitlines()).get("oom_kill", 0))


def _remove(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # busy until its last process is gone
        folder.rmdir()
    return not folder.exists()


class Watch(threading.Thread):
    """Looks at a daemon's memory, and opens sessions as a trainer would, once a second.

    Parameters
    ----------
    stage : Stage
        Hears of opens that are refused.
    daemon : DaemonProcess
        Watched.
    group : MemoryGroup
        The daemon's.
    """

    def __init__(self, stage: Stage, daemon: DaemonProcess, group: MemoryGroup) -> None:
        super().__init__(daemon=True)
        self.stage, self.daemon, self.group = stage, daemon, group
        self._opening_s: float | None = None  # since when
        self.begin()
        self._over = threading.Event()
        self._driver = Driver("cpp", daemon.address)
        self._opener = threading.Thread(target=self._open, daemon=True)
        self.start()
        self._opener.start()

    def begin(self) -> None:
        """Forget what was seen so far."""
        self.daemon.forget_peak()
        self.since_s = time.monotonic()
        self.group_peak_kib = 0
        self.opens_s: list[float] = []
        self.log_kib = self.daemon.log.stat().st_size >> 10

    def used_kib(self) -> int:
        """Return what the daemon has, its decoders and its clients' memory included if possible."""
        return self.group.used_kib() if self.group.folder else self.daemon.resident_kib()

    def run(self) -> None:
        """Look."""
        while self.group.folder is not None and not self._over.wait(0.02):
            self.group_peak_kib = max(self.group_peak_kib, self.group.used_kib())

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError, OSError, ValueError):  # it has been ended
            while not self._over.wait(1.0):
                self._opening_s = began = time.monotonic()
                try:
                    self._driver.open("tiny", job="opener", rank=0, world_size=1)
                    self.opens_s.append(time.monotonic() - began)
                    self._driver.call("close")
                except Refused as error:
                    self.stage.wrong("opens refused", str(error))
                self._opening_s = None

    def figures(self) -> dict:
        """Return what was seen since `begin`."""
        log_kib = (self.daemon.log.stat().st_size >> 10) - self.log_kib
        since = self._opening_s
        opens_s = [*self.opens_s, *([time.monotonic() - since] if since is not None else [])]
        return {
            "daemon_peak_mib": self.daemon.peak_kib() >> 10,
            "group_peak_mib": self.group_peak_kib >> 10,
            "slowest_open_s": round(max(opens_s, default=0.0), 2),
            "opens": len(opens_s),
            "log_kib_per_s": round(log_kib / (time.monotonic() - self.since_s), 1),
        }

    def end(self) -> None:
        """Look no longer."""
        self._over.set()
        self._driver.process.kill()
        self.join()
        self._opener.join(HANG_S)

    def check(self, seen: dict[str, dict]) -> None:
        """Check the figures of some attacks."""
        check = self.stage.check
        for what, key, most, unit, timing in (
            ("the daemon's most resident memory", "daemon_peak_mib", MOST_MIB, "MiB", False),
            ("the most in the control group", "group_peak_mib", MOST_MIB, "MiB", False),
            ("the log grew by", "log_kib_per_s", MOST_LOG_KIB_PER_S, "KiB/s", False),
            ("the slowest open", "slowest_open_s", OPEN_S, "s", True),
        ):
            worst = max(seen, key=lambda name: seen[name][key])
            got = seen[worst][key]
            check(what, got <= most, f"{got} {unit} ({worst})", f"<= {most:.0f} {unit}", timing)
        if self.group.folder is None:
            return
        killed = self.group.killed()
        check("processes that the kernel ended for want of memory", killed == 0, killed, 0)
        self.stage.figures["group_peak_with_page_cache_mib"] = self.group.peak_mib()


class Siege:
    """A daemon, a user who trains, and a place for attacks.

    Parameters
    ----------
    stage : Stage
        The scenario's.
    config : str
        More lines of the daemon's configuration.
    """

    def __init__(self, stage: Stage, config: str = "") -> None:
        self.stage = stage
        self.seen: dict[str, dict] = {}
        self.group = MemoryGroup(stage)
        self.daemon = stage.daemon(CONFIG + config, prefix=self.group.command())
        self.pid = self.daemon.process.pid
        self._part()
        self.golden = stage.golden(self.daemon, world=1, batch=BATCH)
        self.victim = stage.trainer("cpp", self.daemon.address, self.golden, 0, "victim")
        becomes(lambda: self.victim.batches > 0, HANG_S)
        self.watch = Watch(stage, self.daemon, self.group)
        stage.leave(self.watch.end)
        self._fair = [self._fair_rate()]

    def _part(self) -> None:
        """Give the daemon one half of the CPUs, and all who are started from here the other."""
        cpus = sorted(os.sched_getaffinity(0))
        half = len(cpus) // 2
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cpus[:half] or cpus)
        os.sched_setaffinity(0, cpus[half:])
        self._leave_half = lambda: os.sched_setaffinity(0, cpus)
        self.stage.leave(self._leave_half)

    def _fair_rate(self) -> float:
        honest = self.stage.trainer(
            "cpp", self.daemon.address, self.golden, 0, "honest", user=OTHER_USER
        )
        becomes(lambda: honest.batches > 0, HANG_S)
        began, batches = time.monotonic(), self.victim.batches
        time.sleep(FAIR_S[self.stage.settings.judge_times])
        rate = (self.victim.batches - batches) / (time.monotonic() - began)
        honest.kill()
        return rate

    @contextlib.contextmanager
    def attack(self, name: str) -> Iterator[Counter]:
        """Measure what is done within. Its processes are to be gone at its end.

        Yields a place for what the attackers count.
        """
        time.sleep(0.5)
        before = self.watch.used_kib()
        self.watch.begin()
        began, batches = time.monotonic(), self.victim.batches
        counts: Counter = Counter()
        yield counts
        took = time.monotonic() - began
        rate = (self.victim.batches - batches) / took
        ended = time.monotonic()
        most = before + (MARGIN_MIB << 10)
        back = becomes(lambda: not self.daemon.alive() or self.watch.used_kib() <= most, 4 * BACK_S)
        if not self.daemon.alive():
            status = self.daemon.process.returncode
            raise RuntimeError(f"{name}: feedwaterd ended with {status}: {self.daemon.tail(500)}")
        self.seen[name] = {
            **self.watch.figures(),
            "seconds": round(took, 1),
            "batches_per_s": round(rate, 2),
            "given_back_s": round(time.monotonic() - ended, 2) if back else "never",
            "left_mib": (self.watch.used_kib() - before) >> 10,
            **counts,
        }
        self.stage.settings.progress(f"{name}: {self.seen[name]}")

    def jobs(self, seconds: float, pipelines: list[str], counts: Counter) -> None:
        """Have the attacker open these again and again, each in a process of its own, and take
        whatever comes; at last they are killed.
        """
        numbers = itertools.count()

        def go_on(driver: Driver, pipeline: str) -> None:
            with contextlib.suppress(RuntimeError, OSError, ValueError):  # it has been killed
                while True:
                    try:
                        job = f"attack-{next(numbers)}"
                        driver.open(pipeline, job=job, rank=0, world_size=1, reconnect_timeout=1)
                        counts["jobs_opened"] += 1
                        while True:
                            counts["batches_taken"] += len(driver.batches(count=1))
                    except Refused as error:
                        counts["errors"] += 1
                        self.stage.figures.setdefault("an_error", str(error)[:400])
                        time.sleep(0.02)

        drivers = [
            Driver("cpp", self.daemon.address, user=OTHER_USER, prefix=("nice", "-n", "19"))
            for _ in pipelines
        ]
        threads = [
            threading.Thread(target=go_on, args=pair, daemon=True)
            for pair in zip(drivers, pipelines)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        for driver in drivers:
            driver.kill()
        for thread in threads:
            thread.join(HANG_S)

    def pipeline_file(self, name: str, ops: str, outputs: str = "[image]", more: str = "") -> str:
        """Write a pipeline over `images` that the attacker sends; return its path."""
        path = self.stage.folder / f"{name}.yaml"
        path.write_text(
            "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
            f"graph:\n{ops}batch: {{size: 1}}\noutputs: {outputs}\ncache: {{kind: none}}\n{more}"
        )
        return str(path)

    def end(self) -> None:
        """Check everything, and end the daemon."""
        stage = self.stage
        self._fair.append(self._fair_rate())
        fair = statistics.mean(self._fair)
        self.watch.end()
        batches = self.victim.batches
        self.victim.kill()
        for seen in self.seen.values():
            seen["of_fair_share"] = round(seen["batches_per_s"] / fair, 2) if fair else 0.0
        stage.figures.setdefault("attacks", {}).update(self.seen)
        stage.figures["fair_batches_per_s"] = [round(rate, 2) for rate in self._fair]
        same = self.daemon.alive() and self.daemon.process.pid == self.pid
        stage.check("the daemon lives", same, same, True)
        stage.check("batches of the one who trains", batches > 0, batches, "> 0")
        self.watch.check(self.seen)
        late = {
            name: seen["given_back_s"]
            for name, seen in self.seen.items()
            if seen["given_back_s"] == "never" or seen["given_back_s"] > BACK_S
        }
        stage.check("memory given back late", not late, late or "none", f"<= {BACK_S:.0f} s")
        worst = min(self.seen, key=lambda name: self.seen[name]["of_fair_share"])
        share = self.seen[worst]["of_fair_share"]
        stage.check("the rate of the one who trains, of its fair share", share >= LEAST_SHARE,
                    f"{share} ({worst})", f">= {LEAST_SHARE}", timing=True)  # fmt: skip
        first, last = self._fair
        stage.check("the fair share after the attacks, of that before", last >= LEAST_SHARE * first,
                    f"{last / max(first, 1e-9):.2f}", f">= {LEAST_SHARE}", timing=True)  # fmt: skip
        self._leave_half()
        if self.daemon.stop() != 0:
            stage.wrong("daemons that did not stop well", self.daemon.tail(500))
        stage.none_wrong(
            "batches with wrong bytes", "batches lost or repeated", "errors that a trainer saw",
            "trainers that ended by themselves", "trainers that hang", "opens refused",
            "daemons that did not stop well",
        )  # fmt: skip
