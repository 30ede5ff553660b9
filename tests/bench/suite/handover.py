"""Publish to seen by a waiting trainer, bytes copied on the way, reclaim after kill -9.

The trainer is another process. Latencies are taken with nothing to decode, for batches of different
sizes, by turns: no byte of a batch moves, so its size must not show. That no byte is copied is
shown by the pages, too: those that the trainer maps are those that the daemon writes. Reclaim under
load is looked at from outside, while workers decode on every CPU for another trainer, and while two
other programs want each CPU besides: from the victim's death, as a pidfd tells it, until the daemon
maps nothing of its arena. Who looks has a real-time priority, or would itself be late. Until
somebody knows of it who asks the daemon's status takes longer: that is a call, by an ordinary
process.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator

import feedwater
from feedwater.control import Control, messages

from . import BUILD, Context, Figure, number

BATCHES = (1, 64, 256)
_ARENA = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +/memfd:feedwater-arena", re.M)
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
    with context.daemon(config) as daemon:
        with feedwater.Loader(str(pipeline), address=daemon.address, output="numpy") as loader:
            batch = next(iter(loader))
            batch[0].sum()  # so that every page of it is mapped here
            first = batch[0].__array_interface__["data"][0] // _PAGE * _PAGE
            length = batch[0].nbytes // _PAGE * _PAGE
            mine, size = arena(os.getpid())
            theirs, _ = arena(daemon.pid)
            if not mine <= first <= mine + size - length:
                return 0.0  # the trainer holds a copy
            pages = length // _PAGE
            here = frames(os.getpid(), first, pages)
            there = frames(daemon.pid, theirs + first - mine, pages)
    seen = [(a, b) for a, b in zip(here, there) if a]
    if not seen:
        raise PermissionError("page numbers are only shown to root")
    return sum(a == b for a, b in seen) / len(seen)


def arenas(pid: int) -> set[str]:
    """Return the inodes of the arenas that a process maps."""
    with open(f"/proc/{pid}/maps") as maps:
        return set(_ARENA.findall(maps.read()))


@contextlib.contextmanager
def in_real_time() -> Iterator[None]:
    """Have a CPU whenever this thread wants one; root may."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def wait_for(condition: Callable[[], bool], timeout: float = 30) -> float:
    """Wait until something holds, and return when that was seen."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() > start + timeout:
            raise TimeoutError(f"not after {timeout} s: {condition}")
        time.sleep(0.0002)
    return time.monotonic()


def reclaim_under_load(context: Context, hogs: int) -> tuple[list[float], list[float]]:
    """Return milliseconds from a trainer's death to its memory's return, and to the status's.

    `hogs` processes want each CPU beside the workers.
    """
    pipeline = context.train_pipeline("reclaim")
    cpus = os.cpu_count() or 1
    config = context.config(list(range(cpus)))
    chance = random.Random(1)
    unmapped, ended = [], []

    def trainer(address: str) -> subprocess.Popen:
        return subprocess.Popen(
            [BUILD / "bin/feedwater", "--address", address, "bench", pipeline.stem, "--seconds",
             "3600"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(victim: subprocess.Popen) -> float:
        """Return when it was dead."""
        death = os.pidfd_open(victim.pid)
        victim.kill()
        select.select([death], [], [])
        os.close(death)
        return time.monotonic()

    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(context.daemon(config))
        control = stack.enter_context(Control(daemon.address))

        def jobs(count: int) -> bool:
            status = control.call("GetStatus", messages.GetStatusRequest(), 10)
            return len(status.jobs) == count

        def start(process: subprocess.Popen) -> subprocess.Popen:
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        start(trainer(daemon.address))
        wait_for(lambda: len(arenas(daemon.pid)) == 1)
        for _ in range(hogs * cpus):
            start(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
        for _ in range(5 if context.quick else 100):
            victim = start(trainer(daemon.address))
            wait_for(lambda: jobs(2) and len(arenas(daemon.pid)) == 2)
            time.sleep(chance.uniform(0.05, 0.3))
            with in_real_time():
                dead = kill(victim)
                unmapped.append(1000 * (wait_for(lambda: len(arenas(daemon.pid)) == 1) - dead))
            ended.append(1000 * (wait_for(lambda: jobs(1)) - dead))
            victim.wait()
    return unmapped, ended


def run(context: Context) -> list[Figure]:
    """Measure."""
    seen: dict[int, list[dict]] = {batch: [] for batch in BATCHES}
    idle: list[float] = []
    for _ in range(context.rounds):
        for batch in BATCHES:
            done = context.tool("transport_bench", 300 if context.quick else 1000, batch)
            seen[batch].append(done)
            idle.append(done["reclaimed"]["p99"] / 1000)
    figures = []
    for quantile, must, aim in (("p50", 50, 15), ("p99", 500, 100)):
        for done in seen.values():
            size = number(done[0]["batch_bytes"] / 1e6, "MB")
            figures.append(
                Figure.of(f"publish → seen, {quantile}", [one["seen"][quantile] for one in done],
                          must=must, aim=aim, unit="µs", better="less", column=f"{size} batches")
            )  # fmt: skip
    share = None
    try:
        share = shared_pages(context)
    except PermissionError as error:
        context.absent["pages that both map"] = str(error)
    goals = {"must": 50, "aim": 5, "unit": "ms", "better": "less"}

    def p99(values: list[float]) -> float:
        return statistics.quantiles(values, n=100, method="inclusive")[-1]

    figures.append(Figure.of("reclaim after kill -9, p99, nothing to decode", idle, **goals))
    for hogs, load in ((0, "workers decode on every CPU"), (2, "and two programs more on each")):
        unmapped, ended = reclaim_under_load(context, hogs)
        figures += [
            Figure(f"death → memory given back, p99, {load}", p99(unmapped), rounds=unmapped,
                   **goals),
            Figure(f"death → gone from the status, p99, {load}", p99(ended), rounds=ended,
                   unit="ms", better="less"),
        ]  # fmt: skip
    if share is not None:
        figures.append(Figure("share of a batch's pages that both map: 1 is no copy", share, 1, 1))
    return figures
