"""Samples a second to the trainer from each format, beside the library that it came from.

Both read the same files from the page cache on the same core, consumer included, and give batches
of 64, by turns. Photos become random resized crops of 224x224, mirrored, normalised, float32 CHW:
in the first epoch, in later ones from the JPEGs with their seek index, and from the second one on
with the cache of coefficients. Tokens and arrays are taken as they are, with the default cache and
from the page cache alone, beside np.memmap in the trainer's own process and beside a DataLoader
over it. The libraries are taken from the Pythons that
`--python` names (`scripts/bench formats --install` makes some below build/peers); a library that
none has is named and left out. Samples a second and CPU seconds for a thousand, of all processes,
are in build/bench/formats.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import BUILD, COEFFICIENTS, NO_CACHE, ROOT, Context, Figure, cpu_list
from .peers import FOLDER, TORCH, feedwater, make_environment, measured

LOADERS = ROOT / "tests" / "bench" / "loaders"
IMAGES = 800  # an epoch
ROUNDS = 5
JPEG_GOALS, CACHE_GOALS = (5, 8), (12, 20)
MEMMAP_GOALS, DATALOADER_GOALS = (1, None), (3, 5)
ENVIRONMENTS = {
    "formats": [
        *TORCH, ["webdataset==1.0.2", "datasets==5.2.0", "grain==0.2.18", "array_record==0.8.6"],
    ],
    "mosaic": [
        ["torch==2.13.0", "numpy<2.2", "pillow"], *TORCH[1:], ["mosaicml-streaming==0.13.0"],
    ],
    "tensorflow": [["tensorflow-cpu==2.21.0"]],
    "mindspore": [["mindspore==2.10.0", "numpy", "pillow"]],
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """What both sides read: written by `writer`'s own library; Feedwater's `dataset:` section."""

    section: str
    outputs: str = "image, label"
    writer: str = ""  # a loader with write(); none: the photos themselves
    is_images: bool = True

    @property
    def format(self) -> str:
        """The daemon's name of the format."""
        return self.section.partition(",")[0]


# Sections without braces and root; the path is the data's name here.
DATA = {
    "image folder": Data("image_folder"),
    "webdataset": Data("webdataset", writer="webdataset_shards"),
    "TFRecord": Data(
        "tfrecord, fields: {data: image/encoded, label: image/class/label}",
        writer="tfdata_records",
    ),
    "MDS": Data("mds, fields: {data: image, label: label}", writer="mosaic_shards"),
    "Parquet": Data(
        "parquet, fields: {data: image.bytes, label: label}", writer="huggingface_parquet"
    ),
    "Arrow": Data("arrow, fields: {data: image.bytes, label: label}", writer="huggingface_arrow"),
    "ArrayRecord": Data("array_record", outputs="image", writer="grain_records"),
    "MindRecord": Data("mindrecord", writer="mindspore_records"),
    "tokens, uint16": Data(
        "tokens, length: 1024, targets: true", "tokens, targets", "memmap_tokens", False
    ),
    "tokens, int64": Data(
        "tokens, length: 1024, targets: true, fields: {tokens: {dtype: int64}, "
        "targets: {dtype: int64}}",
        "tokens, targets", "memmap_tokens", False,
    ),
    **{
        f"npy, {size}": Data(
            "npy, fields: {image: images.npy, label: labels.npy}",
            writer=f"memmap_arrays:{side}", is_images=False,
        )
        for size, side in {"12 KiB": 64, "48 KiB": 128}.items()
    },
}  # fmt: skip


@dataclass(frozen=True)
class Loader:
    """Another loader: its name, its script in loaders/, the packages that this imports."""

    name: str
    data: str
    script: str
    imports: str
    goals: tuple[float, float | None] | None = None  # of tokens and arrays


