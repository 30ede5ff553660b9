"""Standard pipelines from file to batch: beside the plain ImageNet one, and beside torchvision v2.

CPU time an image. Ours is that of the daemon's workers, from JPEGs in the page cache and from
coefficients in memory; torchvision's is that of one thread that reads the file, decodes it with
Pillow and runs the same transforms on PIL images, to a normalised float32 tensor. `--python PATH`
names a Python with torchvision; else that of `scripts/bench peers --install` is used.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack

from . import COEFFICIENTS, NO_CACHE, PHOTOS, ROOT, Context, Figure
from .ops import Side
from .peers import SCRIPTS, environment

CPU = sorted(os.sched_getaffinity(0))[-1]  # the first one has the most interrupts
NORMALIZE = "normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], layout: CHW"
CROP = "random_resized_crop: {size: [224, 224], scale: [0.08, 1.0]}"
FLIP = "random_horizontal_flip: {p: 0.5}"
PLAIN = "ImageNet"
# What stands between the crop and normalize; the names are the peer script's, too.
PIPELINES = {
    PLAIN: [FLIP],
    "SimCLR": [
        FLIP,
        "color_jitter: {brightness: 0.8, contrast: 0.8, saturation: 0.8, hue: 0.2, p: 0.8}",
        "random_grayscale: {p: 0.2}",
        "gaussian_blur: {kernel_size: 23, sigma: [0.1, 2.0], p: 0.5}",
    ],
    "RandAugment": [FLIP, "rand_augment: {interpolation: bilinear}"],
    "TrivialAugment": [FLIP, "trivial_augment_wide: {interpolation: bilinear}"],
    "AutoAugment": [FLIP, "auto_augment: {interpolation: bilinear}"],
    "AugMix": [FLIP, "aug_mix: {interpolation: bilinear}"],
}
HEAD = "version: 1\ndataset: {dataset}\nsampler: {{shuffle: full, seed: 42, last: drop}}\n"


def _texts() -> dict[str, str]:
    """Return the pipelines that are measured, without their caches."""
    tail = "batch: {size: 64}\noutputs: [image, label]\n"
    texts = {}
    for name, ops in PIPELINES.items():
        lines = ["decode: {in: data, out: image}", CROP, *ops, NORMALIZE + "}"]
        texts[name] = HEAD.format(dataset=PHOTOS) + "graph:\n" + "".join(
            f"  - {line}\n" for line in lines
        ) + tail  # fmt: skip
    dino = (ROOT / "config/pipelines/dino.yaml").read_text()
    graph = dino[dino.index("graph:") : dino.index("batch:")]
    batch = "batch: {size: 16}\n"
    head = HEAD.format(dataset=PHOTOS)
    texts["DINO"] = f'{head}{graph}{batch}outputs: ["view_{{0..9}}", label]\n'
    texts["DINO's first view"] = f"{head}{graph}{batch}outputs: [view_0, label]\n"
    return texts


def _torchvision(context: Context) -> str | None:
    """Return a Python that has torchvision."""
    for python in [*map(str, context.pythons), str(environment("torch_") / "bin/python")]:
        probe = [python, "-c", "import torchvision.transforms.v2, PIL"]
        try:
            if subprocess.run(probe, capture_output=True).returncode == 0:
                return python
        except OSError:
            continue
    context.absent["torchvision"] = "not installed: scripts/bench peers --install, or --python"
    return None


def run(context: Context) -> list[Figure]:
    """Measure."""
    config = context.config([CPU])
    caches = {"JPEGs": NO_CACHE, "coefficients": COEFFICIENTS}
    texts = _texts()
    cpu: dict[tuple[str, str], list[float]] = {}
    theirs: dict[str, list[float]] = {}
    python = _torchvision(context)
    with ExitStack() as stack:
        peer = None
        if python is not None:
            script = SCRIPTS / "torchvision_pipelines.py"
            peer = Side(stack, [python, script, context.photos, str(CPU)])
        for _ in range(context.rounds):
            for name, text in texts.items():
                for side, cache in caches.items():
                    path = context.folder / f"pipeline-{side}.yaml"
                    path.write_text(f"{text}cache: {cache}\n")
                    done = context.bench(path, config)
                    cpu.setdefault((name, side), []).append(done["cpu_s_per_1000"] / 1000)
                if peer is not None and name in [*PIPELINES, "DINO"]:
                    theirs.setdefault(name, []).append(peer.seconds(f"1 {name}"))
    figures = []

    def ratio(what: str, over: list[float], under: list[float], **goals) -> None:
        figures.append(Figure.of(what, [a / b for a, b in zip(over, under)], **goals))

    for side in caches:
        goals = {"must": 2.0, "aim": 1.5} if side == "coefficients" else {}
        for name in PIPELINES:
            if name != PLAIN:
                ratio(f"CPU an image, {name} ÷ {PLAIN}", cpu[name, side], cpu[PLAIN, side],
                      better="less", column=side, **goals)  # fmt: skip
        ratio("CPU an image, DINO's ten views ÷ its first one", cpu["DINO", side],
              cpu["DINO's first view", side], must=3.5, aim=3.0, better="less",
              column=side)  # fmt: skip
        for name, times in theirs.items():
            ratio(f"torchvision's CPU an image ÷ ours, {name}", times, cpu[name, side],
                  must=8, aim=15, column=side)  # fmt: skip
    return figures
