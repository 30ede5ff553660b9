"""Private daemons started and ended in every way that a program has: nothing is left of them.

Each round is a program of its own; every 50th is twenty programs at once. Some read a folder of
pictures, some a dataset of their own, whose processes must be gone as well. After a kill of the
daemon the program goes on with another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from daemon_process import DAEMON

from . import ROOT, Stage
from .leftovers import becomes

sys.path.insert(0, str(ROOT / "tests/integration"))

from private_home import WAIT, Home, Program

COUNTS = {"ci": 12, "release": 1000}
AT_ONCE, AT_ONCE_EVERY = {"ci": 5, "release": 20}, 50
GONE_S = 2.0  # in which nothing is left
PATIENCE_S = 60.0

PICTURES = "loader = open_loader()\n"
OWN = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
import own_datasets as own
loader = feedwater.Loader.from_dataset(own.{{}}, batch_size=8, workers=2, output="numpy", {{}})
"""
BEGINNINGS = {
    "pictures": PICTURES,
    "own": OWN.format("Numbers(400)", ""),
    "iterable": OWN.format("Stream(400)", "length=400"),
}
ENDINGS = {
    "exit": "",
    "close": "loader.close()\n",
    "dropped": "batches = None; del loader\n",
    "exception": "raise RuntimeError('an exception')\n",
    "abrupt exit": "os._exit(0)\n",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)\n",
    "terminate": "os.kill(os.getpid(), signal.SIGTERM)\n",
    # Who starts this in the background has it ignored.
    "interrupt": (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.killpg(0, signal.SIGINT); time.sleep(60)\n"
    ),
    "a killed daemon": "os.kill(daemon, signal.SIGKILL)\nfor _ in range(2): list(loader)\n",
    "a forked child": "os.fork() or os._exit(0)\n",
}
# The first batch is taken, so that all processes are there.
OPENED = """
from feedwater import private_folder
batches = iter(loader)
next(batches)
daemon = private_folder.pid_of(loader.address)
say(loader.address)
"""


def processes_of(home: Home) -> list[str]:
    """Return the processes with the home's environment or files: programs, daemons, workers."""
    mark = str(home.folder).encode()
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and int(process.name) != os.getpid():
                texts = [(process / name).read_bytes() for name in ("environ", "cmdline")]
                if any(mark in text for text in texts):
                    found.append(f"{process.name} {texts[1][:200].decode(errors='replace')}")
    return found


class Rounds:
    """Programs that come and go in one home."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.home = Home(stage.folder / "h")
        self.home.environment["FEEDWATERD"] = str(DAEMON)
        self.temporary = stage.folder / "tmp"
        self.temporary.mkdir()
        self.home.environment["TMPDIR"] = str(self.temporary)
        stage.leave(self.home.end)
        self.daemons = 0
        self.gone: list[float] = []  # seconds from the end of the last program to nothing

    def run(self, programs: int) -> None:
        """Start programs at once, end each in a way of its own, and look."""
        started: list[tuple[str, Program]] = []
        for _ in range(programs):
            what, ending = self.stage.rng.choice([*BEGINNINGS]), self.stage.rng.choice([*ENDINGS])
            text = BEGINNINGS[what] + OPENED + WAIT + ENDINGS[ending]
            started.append((f"{what}, {ending}", self.home.start(text)))
        for name, program in started:
            line = program.process.stdout.readline()
            if not line:
                self.stage.wrong("programs that got no batch", f"{name}: {program.told()[-2000:]}")
                continue
            assert json.loads(line).startswith(str(self.home.runtime))
            self.daemons += 1
        for _, program in started:
            with contextlib.suppress(OSError):
                program.go_on()
        for name, program in started:
            try:
                program.process.wait(PATIENCE_S)
            except Exception:
                self.stage.wrong("programs that hung", name)
                program.kill()
        ended = time.monotonic()
        names = "; ".join(name for name, _ in started)
        if not becomes(lambda: not processes_of(self.home), 10):
            self.stage.wrong("processes that are left", f"{names}: {processes_of(self.home)}")
        if not becomes(lambda: not self.home.files(), 10):
            self.stage.wrong("files that are left", f"{names}: {self.home.files()}")
        self.gone.append(time.monotonic() - ended)
        self._forget(started)

    def _forget(self, started: list[tuple[str, Program]]) -> None:
        for _, program in started:
            for stream in (program.process.stdin, program.process.stdout):
                with contextlib.suppress(OSError):  # the rest of what nobody reads
                    stream.close()
            self.home._programs.remove(program)
        for path in self.home.folder.glob("errors*"):
            path.unlink()

    def state(self) -> tuple[int, int]:
        """Return how many files the daemons' state folders have, and their bytes."""
        files = [path for path in self.home.state.rglob("*") if path.is_file()]
        return len(files), sum(path.stat().st_size for path in files)


def shared_memory() -> set[str]:
    """Return this user's names in /dev/shm that may be of this package or of multiprocessing's."""
    found = set()
    for path in Path("/dev/shm").glob("*"):
        with contextlib.suppress(OSError):
            if path.name.startswith(("feedwater", "psm_", "sem.", "mp-")) and (
                path.lstat().st_uid == os.getuid()
            ):
                found.add(path.name)
    return found


def run(stage: Stage) -> None:
    """Do it."""
    rounds = Rounds(stage)
    at_once = AT_ONCE["release" if stage.settings.everything else "ci"]
    descriptors, before = len(os.listdir("/proc/self/fd")), shared_memory()
    rounds.run(at_once)  # as many state folders as there will be
    files, size = rounds.state()
    for number in stage.rounds():
        rounds.run(at_once if (number + 1) % AT_ONCE_EVERY == 0 else 1)
    stage.none_wrong(
        "programs that got no batch",
        "programs that hung",
        "processes that are left",
        "files that are left",
    )
    stage.figures["daemons"] = rounds.daemons
    stage.times("end of the last program to nothing left", rounds.gone, 0.99, GONE_S)
    left = sorted(str(path) for path in rounds.temporary.iterdir())
    stage.check("files in the temporary folder", not left, left[:5] or 0, 0)
    new = shared_memory() - before
    stage.check("new files in /dev/shm", not new, sorted(new)[:5] or 0, 0)
    now = len(os.listdir("/proc/self/fd"))
    stage.check("descriptors of the one who starts them", now <= descriptors, now, descriptors)
    more, larger = rounds.state()
    stage.figures["state"] = {"files": [files, more], "bytes": [size, larger]}
    stage.check(
        "files of state, as after those at once in the beginning", more <= 2 * files, more, files
    )
