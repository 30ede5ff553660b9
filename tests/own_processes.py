"""The processes below one, for tests of what programs leave behind."""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE_S = 60.0  # of a busy machine


def wait_for(condition, what: str = "it is so"):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def processes_of(pid: int) -> list[int]:
    """Return the processes below one that are alive, but for daemons, which other tests may share,
    and helpers of Python's own.
    """
    below = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                is_daemon = command.partition(b"\0")[0].endswith(b"/feedwaterd")
                if is_daemon or b"multiprocessing.resource_tracker" in command:
                    continue
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        inner = below.get(left.pop(), [])
        found += inner
        left += inner
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
