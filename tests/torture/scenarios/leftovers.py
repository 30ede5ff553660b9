"""What a daemon and a process hold, and whether anything of it is left afterwards."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon_process import DaemonProcess

    from . import Stage


def fd_kinds(pid: int) -> Counter:
    """Count a process's open files by what they are."""
    kinds: Counter = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            kinds[os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")[0]] += 1
    return kinds


def settled(read: Callable[[], object], seconds: float = 10.0, quiet: float = 0.5) -> object:
    """Return what `read` gives once it has not changed for a while."""
    deadline = time.monotonic() + seconds
    value, since = read(), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < quiet:
        time.sleep(0.02)
        now = read()
        if now != value:
            value, since = now, time.monotonic()
    return value


def becomes(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for something; tell whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


class DaemonStatus:
    """Asks a daemon for its status again and again over one connection."""

    def __init__(self, address: str) -> None:
        from feedwater.control import Control, messages

        self._request = messages.GetStatusRequest
        self._control = Control(address)

    def __call__(self):
        """Return the daemon's status."""
        return self._control.call("GetStatus", self._request(), timeout=20)

    def has_process(self, pid: int) -> bool:
        """Tell whether any rank belongs to this process."""
        return any(rank.pid == pid for job in self().jobs for rank in job.ranks)

    def close(self) -> None:
        """Hang up."""
        self._control.__exit__()


class Leftovers:
    """Compares a daemon's descriptors and memory with what they were."""

    def __init__(self, stage: Stage, daemon: DaemonProcess, margin_mib: int = 16) -> None:
        self.stage, self.daemon, self.margin_kib = stage, daemon, margin_mib * 1024
        self.descriptors = settled(daemon.file_descriptors, quiet=1.0)
        self.shm = self._shm()
        self.resident_kib = daemon.resident_kib()

    @staticmethod
    def _shm() -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return {name for name in os.listdir("/dev/shm") if "feedwater" in name}
        return set()

    def memory_starts_here(self) -> None:
        """Take the memory of this moment as the base: the first rounds warm up."""
        self.resident_kib = self.daemon.resident_kib()

    def check(self) -> None:
        """Check that nothing has been left."""
        before = self.descriptors
        becomes(lambda: self.daemon.file_descriptors() == before)
        after = self.daemon.file_descriptors()
        difference = {k: after[k] - before[k] for k in {*after, *before} if after[k] != before[k]}
        self.stage.check(
            "the daemon's descriptors and memfds, against before",
            not difference,
            difference or "equal",
            "equal",
        )
        grown = self.daemon.resident_kib() - self.resident_kib
        self.stage.check(
            "the daemon's resident memory grew by",
            grown <= self.margin_kib,
            f"{grown / 1024:.1f} MiB",
            f"<= {self.margin_kib // 1024} MiB",
        )
        self.stage.check("new files in /dev/shm", self._shm() <= self.shm, len(self._shm()), 0)
