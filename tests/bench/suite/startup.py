"""From a cold daemon to the first batch of 1.28 million records with a saved index.

Twice: from starting the daemon's process until it accepts connections, and from opening the stream
until the first batch is there. The records are those of CIFAR-10 files that are holes, so that they
take no disk; the index of as many single image files is measured by its size and the time to open
it. And what a process costs before it does anything: the CPU time of `feedwater --version`, and
that of a decoder which has made its first batch of tiny images.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import feedwater

from . import BUILD, Context, Figure

RECORDS, FILES, RECORD_BYTES = 1_280_000, 5, 3073
STARTS = 21  # of a process, each
TINY = b"P6 8 8 255\n" + bytes(3 * 8 * 8)  # a PNM


def run(context: Context) -> list[Figure]:
    """Measure."""
    data = context.folder / "records"
    data.mkdir(exist_ok=True)
    for part in range(1, FILES + 1):
        with open(data / f"data_batch_{part}.bin", "wb") as file:
            file.truncate(RECORDS // FILES * RECORD_BYTES)
    pipeline = context.folder / "records.yaml"
    pipeline.write_text(
        "version: 1\ndataset: {format: cifar10, root: photos}\nsampler: {shuffle: full}\n"
        "batch: {size: 64}\noutputs: [image, label]\ncache: {kind: none}\n"
    )
    config = context.config([1], data)
    ready, seconds = [], []
    for attempt in range(context.rounds + 1):
        with context.daemon(config) as daemon:
            start = time.monotonic()
            with feedwater.Loader("records", address=daemon.address, output="numpy") as loader:
                next(iter(loader))
                if attempt > 0:  # the first one builds the index
                    ready.append(daemon.ready_s)
                    seconds.append(time.monotonic() - start)
    done = subprocess.run(
        [BUILD / "tools/index_bench"], capture_output=True, text=True, check=True
    ).stdout
    opened, size = re.findall(r"in ([\d.]+) s .*?([\d.]+) bytes a record", done)[-1]
    figures = [
        Figure.of("daemon's start → ready", ready, unit="s", better="less"),
        Figure.of("open → first batch, 1.28 M records, saved index", seconds, must=2, aim=0.3,
                  unit="s", better="less"),
        Figure.of("daemon's start → first batch", [a + b for a, b in zip(ready, seconds)], must=2,
                  aim=0.3, unit="s", better="less"),
        Figure("index of 1.28 M image files, bytes a record", float(size), 64, unit="bytes",
               better="less"),
        Figure("opening that index", float(opened), 2, 0.3, "s", "less"),
        Figure.of("CPU of `feedwater --version`", _version_ms(context), must=20, aim=10, unit="ms",
                  better="less"),
        Figure.of("CPU of a decoder, from its start to its first batch", _decoder_ms(context),
                  must=20, unit="ms", better="less"),
    ]  # fmt: skip
    return figures


def _starts(context: Context) -> int:
    return 3 if context.quick else STARTS


def _version_ms(context: Context) -> list[float]:
    """Return the CPU time of each run of a command that does next to nothing."""
    took = []
    for _ in range(_starts(context)):
        command = [BUILD / "bin/feedwater", "--version"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, process.returncode, usage = os.wait4(process.pid, 0)
        if process.returncode != 0:
            raise RuntimeError("feedwater --version failed")
        took.append(1e3 * (usage.ru_utime + usage.ru_stime))
    return took


def _decoder_ms(context: Context) -> list[float]:
    """Return the CPU time that each of some new decoders has had when its first batch is there."""
    images = context.folder / "tiny" / "class"
    images.mkdir(parents=True)
    for number in range(4):
        (images / f"{number}.ppm").write_bytes(TINY)
    pipeline = context.folder / "tiny.yaml"
    pipeline.write_text(
        "version: 1\ndataset: {format: image_folder, root: photos}\ngraph:\n  - decode\n"
        "  - center_crop: {size: [8, 8]}\nbatch: {size: 2}\noutputs: [image]\ncache: {kind: none}\n"
    )
    config = context.config([1], images.parent, "isolation: process\n")
    took = []
    with context.daemon(config) as daemon:
        for number in range(_starts(context)):  # each job has a decoder of its own
            with feedwater.Loader(
                "tiny", address=daemon.address, output="numpy", job=f"start-{number}", rank=0,
                world_size=1, slots=2,
            ) as loader:  # fmt: skip
                next(iter(loader))
                newest = max(_decoders(daemon.pid))  # the one before may not have ended yet
                took.append(1e-6 * int(Path(f"/proc/{newest}/schedstat").read_text().split()[0]))
    return took


def _decoders(pid: int) -> list[int]:
    """Return a daemon's decoder processes."""
    children = []
    for task in Path(f"/proc/{pid}/task").iterdir():  # of the thread that started it
        children += (task / "children").read_text().split()
    return [
        int(child) for child in children
        if Path(f"/proc/{child}/comm").read_text() == "fw-decoder\n"
    ]  # fmt: skip