TORCH_IMPORTS = "torch, PIL"
OTHERS = (
    Loader("torchvision ImageFolder", "image folder", "image_folder", TORCH_IMPORTS),
    Loader("webdataset", "webdataset", "webdataset_shards", f"webdataset, {TORCH_IMPORTS}"),
    Loader("tf.data", "TFRecord", "tfdata_records", "tensorflow"),
    Loader("MosaicML Streaming", "MDS", "mosaic_shards", f"streaming, {TORCH_IMPORTS}"),
    Loader("HF datasets", "Parquet", "huggingface_parquet", f"datasets, {TORCH_IMPORTS}"),
    Loader("HF datasets", "Arrow", "huggingface_arrow", f"datasets, {TORCH_IMPORTS}"),
    Loader("Grain", "ArrayRecord", "grain_records", "grain, array_record, PIL"),
    Loader("MindSpore", "MindRecord", "mindspore_records", "mindspore"),
    Loader("np.memmap", "tokens, uint16", "memmap_tokens", "numpy", MEMMAP_GOALS),
    Loader("np.memmap", "tokens, int64", "memmap_tokens:int64", "numpy", MEMMAP_GOALS),
    Loader("np.memmap", "npy, 12 KiB", "memmap_arrays", "numpy", MEMMAP_GOALS),
    Loader("np.memmap", "npy, 48 KiB", "memmap_arrays", "numpy", MEMMAP_GOALS),
    Loader("DataLoader", "tokens, uint16", "dataloader_tokens", "torch", DATALOADER_GOALS),
    Loader("DataLoader", "tokens, int64", "dataloader_tokens:int64", "torch", DATALOADER_GOALS),
    Loader("DataLoader", "npy, 12 KiB", "dataloader_arrays", "torch", DATALOADER_GOALS),
    Loader("DataLoader", "npy, 48 KiB", "dataloader_arrays", "torch", DATALOADER_GOALS),
)

# What is measured of Feedwater over photos: which cache, whether the first epoch, the goals.
SIDES = {
    "first epoch": (NO_CACHE, True, JPEG_GOALS),
    "later epochs from JPEGs": (NO_CACHE, False, JPEG_GOALS),
    "first epoch, filling the cache": (COEFFICIENTS, True, None),
    "from the second epoch, cached": (COEFFICIENTS, False, CACHE_GOALS),
}
ARRAY_SIDES = {"": "{kind: auto}", "page cache alone": NO_CACHE}  # of tokens and arrays


def install() -> None:
    """Make the virtual environments that are not there."""
    for name, commands in ENVIRONMENTS.items():
        make_environment(name, FOLDER / name, commands)


def pythons(context: Context) -> list[Path]:
    """Return the Pythons in which libraries are looked for."""
    made = [FOLDER / name / "bin/python" for name in (*ENVIRONMENTS, "torch")]
    return context.pythons or [*(path for path in made if path.exists()), Path(sys.executable)]


def python_for(context: Context, loader: Loader) -> Path | None:
    """Return the first Python that has what a loader imports."""
    for python in pythons(context):
        # Looked for without running them: some take seconds to import.
        names = loader.imports.split(", ")
        code = f"from importlib.util import find_spec\nassert all(map(find_spec, {names}))"
        if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return python
    return None


