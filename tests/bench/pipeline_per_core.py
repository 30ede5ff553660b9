"""The whole train pipeline on one worker ÷ libjpeg-turbo's bare full decode of the same photos.

    python tests/bench/pipeline_per_core.py [FOLDER] [--rounds 3]

FOLDER is an image folder, by default $FEEDWATER_TEST_DATA/photos. One feedwaterd with one pinned
worker delivers 224x224 float32 CHW batches to this process through shared memory; bare decoding is
measured by decode_kernels on the same CPU. The two alternate, and only their ratio is meant to be
quoted: machines drift within minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import feedwater

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FEEDWATER_BUILD_DIR", ROOT / "build" / "release"))
DATA = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared" / "data"))
CPU = 1  # the worker's and the bare decoder's; this process keeps to the others

PIPELINE = """\
version: 1
dataset: {format: image_folder, root: photos}
sampler: {shuffle: full, seed: 42, last: drop}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [224, 224], scale: [0.08, 1.0]}
  - random_horizontal_flip: {in: image, p: 0.5}
  - normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], layout: CHW}
batch: {size: 50}
outputs: [image, label]
"""


def bare_us(folder: Path) -> float:
    """Microseconds an image of libjpeg-turbo's full decode, one round."""
    out = subprocess.run(
        [BUILD / "tools" / "decode_kernels", folder, "1", str(CPU)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return float(re.search(r"bare libjpeg-turbo.*?([\d.]+) us/image", out).group(1))


def pipeline_us(loader: feedwater.Loader, address: Path) -> tuple[float, float]:
    """Wall and CPU microseconds an image of three epochs through the daemon.

    The clock starts once the batches that were made while nobody asked are used up.
    """

    def cpu_seconds() -> tuple[float, int]:
        out = subprocess.run(
            [BUILD / "bin" / "feedwater", "--address", address, "status", "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        job = json.loads(out)["jobs"][0]
        return job["cpu_s"], job["samples"]

    cpu_before, samples_before = cpu_seconds()
    images = -loader.stats()["slots"] * loader.batch_size
    for _ in range(3):
        for _, label in loader:
            if images == 0:
                started = time.monotonic()
            images += len(label)
    wall = time.monotonic() - started
    cpu_after, samples_after = cpu_seconds()
    return 1e6 * wall / images, 1e6 * (cpu_after - cpu_before) / (samples_after - samples_before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DATA / "photos")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - {CPU})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.yaml").write_text(PIPELINE)
        (folder / "feedwater.yaml").write_text(
            f"version: 1\nruntime_dir: {folder}/run\nstate_dir: {folder}/state\npipelines: [.]\n"
            f"roots: {{photos: {args.folder.resolve()}}}\ncpus: '{CPU}'\n"
        )
        daemon = subprocess.Popen(
            [
                "taskset",
                "-c",
                f"0-{os.cpu_count() - 1}",
                BUILD / "bin" / "feedwaterd",
                "--config",
                folder / "feedwater.yaml",
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            while not (folder / "run" / "control.sock").exists():
                time.sleep(0.05)
            with feedwater.Loader("train", address=str(folder / "run"), output="numpy") as loader:
                for _ in loader:  # warm the page cache
                    pass
                rounds = [
                    (bare_us(args.folder), *pipeline_us(loader, folder / "run"))
                    for _ in range(args.rounds)
                ]
        finally:
            daemon.terminate()
            daemon.wait()
    bare, wall, cpu = (statistics.median(column) for column in zip(*rounds))
    print(f"bare libjpeg-turbo, whole image   {bare:7.1f} us/image")
    print(f"pipeline to the trainer, wall     {wall:7.1f} us/image   {bare / wall:.2f}x")
    print(f"pipeline, worker's CPU            {cpu:7.1f} us/image   {bare / cpu:.2f}x")


if __name__ == "__main__":
    main()
