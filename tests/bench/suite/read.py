"""Reads through the engine ÷ fio, and raw records into slots ÷ memcpy.

fio (apt-get install fio) reads the same file with io_uring, the same block size, depth and
directness, by turns, on the same CPU. Each rate of ours is held against the mean of fio's before
and after it: a disk that others share changes from second to second, as fio ÷ fio shows. Raw
records are those of CIFAR-10 files in the page cache, which are turned from planes into pixels on
their way into the slot.
"""

from __future__ import annotations

import os
import re
import shutil

from . import BUILD, Context, Figure
from .disk import big_file, fio, pinned

CPU = 1
CASES = {
    "sequential, 1 MiB, direct": (1 << 20, 16, "sequential", 1),
    "random, 64 KiB, direct": (64 << 10, 32, "random", 1),
    "sequential, 1 MiB, page cache": (1 << 20, 16, "sequential", 0),
    "random, 64 KiB, page cache": (64 << 10, 32, "random", 0),
}


def rate(*arguments: object) -> float:
    """Return bytes a second that read_bench prints."""
    text = pinned(CPU, BUILD / "tools/read_bench", *arguments)
    return float(re.match(r"(\d+) bytes/s", text).group(1))


def raw_records(context: Context) -> Figure:
    """Return bytes into slots ÷ what memcpy moves on the same core."""
    data = context.folder / "raw"
    data.mkdir(exist_ok=True)
    for part in range(1, 6):
        (data / f"data_batch_{part}.bin").write_bytes((b"\1" + os.urandom(3072)) * 10000)
    pipeline = context.folder / "raw.yaml"
    pipeline.write_text(
        "version: 1\ndataset: {format: cifar10, root: photos}\nbatch: {size: 4096}\n"
        "outputs: [image, label]\ncache: {kind: none}\n"
    )
    config = context.config([CPU], data)
    ratios = []
    for _ in range(context.rounds):
        copied = rate("memcpy", 3072, 1)
        ratios.append(context.bench(pipeline, config)["bytes_per_s"] / copied)
    return Figure.of("raw records into slots ÷ memcpy", ratios, must=0.7, aim=0.9)


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []
    if shutil.which("fio") is None:
        context.absent["engine ÷ fio"] = "fio is not installed: apt-get install fio"
    else:
        path = big_file(context)
        seconds = context.seconds / 2
        for name, case in CASES.items():
            against_fio, of_fio = [], []
            before = fio(context, CPU, *case, seconds)
            for _ in range(2 * context.rounds):
                ours = rate(path, "io_uring", *case, seconds)
                after = fio(context, CPU, *case, seconds)
                against_fio.append(2 * ours / (before + after))
                of_fio.append(after / before)
                before = after
            figures += [
                Figure.of(f"engine ÷ fio, {name}", against_fio, must=0.9, aim=0.97),
                Figure.of(f"fio ÷ fio, {name}: the disk's noise", of_fio, detail=True),
            ]
        path.unlink()
    return [*figures, raw_records(context)]
