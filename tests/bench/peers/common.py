"""What every peer's script does alike: arguments, pinning, and timing epochs.

    python SCRIPT.py FOLDER WORKERS CPUS

Each prints a line of JSON for each epoch: images a second to the consumer, and this process's CPU
milliseconds an image (children excluded). The first epoch warms up.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

BATCH = 64
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
EPOCHS = 3


def arguments() -> tuple[Path, int]:
    """Pin this process, and return the folder of images and the number of workers."""
    folder, workers, cpus = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    return folder, workers


def files(folder: Path) -> list[str]:
    """Return the images in torchvision's order."""
    return sorted(str(path) for path in folder.glob("*/*"))


def measure(epoch: Callable[[], Iterable[int]]) -> None:
    """Run epochs; `epoch()` gives the size of each batch as it is received."""
    for number in range(EPOCHS):
        start, cpu, images = time.monotonic(), time.process_time(), 0
        for size in epoch():
            images += size
        wall = time.monotonic() - start
        line = {
            "epoch": number,
            "images_per_s": images / wall,
            "cpu_ms_per_image": 1000 * (time.process_time() - cpu) / images,
        }
        print(json.dumps(line), flush=True)
