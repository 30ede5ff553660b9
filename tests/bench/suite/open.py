"""Opening each format at a million records, and raw records at a thousand million.

The index's bytes a record, the seconds of building it and of opening the saved one, and the memory
that the process grows by. The thousand million are holes of a sparse file; their full shuffle is
held against that of a million by the CPU time that finding a position's record and its place in the
file takes, and by that of a sample which a worker delivers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import Context, Figure
from .small_sets import FIXED, KINDS

RECORDS, MANY, RECORD_BYTES, SHARDS = 1_000_000, 1_000_000_000, 16, 16
INDEX_GOALS = {"tfrecord": 16.0, "webdataset": 16.0, **{name: 0.1 for name in FIXED}}


def _figures(name: str, about: dict, records: str) -> list[Figure]:
    """Return a row of each thing that was measured."""
    goal = INDEX_GOALS.get(name)
    each = about["index_bytes"] / about["records"]
    return [
        Figure(f"{name}, {records}", about["built_s"], unit="s", better="less",
               column="index built"),
        Figure(f"{name}, {records}", about["opened_s"], unit="s", better="less", column="opened",
               must=0.5 if records == "10^9" else None),
        Figure(f"{name}, {records}", about["resident_bytes"] / 2**20, unit="MiB", better="less",
               column="memory"),
        Figure(f"{name}, {records}: index", each, goal, goal, "bytes a record", "less"),
    ]  # fmt: skip


def _made(context: Context, name: str, records: int, size: int) -> tuple[Path, str]:
    folder = context.folder / f"{name}-{records}"
    folder.mkdir()
    return folder, KINDS[name](folder, records, size, SHARDS)


def _cpu_us(context: Context, folder: Path, section: str) -> float:
    """Return CPU microseconds of a sample under a full shuffle."""
    pipeline = context.folder / "full.yaml"
    pipeline.write_text(
        f"version: 1\ndataset: {section.replace('root: data', 'root: photos')}\n"
        "sampler: {shuffle: full}\nbatch: {size: 1024}\noutputs: [data]\ncache: {kind: none}\n"
    )
    config = context.config([1], folder)
    return 1e3 * context.bench(pipeline, config)["cpu_s_per_1000"]


def run(context: Context) -> list[Figure]:
    """Measure."""
    records = RECORDS // 50 if context.quick else RECORDS
    text = "20,000" if context.quick else "10^6"
    figures = []
    for name in KINDS:
        folder, section = _made(context, name, records, 0 if name == "image_folder" else 64)
        about = context.tool("open_bench", folder, section)
        figures += _figures(name, about, text)
        shutil.rmtree(folder)
    few, section = _made(context, "raw", RECORDS, RECORD_BYTES)
    many = _made(context, "raw", MANY, RECORD_BYTES)[0]
    of_few = context.tool("open_bench", few, section)
    of_many = context.tool("open_bench", many, section)
    figures += _figures("raw", of_many, "10^9")
    ratios, orders = [], []
    for _ in range(context.rounds):
        ratios.append(_cpu_us(context, many, section) / _cpu_us(context, few, section))
        orders.append(context.tool("open_bench", many, section)["order_ns"]
                      / context.tool("open_bench", few, section)["order_ns"])  # fmt: skip
    figures += [
        Figure.of("CPU time of a full-shuffled sample, 10^9 ÷ 10^6", ratios, must=1.25, aim=1.1,
                  better="less"),
        Figure.of("finding a position's record, 10^9 ÷ 10^6", orders, better="less"),
        Figure("finding a position's record, 10^6", of_few["order_ns"], unit="ns", better="less"),
    ]  # fmt: skip
    return figures
