"""`feedwater convert` that keeps the photos' bytes, beside GNU tar over the same files.

Both read from the page cache and have their archive on the disk when they end: convert calls fsync
for each shard, so `sync` stands behind tar. Convert also builds the dataset's index, writes one
beside each shard, and opens what it wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from . import BUILD, Context, Figure

PHOTOS = 8000
JOBS = os.cpu_count() or 1


def _run(command: list[object], folder: Path) -> tuple[float, float]:
    """Return seconds by the clock and of CPU that a command and its children took."""
    start = time.monotonic()
    process = subprocess.Popen(
        list(map(str, command)), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(error.decode())
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def run(context: Context) -> list[Figure]:
    """Measure."""
    photos = context.many(context.photos, 400 if context.quick else PHOTOS)
    config = context.config(list(range(JOBS)), photos)
    pipeline = context.train_pipeline("train")
    out, archive = context.folder / "shards", context.folder / "photos.tar"
    convert = [BUILD / "bin/feedwater", "convert", pipeline, out, "--config", config]
    tar = ["sh", "-c", f"tar cf {archive} . && sync {archive}"]
    tar_alone = ["tar", "cf", archive, "."]
    ratios: dict[str, list[tuple[float, float]]] = {"tar and sync": [], "tar": []}
    for _ in range(context.rounds + 1):
        times = {}
        for name, command in {"tar": tar_alone, "tar and sync": tar, "": convert}.items():
            shutil.rmtree(out, ignore_errors=True)
            archive.unlink(missing_ok=True)
            os.sync()
            times[name] = _run(command, photos)
        for name, rounds in ratios.items():
            rounds.append(tuple(theirs / ours for theirs, ours in zip(times[name], times[""])))
    figures = []
    for name, rounds in ratios.items():
        rounds = rounds[1:]  # in the first one the files come from the disk
        note = "nothing waits for the disk" if name == "tar" else ""
        for column, values in zip(("elapsed", "CPU"), zip(*rounds)):
            figures.append(
                Figure.of(f"time of {name} ÷ convert, bytes kept", list(values), must=0.8,
                          column=column, note=note)
            )  # fmt: skip
    return figures
