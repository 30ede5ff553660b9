"""What the daemon adds around the kernels, and what a second worker brings.

The elapsed time of a worker that is never idle, less its waits for the disk, ÷ its time inside the
graph (decoding, resampling, writing the slot): reading, parsing, scheduling and publishing are the
rest. The second worker is measured on photos in the page cache and on coefficients in memory.
"""

from __future__ import annotations

from . import COEFFICIENTS, NO_CACHE, Context, Figure


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []
    for name, cache in (("JPEGs", NO_CACHE), ("coefficients in memory", COEFFICIENTS)):
        pipeline = context.train_pipeline("overhead", cache)
        one, two = context.config([1]), context.config([1, 2])
        overhead, gain = [], []
        for _ in range(context.rounds):
            single = context.bench(pipeline, one)
            shares = single["stages"]
            waits = single["graph_s"] * shares["read_wait"] / shares["graph"]
            overhead.append((single["seconds"] - waits) / single["graph_s"])
            gain.append(context.bench(pipeline, two)["samples_per_s"] / single["samples_per_s"])
        figures += [
            Figure.of(
                f"time of a busy worker ÷ its time in the graph, {name}", overhead,
                must=1.10, aim=1.03, better="less",
            ),
            Figure.of(f"2 workers ÷ 1 worker, {name}", gain, must=1.8, aim=1.95),
        ]  # fmt: skip
    return figures
