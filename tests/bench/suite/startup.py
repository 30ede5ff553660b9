"""From a cold daemon to the first batch of 1.28 million records with a saved index.

Twice: from starting the daemon's process until it accepts connections, and from opening the stream
until the first batch is there. The records are those of CIFAR-10 files that are holes, so that they
take no disk; the index of as many single image files is measured by its size and the time to open
it.
"""

from __future__ import annotations

import re
import subprocess
import time

import feedwater

from . import BUILD, Context, Figure

RECORDS, FILES, RECORD_BYTES = 1_280_000, 5, 3073


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
    ]  # fmt: skip
    return figures
