"""What this process may use of its machine: CPUs and memory, as affinity and control groups say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = "/sys/fs/cgroup"


def _groups(controller: str, proc: str = "/proc/self/cgroup") -> Iterator[Path]:
    """Return the folders of this process's control group and of those above it."""
    try:
        lines = Path(proc).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = Path(_CGROUPS, controllers) if controllers else Path(_CGROUPS)
        group = base / path.lstrip("/")
        yield group
        yield from (parent for parent in group.parents if parent.is_relative_to(base))


def _numbers(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):  # not there, or "max"
        return []


def cpu_list(text: str) -> set[int]:
    """Return the CPUs of a list such as ``0-3,8``."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def usable_cpus() -> int:
    """Return how many CPUs this process may use: those of its affinity mask, within the quota."""
    count = len(os.sched_getaffinity(0))
    for group in _groups("cpu"):
        quota = _numbers(group / "cpu.max")
        quota = quota or _numbers(group / "cpu.cfs_quota_us") + _numbers(
            group / "cpu.cfs_period_us"
        )
        if len(quota) == 2 and quota[0] > 0 and quota[1] > 0:
            count = min(count, max(1, quota[0] // quota[1]))
    return count


def usable_memory() -> int:
    """Return how many bytes the machine has, or the control group."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            size = min([size, *_numbers(group / name)])
    return size
