"""Publish to seen by a waiting trainer, bytes copied on the way, reclaim after kill -9.

The trainer is another process; nothing is decoded, so only the hand-over is measured. That no byte
is copied is shown by the pages: those that the trainer maps are those that the daemon writes.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess

import feedwater

from . import BUILD, Context, Figure

_LINE = re.compile(r"^(.*?) +p50 +([\d.]+) us +p99 +([\d.]+) us", re.M)
_PAGE = os.sysconf("SC_PAGE_SIZE")


def frames(pid: int, start: int, pages: int) -> list[int]:
    """Return the numbers of the physical pages behind a mapping; root may see them."""
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        pagemap.seek(start // _PAGE * 8)
        entries = struct.unpack(f"{pages}Q", pagemap.read(8 * pages))
    return [entry & ((1 << 55) - 1) for entry in entries]


def arena(pid: int) -> tuple[int, int]:
    """Return start and length of the largest shared memory file that a process maps."""
    best = (0, 0)
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "memfd:" in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                best = max(best, (end - start, start))
    return best[1], best[0]


def shared_pages(context: Context) -> float:
    """Return the share of a batch's pages that the daemon and the trainer have in common."""
    pipeline = context.train_pipeline("shared")
    config = context.config([1])
    with context.daemon(config) as address:
        with feedwater.Loader(str(pipeline), address=address, output="numpy") as loader:
            batch = next(iter(loader))
            batch[0].sum()  # so that every page of it is mapped here
            first = batch[0].__array_interface__["data"][0] // _PAGE * _PAGE
            length = batch[0].nbytes // _PAGE * _PAGE
            pid = int(subprocess.run(["pgrep", "-f", str(config)], capture_output=True, text=True,
                                     check=True).stdout.split()[0])  # fmt: skip
            mine, size = arena(os.getpid())
            theirs, _ = arena(pid)
            if not mine <= first <= mine + size - length:
                return 0.0  # the trainer holds a copy
            pages = length // _PAGE
            here = frames(os.getpid(), first, pages)
            there = frames(pid, theirs + first - mine, pages)
    seen = [(a, b) for a, b in zip(here, there) if a]
    if not seen:
        raise PermissionError("page numbers are only shown to root")
    return sum(a == b for a, b in seen) / len(seen)


def run(context: Context) -> list[Figure]:
    """Measure."""
    done = subprocess.run(
        [BUILD / "tools/transport_bench", "500" if context.quick else "4000"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    times = {m[1].strip(): (float(m[2]), float(m[3])) for m in _LINE.finditer(done.stdout)}
    seen, reclaim = times["publish -> seen"], times["reclaim"]
    figures = [
        Figure("publish → seen, p50", seen[0], 50, 15, "µs", "less"),
        Figure("publish → seen, p99", seen[1], 500, 100, "µs", "less"),
        Figure("reclaim after kill -9, p99", reclaim[1] / 1000, 50, 5, "ms", "less"),
    ]
    try:
        share = shared_pages(context)
        figures.append(Figure("share of a batch's pages that both map: 1 is no copy", share, 1, 1))
    except PermissionError as error:
        print(f"pages not compared: {error}")
    return figures
