"""The whole ImageNet training pipeline on one core ÷ libjpeg-turbo's bare full decode.

Both decode the same photos, by turns, on the same CPU. libjpeg-turbo only decodes, whole images, to
RGB; the pipeline reads, decodes the random crop, resamples it to 224x224, mirrors, normalises to
float32 CHW and writes the slot. CPU time of the worker; the figures by wall time stand beside.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import Context, Figure

CPU = 1


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
    """Copy the photos into a folder for each sampling; those with fewer than 20 are left out."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(context.photos.rglob("*.*")):
        folders.setdefault(sampling(path), []).append(path)
    result = {"all": context.photos}
    for name, paths in folders.items():
        if len(paths) < 20 or not name:
            continue
        folder = context.folder / name.replace(":", "")
        (folder / "class").mkdir(parents=True, exist_ok=True)
        for path in paths:
            shutil.copy(path, folder / "class")
        result[name] = folder
    return result


def run(context: Context) -> list[Figure]:
    """Measure."""
    goals = {"none": (1.3, 1.6), "coefficients": (4.5, 6.5)}
    figures = []
    for name, photos in split(context).items():
        batch = min(64, len(list(photos.rglob("*.*"))))
        pipelines = {
            cache: context.train_pipeline(f"decode-{cache}", cache, batch) for cache in goals
        }
        config = context.config([CPU], photos)
        wall: dict[str, list[float]] = {cache: [] for cache in goals}
        cpu: dict[str, list[float]] = {cache: [] for cache in goals}
        for _ in range(context.rounds if name == "all" else max(2, context.rounds // 2)):
            bare_us = context.bare_decode_us(CPU, photos)
            for cache, pipeline in pipelines.items():
                result = context.bench(pipeline, config)
                cpu[cache].append(bare_us / (1000 * result["cpu_s_per_1000"]))
                wall[cache].append(bare_us * result["samples_per_s"] / 1e6)
        for cache, (must, aim) in goals.items():
            source = "from JPEGs" if cache == "none" else "from coefficients in memory"
            asked = {"must": must, "aim": aim} if name == "all" else {}
            figures.append(Figure.of(f"{source}, {name} photos, CPU time", cpu[cache], **asked))
            if name == "all":
                figures.append(Figure.of(f"{source}, {name} photos, wall time", wall[cache]))
    return figures
