"""Reads through the engine ÷ fio, raw records into slots ÷ memcpy, and reads of each shuffle.

fio (apt-get install fio) reads the same file with io_uring, the same block size, depth and
directness, by turns, on the same CPU. Each rate of ours is held against the mean of fio's before
and after it: a disk that others share changes from second to second, as fio ÷ fio shows. Raw
records are those of CIFAR-10 files in the page cache, which are turned from planes into pixels on
their way into the slot.

What each format's records cost to read under a full and a block shuffle is counted by the daemon:
bytes a read, reads and seeks for a thousand samples; and what that means for a disk and for a
parallel file system by the cost models of server/storage/README.md. `storage.kind` is set, so that
the machine's own storage does not matter.
"""

from __future__ import annotations

import os
import re
import shutil

from . import BUILD, Context, Figure
from .disk import big_file, fio, pinned
from .small_sets import KINDS

CPU = 1
RECORDS, RECORD_BYTES, SHARDS, WINDOW = 8000, 16384, 8, 2000  # of the datasets that are shuffled
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


def shuffles(context: Context) -> list[Figure]:
    """Return what each format's records cost to read, by shuffle."""
    figures = []
    for name, make in KINDS.items():
        folder = context.folder / f"shuffled-{name}"
        folder.mkdir()
        section = make(folder, RECORDS, RECORD_BYTES, SHARDS).replace("root: data", "root: photos")
        for shuffle in ("full", "block"):
            pipeline = context.folder / "shuffled.yaml"
            pipeline.write_text(
                f"version: 1\ndataset: {section}\nsampler: {{shuffle: {shuffle}, block_records: "
                f"{WINDOW}}}\nbatch: {{size: 100}}\noutputs: [sample_id]\ncache: {{kind: none}}\n"
            )
            of_kind = {}
            for kind in ("rotational", "network"):
                config = context.config([CPU], folder, f"storage: {{kind: {kind}}}\n")
                of_kind[kind] = context.bench(
                    pipeline, config, "--epochs", "4", "--warm-up-epochs", "0"
                )["storage"]
            disk, network = of_kind["rotational"], of_kind["network"]
            cells = {
                "KiB a read": (disk["bytes_per_1000"] / disk["reads_per_1000"] / 1024, "KiB"),
                "reads": (disk["reads_per_1000"], "/1000"),
                "seeks": (disk["seeks_per_1000"], "/1000"),
                "disk": (disk["rotational_s_per_1000"], "s"),
                "parallel file system": (network["network_s_per_1000"], "s"),
            }
            what = f"{name}, shuffle: {shuffle}"
            figures += [
                Figure(what, got, unit=unit, better="less", column=column)
                for column, (got, unit) in cells.items()
            ]
        shutil.rmtree(folder)
    return figures


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
    return [*figures, raw_records(context), *shuffles(context)]
