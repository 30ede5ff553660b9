"""albumentations_ops.py FOLDER CPU [AVX2]: CPU seconds of one transform of Albumentations.

The first photos of FOLDER become images of 224x224 RGB bytes. Each line on standard input,
"REPEATS NAME", is answered by the seconds for one of them (suite/ops.py takes turns with op_times).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

import albumentations as A
import cv2
import stringzilla

IMAGES = 40
NEUTRAL = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0), "p": 1}
RANGE = (0.6, 1.4)
TRANSFORMS = {
    "brightness": A.ColorJitter(**{**NEUTRAL, "brightness": RANGE}),
    "contrast": A.ColorJitter(**{**NEUTRAL, "contrast": RANGE}),
    "saturation": A.ColorJitter(**{**NEUTRAL, "saturation": RANGE}),
    "hue": A.ColorJitter(**{**NEUTRAL, "hue": (-0.1, 0.1)}),
    "color_jitter": A.ColorJitter(RANGE, RANGE, RANGE, (-0.1, 0.1), p=1),
    "grayscale": A.ToGray(p=1),
    "random_invert": A.InvertImg(p=1),
    "random_posterize": A.Posterize(num_bits=4, p=1),
    "random_solarize": A.Solarize(threshold_range=(0.5, 0.5), p=1),
    "random_equalize": A.Equalize(p=1),
    "random_autocontrast": A.AutoContrast(p=1),
    "random_channel_permutation": A.ChannelShuffle(p=1),
    "adjust_gamma": A.RandomGamma(gamma_limit=(70, 70), p=1),
    "lighting": A.FancyPCA(p=1),
    "gaussian_blur": A.GaussianBlur(blur_limit=(23, 23), sigma_limit=(0.1, 2.0), p=1),
    "random_rotation": A.Rotate(limit=30, p=1),
    "random_affine": A.Affine(
        rotate=(-30, 30), translate_percent=(0, 0.1), scale=(0.8, 1.2), shear=(-10, 10), p=1
    ),
    "random_perspective": A.Perspective(p=1),
    "random_adjust_sharpness": A.Sharpen(p=1),
    "random_erasing": A.CoarseDropout(num_holes_range=(1, 1), p=1),
    "median_blur_3": A.MedianBlur(blur_limit=(3, 3), p=1),
    "median_blur_5": A.MedianBlur(blur_limit=(5, 5), p=1),
    "median_blur_7": A.MedianBlur(blur_limit=(7, 7), p=1),
    "motion_blur": A.MotionBlur(blur_limit=(7, 7), p=1),
    "clahe": A.CLAHE(clip_limit=(4, 4), tile_grid_size=(8, 8), p=1),
    "jpeg": A.ImageCompression(quality_range=(50, 50), p=1),
    "elastic_transform": A.ElasticTransform(p=1),
    "random_horizontal_flip": A.HorizontalFlip(p=1),
}


def photos(folder: Path) -> list:
    """Return the first photos, resized."""
    images: list = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        image = cv2.imread(str(path), cv2.IMREAD_COLOR)
        if image is None:
            continue
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        images.append(cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA))
        if len(images) == IMAGES:
            break
    return images


def main() -> None:
    """Answer lines."""
    os.sched_setaffinity(0, {int(sys.argv[2])})
    cv2.setNumThreads(0)
    if sys.argv[3:] == ["AVX2"]:  # its tables, beside what the environment says to the others
        held = set(stringzilla.__capabilities__) & {"serial", "westmere", "goldmont", "haswell"}
        stringzilla.reset_capabilities(tuple(held))
    images = photos(Path(sys.argv[1]))
    for line in sys.stdin:
        repeats, name = line.split()
        transform = TRANSFORMS[name]
        for image in images[:5]:
            transform(image=image)
        start = time.process_time()
        for _ in range(int(repeats)):
            for image in images:
                transform(image=image)
        seconds = (time.process_time() - start) / int(repeats) / len(images)
        print(seconds, flush=True)


main()
