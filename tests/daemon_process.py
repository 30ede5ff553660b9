"""A real feedwaterd in a temporary folder, for tests in Python.

    with DaemonProcess(folder) as daemon: ...

The programs are those of $FEEDWATER_BUILD_DIR, by default build/release.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("FEEDWATER_BUILD_DIR", ROOT / "build/release"))
DAEMON = BUILD / "bin/feedwaterd"
OTHER_USER = 52001
NO_OTHER_USERS = "only root can become another user, and only where folders are open to that user"

_START_S = 60.0  # sanitizers and busy machines
_STOP_S = 60.0


@functools.cache
def other_users(*programs: Path) -> bool:
    """Return whether tests can act as OTHER_USER.

    Only root can become another user, and that user must be let through to the folder of temporary
    files and to `programs`: not below a root or a home that is closed to all others.
    """
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        through = all(os.access(path, os.X_OK) for path in (tempfile.gettempdir(), *programs))
        os._exit(0 if through else 1)
    return os.waitpid(child, 0)[1] == 0


def _sanitizers() -> str:
    """Return what the programs are built with: "address,undefined", "thread" or nothing."""
    cache = BUILD / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    found = re.search(r"^FEEDWATER_SANITIZE:\w+=(.*)$", text, re.M)
    return found.group(1) if found else ""


SANITIZERS = _sanitizers()


def dying_by_signals() -> dict[str, str]:
    """Return variables with which a program built with sanitizers dies of faults as any other."""
    options = "handle_segv=0:handle_abort=0"
    names = ("ASAN_OPTIONS", "TSAN_OPTIONS")
    return {name: ":".join(filter(None, [os.environ.get(name), options])) for name in names}


class DaemonProcess:
    """A daemon with its own runtime, state, pipeline and data folders below `folder`.

    Parameters
    ----------
    folder : path
        Short enough for a Unix socket below it.
    config : str
        Lines added to the configuration.
    """

    def __init__(self, folder: Path, config: str = "cpus: 2\nmemory: 1GiB\n") -> None:
        self.folder = Path(folder)
        self.address = str(self.folder / "run")
        self.data = self.folder / "data"
        self.pipelines = self.folder / "pipelines"
        self.log = self.folder / "daemon.log"
        for made in (self.data, self.pipelines):
            made.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "feedwater.yaml"
        self.config.write_text(
            f"version: 1\nruntime_dir: {self.address}\nstate_dir: {self.folder / 'state'}\n"
            f"pipelines: [{self.pipelines}]\nroots: {{data: {self.data}}}\nnuma_node: "
            f"none\n{config}"
        )
        self.process: subprocess.Popen | None = None
        self.command: list = [DAEMON]  # what --config is given to
        self.environment: dict[str, str] = {}  # more variables

    def add_pipeline(self, name: str, text: str) -> None:
        """Give the daemon a pipeline. It is known to whoever opens it from now on."""
        (self.pipelines / f"{name}.yaml").write_text(text)

    def start(self) -> None:
        """Start it and wait until it serves."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.folder / "notify.sock"
        path.unlink(missing_ok=True)
        notify.bind(str(path))
        notify.settimeout(0.2)
        environment = {**os.environ, **self.environment, "NOTIFY_SOCKET": str(path)}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "--config", self.config], stderr=log, stdout=log, env=environment
            )
        deadline = time.monotonic() + _START_S
        with notify:
            while True:
                try:
                    if b"READY=1" in notify.recv(4096):
                        return
                except socket.timeout:
                    pass
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"feedwaterd did not start:\n{self.tail()}")

    def tail(self, size: int = 4000) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def kill(self) -> None:
        """End it without a warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"feedwaterd did not stop:\n{self.tail()}") from None
        return self.process.returncode

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def alive(self) -> bool:
        """Tell whether it runs."""
        return self.process is not None and self.process.poll() is None

    def file_descriptors(self) -> Counter:
        """Count its open files by what they are, without those of the datasets, which it keeps."""
        kinds: Counter = Counter()
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{self.process.pid}/fd/{name}")
                if not target.startswith(str(self.data)):
                    kinds[target.partition(":[")[0]] += 1
        return kinds

    def settled_file_descriptors(self) -> Counter:
        """Count them once nothing that ends is left among them: the same for half a second."""
        kinds, since = self.file_descriptors(), time.monotonic()
        while time.monotonic() - since < 0.5:
            time.sleep(0.05)
            if (now := self.file_descriptors()) != kinds:
                kinds, since = now, time.monotonic()
        return kinds

    def resident_kib(self) -> int:
        """Return its resident memory."""
        return self._status_kib("VmRSS")

    def peak_kib(self) -> int:
        """Return the most resident memory that it has had, or since `forget_peak`."""
        return self._status_kib("VmHWM")

    def forget_peak(self) -> None:
        """Let `peak_kib` begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def _status_kib(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", status).group(1))

    def __enter__(self) -> DaemonProcess:
        self.start()
        return self

    def __exit__(self, *unused) -> None:
        if self.process is not None:
            try:
                self.stop()
            finally:
                shutil.rmtree(self.address, ignore_errors=True)
