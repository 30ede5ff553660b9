"""torchvision_pipelines.py FOLDER CPU: CPU seconds of a torchvision v2 pipeline for one photo.

The first photos of FOLDER are read, decoded by Pillow and transformed as PIL images. Each line on
standard input, "REPEATS NAME", is answered by the seconds for one image (suite/pipelines.py takes
turns with feedwater bench).
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

IMAGES = 60
BILINEAR = {"interpolation": InterpolationMode.BILINEAR}
TO_TENSOR = [
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
]
CROP = [v2.RandomResizedCrop(224, scale=(0.08, 1.0)), v2.RandomHorizontalFlip()]


def compose(*ops) -> v2.Compose:
    """Return the plain pipeline with some ops before the tensor."""
    return v2.Compose([*CROP, *ops, *TO_TENSOR])


def dino():
    """Return DINO's ten views as one function."""
    colours = [
        v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        v2.RandomGrayscale(0.2),
    ]

    def view(size: int, scale: tuple[float, float], *ops) -> v2.Compose:
        crop = v2.RandomResizedCrop(size, scale=scale, interpolation=InterpolationMode.BICUBIC)
        return v2.Compose([crop, *colours, *ops, *TO_TENSOR])

    blur, small = v2.GaussianBlur(23, (0.1, 2.0)), v2.GaussianBlur(11, (0.1, 2.0))
    views = [
        view(224, (0.4, 1.0), blur),
        view(224, (0.4, 1.0), v2.RandomApply([blur], p=0.1), v2.RandomSolarize(128, p=0.2)),
        *[view(96, (0.05, 0.4), v2.RandomApply([small], p=0.5)) for _ in range(8)],
    ]
    return lambda image: [one(image) for one in views]


PIPELINES = {
    "ImageNet": compose(),
    "SimCLR": compose(
        v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        v2.RandomGrayscale(0.2),
        v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], p=0.5),
    ),
    "RandAugment": compose(v2.RandAugment(**BILINEAR)),
    "TrivialAugment": compose(v2.TrivialAugmentWide(**BILINEAR)),
    "AutoAugment": compose(v2.AutoAugment(**BILINEAR)),
    "AugMix": compose(v2.AugMix(**BILINEAR)),
    "DINO": dino(),
}


def main() -> None:
    """Answer lines."""
    os.sched_setaffinity(0, {int(sys.argv[2])})
    torch.set_num_threads(1)
    names = (".jpg", ".jpeg")
    paths = [p for p in sorted(Path(sys.argv[1]).rglob("*")) if p.suffix.lower() in names]
    files = [path.read_bytes() for path in paths[:IMAGES]]
    for line in sys.stdin:
        repeats, name = line.split()
        transform = PIPELINES[name]
        start = time.process_time()
        for _ in range(int(repeats)):
            for file in files:
                transform(Image.open(io.BytesIO(file)).convert("RGB"))
        print((time.process_time() - start) / int(repeats) / len(files), flush=True)


main()
