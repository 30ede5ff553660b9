"""Batches to a CUDA device: their rate beside pinned memory, and whether a training step waits.

Rates: 16 batches of 256 raw images of 224x224 (38.5 MB each) that wait in shared memory, from
`next()` of the first to the end of the last copy, beside as many copies from torch's own pinned
memory; and the same with a step of the device behind each that takes as long as a copy. Training:
ResNet-50 in bfloat16, batches of 256, from photos of the page cache, beside the same steps over one
batch that stays on the device, and beside a DataLoader with torchvision and a worker for each CPU.
All sides take turns. The Python is the first one with torch, torchvision and the client's
requirements that sees a device, or one that `--python` names.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from . import COEFFICIENTS, NO_CACHE, ROOT, Context, Figure
from .own import measured
from .peers import FOLDER

SCRIPT = ROOT / "tests/bench/loaders/cuda_device.py"
NEEDS = """
import google.protobuf, grpc, numpy, torch, torchvision
assert torch.cuda.is_available(), "no CUDA device"
"""
RECORDS, RAW_BATCH, TAKEN = 16_384, 256, 16  # as the script takes
IMAGES = 25_600  # an epoch
ARRAYS = """\
import sys, numpy
images = numpy.lib.format.open_memmap(sys.argv[1], "w+", numpy.uint8, ({records}, 3, 224, 224))
images[:] = numpy.arange(224, dtype=numpy.uint8)
"""


def python_of(context: Context) -> Path | None:
    """Return the first Python that has what the scripts import, and a device."""
    made = [FOLDER / "torch" / "bin/python"]
    for python in [*context.pythons, *filter(Path.exists, made), Path(sys.executable)]:
        if subprocess.run([python, "-c", NEEDS], capture_output=True).returncode == 0:
            return python
    return None


def run(context: Context) -> list[Figure]:
    """Measure."""
    python = python_of(context)
    if python is None:
        context.absent["all"] = "no Python has torch, torchvision, grpcio and sees a CUDA device"
        return []
    return [*rates(context, python), *training(context, python)]


def rates(context: Context, python: Path) -> list[Figure]:
    """Compare copies."""
    arrays = context.folder / "raw.npy"
    subprocess.run([python, "-c", ARRAYS.format(records=RECORDS), arrays], check=True)
    dataset = f"{{format: npy, root: {context.folder}, fields: {{image: raw.npy}}}}"
    pipeline = context.train_pipeline(
        "raw", batch=RAW_BATCH, dataset=dataset, outputs="image", is_augmented=False
    )
    found = measured(context, python, SCRIPT, "copies", pipeline, context.seconds)
    arrays.unlink()
    alone = zip(found["pinned"], found["step"])
    longer = [max(copies, steps) for copies, steps in alone]
    figures = []
    for name, what, goals in (
        ("loader", '`device="cuda"`', ((0.8, 0.95), (1.2, 1.1))),
        ("by_hand", '`batch.to("cuda")` by hand', ((None, None), (None, None))),
    ):
        speed = [pinned / took for pinned, took in zip(found["pinned"], found[name])]
        steps = [took / most for took, most in zip(found[f"{name}_and_step"], longer)]
        figures += [
            Figure.of(f"{what}: bytes a second of waiting batches ÷ copies of pinned memory",
                      speed, must=goals[0][0], aim=goals[0][1]),
            Figure.of(f"{what}: copies with as long steps ÷ the longer of the two alone", steps,
                      must=goals[1][0], aim=goals[1][1], better="less"),
        ]  # fmt: skip
    size = RAW_BATCH * 3 * 224 * 224 * TAKEN
    for name in ("pinned", "pageable"):
        rates = [size / 1e9 / took for took in found[name]]
        figures.append(Figure.of(f"copies of {name} memory", rates, unit="GB/s", detail=True))
    return figures


def training(context: Context, python: Path) -> list[Figure]:
    """Compare training with what the device can do by itself."""
    photos = context.many(context.photos, IMAGES)
    dataset = f"{{format: image_folder, root: {photos}}}"
    resident = "a batch on the device"
    sides = {
        resident: ("train-resident", Path("-")),
        "DataLoader": ("train-dataloader", photos),
        **{
            f"Feedwater from {name}": (
                "train-feedwater",
                context.train_pipeline(name, cache=cache, batch=256, dataset=dataset),
            )
            for name, cache in (("JPEGs", NO_CACHE), ("coefficients", COEFFICIENTS))
        },
    }
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 if context.quick else 2):
        for name, (what, source) in sides.items():
            found = measured(context, python, SCRIPT, what, source, context.seconds)
            rounds[name] += found["images_per_s"]
    most = statistics.median(rounds[resident])
    figures = [
        Figure.of(f"ResNet-50 behind {name}: images a second ÷ those of {resident}",
                  [rate / most for rate in rates],
                  must=0.95 if name.startswith("Feedwater") else None)
        for name, rates in rounds.items() if name != resident
    ]  # fmt: skip
    return figures + [
        Figure.of(f"ResNet-50 behind {name}", got, unit="images/s", detail=True)
        for name, got in rounds.items()
    ]
