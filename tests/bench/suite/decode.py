"""The whole ImageNet training pipeline on one core ÷ libjpeg-turbo's bare full decode.

Both decode the same photos, by turns, on the same CPU. libjpeg-turbo only decodes, whole images, to
RGB; the pipeline reads, decodes the random crop, resamples it to 224x224, mirrors, normalises to
float32 CHW and writes the slot. CPU time on both sides; wall time on both sides stands beside.
Photos are taken several times over, so that an epoch lasts seconds, also the first one.
"""

from __future__ import annotations

import re
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from . import COEFFICIENTS, NO_CACHE, Context, Figure
from .disk import fio

CPU = 1


@dataclass(frozen=True)
class Case:
    """A pipeline's cache, and which of its epochs are measured: `epochs`, after `warm_up`."""

    what: str
    cache: str
    warm_up: int
    epochs: int
    must: float
    aim: float
    config: str = ""


DISK = "from the store on disk, direct reads"
CASES = (
    Case("from JPEGs, first epoch", NO_CACHE, 0, 1, 1.3, 1.6),
    # An epoch's crops make indexes down to their own bottoms only, so the first few are not later.
    Case("from JPEGs with the seek index, later epochs", NO_CACHE, 3, 2, 2.0, 2.6),
    Case("first epoch, filling the store in memory", COEFFICIENTS, 0, 1, 1.0, 1.3),
    Case("from the store in memory", COEFFICIENTS, 1, 6, 4.5, 6.5),
    Case(DISK, "{kind: coefficients, ram: 0, disk: 32GiB}", 2, 4, 3, 5,
         "cache: {ram: 0, disk: 32GiB}\nstorage: {direct_io: true}\n"),
)  # fmt: skip
FULL = "whole image to RGB, own decoder"
STORE = "store bytes ÷ JPEG bytes"


def sampling(path: Path) -> str:
    """Return the chroma sampling of a JPEG: "4:4:4", "4:2:0", ..., or "" for what is none."""
    data = path.read_bytes()
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (0xC0, 0xC1, 0xC2):
            if data[at + 9] != 3:
                return "gray"
            known = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0"}
            return known.get((data[at + 11] >> 4, data[at + 11] & 15), "other")
        at += 2 + length
    return ""


def split(context: Context) -> dict[str, Path]:
    """Copy each set's photos into a folder for each sampling of which there are twenty."""
    result = {}
    for name, photos in context.sets.items():
        folders: dict[str, list[Path]] = {}
        for path in sorted(photos.rglob("*.*")):
            folders.setdefault(sampling(path), []).append(path)
        result[name] = photos
        for kind, paths in folders.items():
            if len(paths) < 20 or not kind:
                continue
            folder = context.folder / re.sub(r"\W", "", name + kind)
            (folder / "class").mkdir(parents=True, exist_ok=True)
            for path in paths:
                shutil.copy(path, folder / "class")
            result[f"{name}, {kind}"] = folder
    return result


def measure(context: Context, name: str, photos: Path) -> list[Figure]:
    """Return the figures of one folder of photos, as the column `name`."""
    is_asked = name in context.sets  # goals are for all photos of a set; samplings are for judging
    images = 400 if context.quick else 2000
    records = context.many(photos, images)
    jpeg_bytes = statistics.mean(p.stat().st_size for p in photos.glob("*/*.*"))
    cpu: dict[str, list[float]] = {}
    wall: dict[str, list[float]] = {}
    kept: list[float] = []
    read: list[float] = []
    stored = 0.0

    def bare() -> dict:
        """Decode with libjpeg-turbo, and whole images with the own decoder beside it."""
        done = context.tool("decode_kernels", photos, "--rounds", 1, "--cpu", CPU, "--only", "bare",
                            "whole", "--whole-set", "--json")["sets"]["all"]  # fmt: skip
        cpu.setdefault(FULL, []).append(done["bare"]["cpu_us"] / done["whole"]["cpu_us"])
        wall.setdefault(FULL, []).append(done["bare"]["wall_us"] / done["whole"]["wall_us"])
        return done["bare"]

    for _ in range(context.rounds if is_asked else max(2, context.rounds // 2)):
        for case in CASES:
            beside = bare()
            result = context.bench(
                context.train_pipeline("decode", case.cache),
                context.config([CPU], records, case.config),
                "--epochs", str(case.epochs), "--warm-up-epochs", str(case.warm_up),
            )  # fmt: skip
            cpu.setdefault(case.what, []).append(
                beside["cpu_us"] / (1000 * result["cpu_s_per_1000"])
            )
            wall.setdefault(case.what, []).append(beside["wall_us"] * result["samples_per_s"] / 1e6)
            found = result["kept"]
            if case.cache == COEFFICIENTS and case.warm_up > 0:
                kept.append(found["memory_bytes"] / found["memory_records"] / jpeg_bytes)
            if case.what == DISK:
                if found["disk_hits"] < result["samples"] * 0.9:
                    raise RuntimeError(f"the store is not on the disk: {found}")
                stored = found["disk_bytes"] / found["disk_records"]
                read.append(result["samples_per_s"] * stored / 1e6)

    def goals(must: float, aim: float) -> dict:
        return {"must": must, "aim": aim} if is_asked else {}

    figures = []
    for case in (*CASES, Case(FULL, "", 0, 0, 1.3, 1.7)):
        asked = goals(case.must, case.aim)
        figures.append(Figure.of(case.what, cpu[case.what], column=name, **asked))
        figures.append(
            Figure.of(f"{case.what}, wall time", wall[case.what], column=name, detail=True)
        )
    figures.append(Figure.of(STORE, kept, column=name, better="less", **goals(1.45, 1.33)))
    figures.append(Figure.of("read from the store on disk", read, unit="MB/s", column=name))
    if is_asked and shutil.which("fio"):
        block = -(-int(stored) // 4096) * 4096
        rate = fio(context, CPU, block, 32, "random", 1, context.seconds / 2) / 1e6
        what = "that disk by fio, random reads of that size, direct"
        figures.append(Figure(what, rate, unit="MB/s", column=name, note="TMPDIR chooses the disk"))
    return figures


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = [
        figure
        for name, photos in split(context).items()
        for figure in measure(context, name, photos)
    ]
    # A figure's columns side by side, in the order of the first set's figures.
    order = list(dict.fromkeys(figure.what for figure in figures))
    return sorted(figures, key=lambda figure: order.index(figure.what))
