"""Reads through the engine ÷ fio, raw records into slots ÷ memcpy, and reads of each shuffle.

fio (apt-get install fio) reads the same file with io_uring, the same block size, depth and
directness, by turns, on the same CPU. Each rate of ours is held against the mean of fio's before
and after it: a disk that others share changes from second to second, as fio ÷ fio shows. Raw
records come from the record cache, as they do by default, and from the page cache alone; memcpy
moves as much at a time, from blocks in the same order: a random one costs memcpy, too, what the
processor would otherwise have fetched ahead. `pread` of the same records, and nothing else, is what
the kernel's part costs. Samples of 784 bytes come in random order.

What each format's records cost to read under a full and a block shuffle is counted by the daemon:
bytes a read, reads and seeks for a thousand samples; and what that means for a disk and for a
parallel file system by the cost models of server/storage/README.md. `storage.kind` is set, so that
the machine's own storage does not matter.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict

from . import BUILD, Context, Figure
from .disk import big_file, fio, pinned
from .small_sets import KINDS

CPU = 1
RAW_RECORDS, RAW_BYTES = 50_000, 3073  # a label and an image
RAW_CASES = {
    "stored order, cached": ("auto", "none"),
    "stored order, page cache alone": ("none", "none"),
    "random order, cached": ("auto", "full"),
    "random order, page cache alone": ("none", "full"),
}
SMALL_RECORDS = 60_000
RECORDS, RECORD_BYTES, SHARDS, WINDOW = 8000, 16384, 8, 2000  # of the datasets that are shuffled
CASES = {
    "sequential, 1 MiB, direct": (1 << 20, 16, "sequential", 1),
    "random, 64 KiB, direct": (64 << 10, 32, "random", 1),
    "sequential, 1 MiB, page cache": (1 << 20, 16, "sequential", 0),
    "random, 64 KiB, page cache": (64 << 10, 32, "random", 0),
}


def rate(*arguments: object, of_cpu: bool = False) -> float:
    """Return bytes a second, or a second of CPU time, that read_bench prints."""
    text = pinned(CPU, BUILD / "tools/read_bench", *arguments)
    found = re.match(r"(\d+) bytes/s, ([\d.]+) CPU s/GiB", text)
    return 2**30 / float(found.group(2)) if of_cpu else float(found.group(1))


def raw_records(context: Context) -> list[Figure]:
    """Return bytes into slots ÷ what memcpy moves on the same core, by where they come from."""
    data = context.folder / "raw"
    data.mkdir(exist_ok=True)
    (data / "records.bin").write_bytes(os.urandom(RAW_BYTES) * RAW_RECORDS)
    config = context.config([CPU], data)
    pipeline = context.folder / "raw.yaml"
    ratios: dict[str, list[tuple[float, ...]]] = {what: [] for what in RAW_CASES}
    plain = defaultdict(list)
    for _ in range(context.rounds):
        for what, (cache, shuffle) in RAW_CASES.items():
            pipeline.write_text(
                f"version: 1\ndataset: {{format: raw, root: photos, record_bytes: {RAW_BYTES}, "
                "fields: {label: {offset: 0, dtype: uint8}, "
                "image: {offset: 1, dtype: uint8, shape: [32, 32, 3]}}}\n"
                f"sampler: {{shuffle: {shuffle}}}\ncache: {{kind: {cache}}}\n"
                "batch: {size: 4096}\noutputs: [image, label]\n"
            )
            ours = context.bench(pipeline, config)
            got = ours["bytes_per_s"], RAW_BYTES / (1e-3 * ours["cpu_s_per_1000"])
            order = "random" if shuffle == "full" else "sequential"
            both = (False, True)
            copied = [rate("memcpy", RAW_BYTES - 1, 1, order, of_cpu=cpu) for cpu in both]
            ratios[what].append(tuple(mine / theirs for mine, theirs in zip(got, copied)))
            if cache == "none":
                file = data / "records.bin"
                read = [rate("pread", RAW_BYTES, 1, order, file, of_cpu=cpu) for cpu in both]
                plain[what].append(tuple(mine / theirs for mine, theirs in zip(read, copied)))
    figures = [
        Figure.of(f"raw records into slots ÷ memcpy, {what}", list(values), must=0.8, aim=0.95,
                  column=column)
        for what, rounds in ratios.items()
        for column, values in zip(("elapsed", "CPU"), zip(*rounds))
    ]  # fmt: skip
    return figures + [
        Figure.of(f"pread of the same records and nothing else ÷ memcpy, {what}", list(values),
                  column=column)
        for what, rounds in plain.items()
        for column, values in zip(("elapsed", "CPU"), zip(*rounds))
    ]  # fmt: skip


def small_samples(context: Context) -> Figure:
    """Return samples of 784 bytes and a label a second, of one core, in millions."""
    data = context.folder / "small"
    data.mkdir(exist_ok=True)
    count = SMALL_RECORDS.to_bytes(4, "big")
    side = (28).to_bytes(4, "big")
    images, labels = b"\0\0\x08\x03" + count + side * 2, b"\0\0\x08\x01" + count
    (data / "train-images-idx3-ubyte").write_bytes(images + os.urandom(784) * SMALL_RECORDS)
    (data / "train-labels-idx1-ubyte").write_bytes(
        labels + bytes(range(10)) * (SMALL_RECORDS // 10)
    )
    config = context.config([CPU], data)
    pipeline = context.folder / "small.yaml"
    pipeline.write_text(
        "version: 1\ndataset: {format: mnist, root: photos}\nsampler: {shuffle: full}\n"
        "batch: {size: 4096}\noutputs: [image, label]\n"
    )
    rates = [context.bench(pipeline, config)["samples_per_s"] / 1e6 for _ in range(context.rounds)]
    return Figure.of("samples of 784 bytes, 10⁶/s a core", rates, must=1.0, aim=3.0)


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
    return [*figures, *raw_records(context), small_samples(context), *shuffles(context)]