def known_formats() -> set[str]:
    """Return the formats that the built daemon reads."""
    done = subprocess.run(
        [BUILD / "bin/feedwater", "describe", "format", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    known = {entry["format"] for entry in json.loads(done.stdout)["formats"]}
    return known if (BUILD / "bin/feedwater-columnar").exists() else known - {"parquet", "arrow"}


def folder_of(context: Context, name: str) -> Path:
    """Return where a format's files are."""
    if not DATA[name].writer:
        return photos_of(context)
    return context.folder / name.replace(", ", "-").replace(" ", "-")


def photos_of(context: Context) -> Path:
    """Return the photos of an epoch."""
    return context.many(context.photos, 192 if context.quick else IMAGES)


def write(context: Context, python: Path, name: str) -> None:
    """Write a format's files, by its own library."""
    folder, writer = folder_of(context, name), DATA[name].writer
    if not writer or folder.exists():
        return
    folder.mkdir()
    done = subprocess.run(
        [python, LOADERS / "driver.py", writer, "write", photos_of(context), folder],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(" ".join(done.stderr.strip().splitlines()[-1:]))


def pipeline_of(context: Context, name: str, cache: str) -> Path:
    """Write Feedwater's pipeline over a format's files."""
    data = DATA[name]
    path = folder_of(context, name).relative_to(context.folder)
    section = f"{{root: photos, path: {path}, format: {data.section}}}"
    return context.train_pipeline(
        "formats", cache, dataset=section, outputs=data.outputs, is_augmented=data.is_images
    )


@dataclass
class Rate:
    """What one measurement gave."""

    samples_per_s: float
    cpu_s_per_1000: float

    @staticmethod
    def of(document: dict) -> Rate:
        return Rate(document["images_per_s"], document["cpu_s_per_1000"])


def ours(context: Context, name: str, core: list[int]) -> dict[str, Rate]:
    """Measure Feedwater over a format, by side."""
    if not DATA[name].is_images:
        return {
            side: Rate.of(
                feedwater(context, context.folder, pipeline_of(context, name, cache), core)
            )
            for side, cache in ARRAY_SIDES.items()
        }
    got = {}
    for cache in (NO_CACHE, COEFFICIENTS):
        done = feedwater(context, context.folder, pipeline_of(context, name, cache), core)
        for side, (of_cache, is_first, _) in SIDES.items():
            if of_cache == cache:
                got[side] = Rate.of(done["first"] if is_first else done)
    return got


def theirs(context: Context, python: Path, loader: Loader, core: list[int]) -> Rate:
    """Measure another loader, over all epochs after the first."""
    folder = folder_of(context, loader.data)
    command = [python, LOADERS / "driver.py", loader.script, "read", folder, "1", cpu_list(core)]
    return Rate.of(measured(command, context.folder))


def run(context: Context) -> list[Figure]:
    """Measure."""
    core = sorted(os.sched_getaffinity(0))[-1:]  # the first one has the most interrupts
    known = known_formats()
    chosen: dict[Loader, Path] = {}
    for loader in OTHERS:
        what = f"{loader.data} ÷ {loader.name}"
        python = python_for(context, loader)
        if DATA[loader.data].format not in known:
            context.absent[what] = f"this build does not read {DATA[loader.data].format}"
        elif python is None:
            context.absent[what] = f"no Python has {loader.imports}: --install, or --python PATH"
        else:
            try:
                write(context, python, loader.data)
                chosen[loader] = python
            except RuntimeError as error:
                context.absent[what] = f"cannot write its files: {error}"
    names = list(dict.fromkeys(loader.data for loader in chosen))
    own: dict[tuple[str, str], list[Rate]] = {}
    other: dict[Loader, list[Rate]] = {}
    for number in range(1 if context.quick else ROUNDS):
        step = 1 if number % 2 == 0 else -1  # each round in the other order
        for name in names[::step]:
            for loader in [None, *(one for one in chosen if one.data == name)][::step]:
                if loader is None:
                    for side, rate in ours(context, name, core).items():
                        own.setdefault((name, side), []).append(rate)
                    continue
                try:
                    rate = theirs(context, chosen[loader], loader, core)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    context.absent[f"{name} ÷ {loader.name}"] = f"does not run: {error}"
                    del chosen[loader]
                    other.pop(loader, None)
                else:
                    other.setdefault(loader, []).append(rate)
    return [*ratios(own, other), *plain(own, other)]


def ratios(own: dict, other: dict) -> list[Figure]:
    """Return Feedwater ÷ each library, round by round: samples a second, and CPU for each."""
    figures = []
    for loader, rates in other.items():
        for (name, side), mine in own.items():
            if name != loader.data:
                continue
            what = f"{name}{f', {side}' if side else ''} ÷ {loader.name}"
            goals = loader.goals if side in ARRAY_SIDES else SIDES[side][2]
            must, aim = goals or (None, None)
            pairs = list(zip(mine, rates))
            faster = [ours.samples_per_s / theirs.samples_per_s for ours, theirs in pairs]
            cheaper = [theirs.cpu_s_per_1000 / ours.cpu_s_per_1000 for ours, theirs in pairs]
            figures += [
                Figure.of(what, faster, must=must, aim=aim, column="samples/s"),
                Figure.of(what, cheaper, must=must, aim=aim, column="samples for a CPU second"),
            ]
    return figures


def plain(own: dict, other: dict) -> list[Figure]:
    """Return what each side did, as it was measured."""
    rows = {f"Feedwater, {name}, {side}".rstrip(", "): rates for (name, side), rates in own.items()}
    rows |= {f"{loader.name}, {loader.data}": rates for loader, rates in other.items()}
    figures = []
    for what, rates in rows.items():
        figures += [
            Figure.of(what, [rate.samples_per_s for rate in rates], unit="samples/s",
                      column="samples/s", detail=True),
            Figure.of(what, [rate.cpu_s_per_1000 for rate in rates], unit="CPU s for 1,000",
                      better="less", column="CPU", detail=True),
        ]  # fmt: skip
    return figures
