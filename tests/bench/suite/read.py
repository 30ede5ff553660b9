"""Reads through the engine ÷ fio, and raw records into slots ÷ memcpy.

fio (apt-get install fio) reads the same file with io_uring, the same block size, depth and
directness, by turns, on the same CPU. Raw records are those of CIFAR-10 files in the page cache,
which are turned from planes into pixels on their way into the slot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from . import BUILD, Context, Figure

CPU = 1
FILE_BYTES = 2 << 30
CASES = {
    "sequential, 1 MiB, direct": (1 << 20, 16, "sequential", 1),
    "random, 64 KiB, direct": (64 << 10, 32, "random", 1),
    "sequential, 1 MiB, page cache": (1 << 20, 16, "sequential", 0),
    "random, 64 KiB, page cache": (64 << 10, 32, "random", 0),
}


def output(*command) -> str:
    """Run a command on the CPU and return what it prints."""
    pinned = ["taskset", "-c", str(CPU), *map(str, command)]
    return subprocess.run(pinned, capture_output=True, text=True, check=True).stdout


def engine(path: Path, block: int, depth: int, order: str, direct: int, seconds: float) -> float:
    """Return bytes a second through our io_uring engine."""
    text = output(
        BUILD / "tools/read_bench", path, "io_uring", block, depth, order, direct, seconds
    )
    return float(re.match(r"(\d+) bytes/s", text).group(1))


def fio(path: Path, block: int, depth: int, order: str, direct: int, seconds: float) -> float:
    """Return bytes a second of fio."""
    pattern = "read" if order == "sequential" else "randread"
    text = output(
        "fio", "--name=read", f"--filename={path}", "--ioengine=io_uring", f"--bs={block}",
        f"--iodepth={depth}", f"--rw={pattern}", f"--direct={direct}", "--time_based",
        f"--runtime={seconds:.1f}", "--output-format=json", "--invalidate=0", "--readonly",
    )  # fmt: skip
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"]


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
        copy = output(BUILD / "tools/read_bench", "memcpy", 3072, 1)
        moved = context.bench(pipeline, config)["bytes_per_s"]
        ratios.append(moved / float(re.match(r"(\d+)", copy).group(1)))
    return Figure.of("raw records into slots ÷ memcpy", ratios, must=0.7, aim=0.9)


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []
    if shutil.which("fio") is None:
        print("fio is not installed (apt-get install fio): the engine is not compared with it")
    else:
        path = context.folder / "file"
        with open(path, "wb") as file:
            for _ in range(FILE_BYTES >> 24):
                file.write(os.urandom(1 << 20) * 16)
        seconds = context.seconds / 2
        for name, case in CASES.items():
            fio(path, *case, 0.5)
            ratios = [
                engine(path, *case, seconds) / fio(path, *case, seconds)
                for _ in range(context.rounds)
            ]
            figures.append(Figure.of(f"engine ÷ fio, {name}", ratios, must=0.9, aim=0.97))
        path.unlink()
    return [*figures, raw_records(context)]
