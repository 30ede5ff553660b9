"""A user of private daemons, for tests: runtime and state folders of their own, a dataset, and
programs that train from it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import DAEMON
from pictures import write_folder

from feedwater import DaemonLost
from feedwater.control import Control, messages

PATIENCE_S = 60.0  # of a busy machine

PIPELINE = """version: 1
dataset: {{format: image_folder, root: {root}, path: pictures}}
sampler: {{shuffle: full, seed: 9}}
graph:
  - decode: {{in: data, out: image}}
  - random_resized_crop: {{in: image, size: [16, 16]}}
batch: {{size: 4}}
outputs: [image, sample_id]
"""

# What each program begins with.
BEGIN = """
import hashlib, json, os, signal, sys, time
import feedwater
from feedwater import which_daemon

PIPELINE = {pipeline!r}
# Whatever else this machine runs.
which_daemon.candidates = lambda node: [f"{{os.environ['XDG_RUNTIME_DIR']}}/feedwater/0"]

def say(value):
    print(json.dumps(value), flush=True)

def digest(batch):
    image, ids = batch
    return [hashlib.sha256(image.tobytes()).hexdigest()[:12], ids.tolist()]

def open_loader(**options):
    return feedwater.Loader(PIPELINE, output="numpy", **options)
"""

STARTED = "started a private feedwaterd"  # what a program says
AGAIN = "started again"

# Parts of programs.
TRAIN = """
loader = open_loader()
batches = [digest(batch) for batch in loader]
say([loader.address, batches])
"""
OPEN = """
loader = open_loader()
say(loader.address)
"""
WAIT = """
sys.stdin.readline()
"""


class Program:
    """A program that runs."""

    def __init__(self, process: subprocess.Popen, errors: Path) -> None:
        self.process = process
        self._errors = errors

    def line(self) -> str:
        """Return its next line."""
        text = self.process.stdout.readline()
        assert text, f"the program ended:\n{self.told()}"
        return text.strip()

    def go_on(self, text: str = "") -> None:
        """Let a program that reads a line go on."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Wait until it has ended well, and return the rest of what it printed."""
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, self.told()
        return rest

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)

    def told(self) -> str:
        """Return what it wrote on stderr."""
        return self._errors.read_text()


class Home:
    """See the module.

    Parameters
    ----------
    folder : path
        Short enough for a Unix socket below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "r"
        self.state = folder / "s"
        self.data = folder / "data"
        for made in (folder, self.runtime, self.state, self.data):
            made.mkdir()
        write_folder(self.data / "pictures", 40)
        self.pipeline = folder / "train.yaml"
        self.pipeline.write_text(PIPELINE.format(root=self.data))
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_STATE_HOME": str(self.state),
        }
        self._programs: list[Program] = []

    def start(self, text: str, wrapper: tuple[str, ...] = (), **environment: str) -> Program:
        """Start a program, in a process group of its own."""
        errors = self.folder / f"errors{len(self._programs)}"
        with open(errors, "wb") as file:
            process = subprocess.Popen(
                [*wrapper, sys.executable, "-c", BEGIN.format(pipeline=str(self.pipeline)) + text],
                env={**self.environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self._programs.append(Program(process, errors))
        return self._programs[-1]

    def run(self, text: str, **environment: str) -> tuple[str, str]:
        """Run a program to its end; return its output and what it said on stderr."""
        program = self.start(text, **environment)
        return program.end(), program.told()

    def daemons(self) -> list[int]:
        """Return the daemons that run with files of this user."""
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit():
                    command = (process / "cmdline").read_bytes().split(b"\0")
                    is_here = any(str(self.folder).encode() in part for part in command)
                    if is_here and command[0].endswith(b"/feedwaterd"):
                        found.append(int(process.name))
        return found

    def files(self) -> list[str]:
        """Return what is left below the runtime folder."""
        return sorted(str(path) for path in (self.runtime / "feedwater").rglob("*"))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (what, self.daemons(), self.files(), self.log())
            time.sleep(0.01)

    def wait_until_nothing_is_left(self) -> None:
        """Wait until no daemon runs and none of its files is there but its state."""
        self.wait_for(lambda: not self.daemons() and not self.files(), "nothing is left")

    def log(self) -> str:
        """Return the daemons' logs."""
        return "".join(path.read_text() for path in self.state.rglob("feedwaterd.log"))

    def end(self) -> None:
        """End whatever runs."""
        for program in self._programs:
            if program.process.poll() is None:
                program.kill()
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def jobs_at(address: str) -> list[str]:
    """Return the jobs of a daemon; none where there is none."""
    try:
        with Control(address) as control:
            return [
                job.job for job in control.call("GetStatus", messages.GetStatusRequest(), 20).jobs
            ]
    except DaemonLost:
        return []


def rank(number: int, size: int = 2) -> dict[str, str]:
    """Return torchrun's environment of a rank."""
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
    }


@pytest.fixture(name="home")
def home_fixture(folder):
    """A user; to be imported by the tests that want one."""
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built (FEEDWATER_BUILD_DIR says where)")
    home = Home(folder / "h")
    home.environment["FEEDWATERD"] = str(DAEMON)
    yield home
    home.end()
