"""What every peer's script does alike: arguments, pinning, and timing epochs.

    python SCRIPT.py FOLDER WORKERS CPUS

Prints one line of JSON: images a second to the consumer, and CPU seconds for a thousand images of
this process, its children, and what `also` names. The first epoch is told by itself; then epochs
follow until there were two and eight seconds ($FEEDWATER_BENCH_SECONDS), and all of those together
are what is measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

BATCH = 64
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
LEAST_EPOCHS, LEAST_SECONDS = 2, float(os.environ.get("FEEDWATER_BENCH_SECONDS", 8))
_TICKS = os.sysconf("SC_CLK_TCK")


def arguments() -> tuple[Path, int]:
    """Pin this process, and return the folder of images and the number of workers."""
    folder, workers, cpus = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    ranges = [one.partition("-") for one in cpus.split(",")]  # as taskset takes them: 1-1,2-3
    os.sched_setaffinity(0, {cpu for a, _, b in ranges for cpu in range(int(a), int(b or a) + 1)})
    return folder, workers


def files(folder: Path) -> list[str]:
    """Return the images in torchvision's order."""
    return sorted(str(path) for path in folder.glob("*/*"))


def cpu_seconds(roots: set[int]) -> float:
    """Return the CPU time so far of processes and all their living descendants."""
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        pid = int(entry.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))  # its own, and of children that have ended

    def counts(pid: int) -> bool:
        while pid not in roots and pid in parents:
            pid = parents[pid]
        return pid in roots

    return sum(spent for pid, spent in ticks.items() if counts(pid)) / _TICKS


def measure(epoch: Callable[[], Iterable[int]], also: int | None = None) -> None:
    """Run epochs; `epoch()` gives the size of each batch as it is received."""
    roots = {os.getpid()} | ({also} if also else set())

    def run(least_epochs: int, least_seconds: float) -> dict[str, float]:
        start, cpu, images, epochs = time.monotonic(), cpu_seconds(roots), 0, 0
        while epochs < least_epochs or time.monotonic() - start < least_seconds:
            images += sum(epoch())
            epochs += 1
        wall = time.monotonic() - start
        return {
            "images": images,
            "images_per_s": images / wall,
            "cpu_s_per_1000": 1000 * (cpu_seconds(roots) - cpu) / images,
        }

    first = run(1, 0)
    print(json.dumps({**run(LEAST_EPOCHS, LEAST_SECONDS), "first": first}), flush=True)
