"""What the daemon adds around the kernels, and what a second worker brings.

The elapsed time of a worker that is never idle, less its waits for the disk, ÷ its time inside the
graph (decoding, resampling, writing the slot): reading, parsing, scheduling and publishing are the
rest. The second worker is measured on photos in the page cache and on coefficients in memory, and
so is what samples cost that processes of their own make (`isolation: process`).
"""

from __future__ import annotations

import os

from . import COEFFICIENTS, NO_CACHE, Context, Figure


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []
    last = sorted(os.sched_getaffinity(0))[-2:]  # the first one has the most interrupts
    for name, cache in (("JPEGs", NO_CACHE), ("coefficients in memory", COEFFICIENTS)):
        pipeline = context.train_pipeline("overhead", cache)
        one, two = context.config(last[:1]), context.config(last)
        alone = context.config(last[:1], more="isolation: process\n")
        overhead, gain, isolated, isolated_cpu = [], [], [], []
        for _ in range(context.rounds):
            single = context.bench(pipeline, one)
            shares = single["stages"]
            waits = single["graph_s"] * shares["read_wait"] / shares["graph"]
            overhead.append((single["seconds"] - waits) / single["graph_s"])
            gain.append(context.bench(pipeline, two)["samples_per_s"] / single["samples_per_s"])
            other = context.bench(pipeline, alone)
            isolated.append(other["samples_per_s"] / single["samples_per_s"])
            isolated_cpu.append(other["cpu_s_per_1000"] / single["cpu_s_per_1000"])
        figures += [
            Figure.of(
                f"time of a busy worker ÷ its time in the graph, {name}", overhead,
                must=1.10, aim=1.03, better="less",
            ),
            Figure.of(f"2 workers ÷ 1 worker, {name}", gain, must=1.8, aim=1.95),
            Figure.of(f"images/s, isolation: process ÷ none, {name}", isolated),
            Figure.of(
                f"CPU an image, isolation: process ÷ none, {name}", isolated_cpu, better="less"
            ),
        ]  # fmt: skip
    return figures
