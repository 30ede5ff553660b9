#!/usr/bin/env python3
"""parity.py OP_PIXELS PHOTOS OUT: how far each op is from what other libraries make of real photos.

OP_PIXELS is build/release/tools/op_pixels, PHOTOS a folder of JPEGs; OUT is
config/reference/parity.json, from which scripts/generate-reference writes the tables of ops.md.

Runs where torchvision, Albumentations, OpenCV and Pillow are: pip install torch==2.14.1
torchvision==0.29.1 albumentations==2.0.8 opencv-python-headless pillow numpy. Each op runs with
parameters that leave nothing to chance (`p: 1`, ranges of one value) beside the same transform.
Ops that only draw, or copy pixels to drawn places, are listed with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

import albumentations as A
import cv2
import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as T
from torchvision.transforms.v2 import functional as F

PHOTOS = 24
BILINEAR, NEAREST, BICUBIC = (
    InterpolationMode.BILINEAR,
    InterpolationMode.NEAREST,
    InterpolationMode.BICUBIC,
)
IMAGENET = "mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
MATRIX = [[0.5, 0.25, 0.125], [-1.0, 2.0, 0.0], [0.1, 0.2, 0.3]]

PICTURE, TENSOR, ALBUMENTATIONS, FLOATS = (
    "torchvision on Pillow's images",
    "torchvision on tensors of bytes",
    "Albumentations",
    "torchvision on tensors of floats",
)


def tensor(image: np.ndarray) -> torch.Tensor:
    """Return the image as torchvision has it."""
    return torch.from_numpy(image).permute(2, 0, 1).contiguous()


def by_albumentations(transform: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a transform of Albumentations makes of an image."""
    return lambda image: transform(image=image)["image"]


def normalized(image: np.ndarray) -> torch.Tensor:
    """Return ImageNet's floats."""
    return F.normalize(F.to_dtype(tensor(image), torch.float32, scale=True), MEAN, STD)


def pictures(transform: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a transform makes of Pillow's image."""
    return lambda image: np.asarray(transform(Image.fromarray(image)))


def planes(transform: Callable[[torch.Tensor], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a transform makes of a tensor of bytes, as pixels."""
    return lambda image: transform(tensor(image)).permute(1, 2, 0).numpy()


def stacked(transform: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the crops of Pillow's image in one array."""
    return lambda image: np.stack([np.asarray(c) for c in transform(Image.fromarray(image))])


def whitened(image: np.ndarray) -> np.ndarray:
    """Return the middle pixel through torchvision's matrix."""
    small = normalized(image)
    y, x = (round((side - 1) / 2.0) for side in small.shape[1:])
    step = T.LinearTransformation(torch.tensor(MATRIX), torch.tensor([0.1, 0.2, 0.3]))
    return step(small[:, y : y + 1, x : x + 1].contiguous()).numpy()


# op, its parameters, beside what, the graph where it is not the op alone, the other side.
Row = tuple[str, str, str, str, Callable[[np.ndarray], np.ndarray]]
ROWS: list[Row] = [
    ("adjust_brightness", "brightness_factor: 1.3", PICTURE, "",
     pictures(lambda i: F.adjust_brightness(i, 1.3))),
    ("adjust_contrast", "contrast_factor: 1.5", PICTURE, "",
     pictures(lambda i: F.adjust_contrast(i, 1.5))),
    ("adjust_gamma", "gamma: 0.7", PICTURE, "", pictures(lambda i: F.adjust_gamma(i, 0.7))),
    ("adjust_hue", "hue_factor: 0.1", PICTURE, "", pictures(lambda i: F.adjust_hue(i, 0.1))),
    ("adjust_saturation", "saturation_factor: 1.5", PICTURE, "",
     pictures(lambda i: F.adjust_saturation(i, 1.5))),
    ("center_crop", "size: 224", PICTURE, "", pictures(lambda i: F.center_crop(i, [224, 224]))),
    ("clahe", "clip_limit: 4, tile_grid_size: 8, p: 1", ALBUMENTATIONS, "",
     by_albumentations(A.CLAHE((4, 4), (8, 8), p=1))),
    ("color_jitter", "brightness: [1.3, 1.3]", PICTURE, "",
     pictures(T.ColorJitter(brightness=(1.3, 1.3)))),
    ("color_jitter", "contrast: [0.7, 0.7]", PICTURE, "",
     pictures(T.ColorJitter(contrast=(0.7, 0.7)))),
    ("color_jitter", "saturation: [1.5, 1.5]", PICTURE, "",
     pictures(T.ColorJitter(saturation=(1.5, 1.5)))),
    ("color_jitter", "saturation: [1.5, 1.5]", TENSOR, "",
     planes(T.ColorJitter(saturation=(1.5, 1.5)))),
    ("color_jitter", "hue: [0.1, 0.1]", PICTURE, "", pictures(T.ColorJitter(hue=(0.1, 0.1)))),
    ("five_crop", "size: 200", PICTURE, "", stacked(T.FiveCrop(200))),
    ("gaussian_blur", "kernel_size: 23, sigma: 2.0", PICTURE, "",
     pictures(lambda i: F.gaussian_blur(i, [23, 23], [2.0, 2.0]))),
    ("gaussian_blur", "kernel_size: 23, sigma: 2.0", ALBUMENTATIONS, "",
     by_albumentations(A.GaussianBlur(blur_limit=(23, 23), sigma_limit=(2.0, 2.0), p=1))),
    ("grayscale", "num_output_channels: 3", PICTURE, "", pictures(T.Grayscale(3))),
    ("grayscale", "num_output_channels: 3", ALBUMENTATIONS, "", by_albumentations(A.ToGray(p=1))),
    ("jpeg", "quality: 50", TENSOR, "", planes(lambda i: F.jpeg(i, 50))),
    ("jpeg", "quality: 90", f"{ALBUMENTATIONS}, which compresses RGB as if it were BGR", "",
     by_albumentations(A.ImageCompression(quality_range=(90, 90), p=1))),
    ("layout", "layout: CHW", TENSOR, "", lambda i: tensor(i).numpy()),
    ("linear_transformation", "three rows, behind normalize", FLOATS,
     f"[{{center_crop: {{size: 1}}}}, {{normalize: {{{IMAGENET}}}}}, {{linear_transformation: "
     f"{{transformation_matrix: {MATRIX}, mean_vector: [0.1, 0.2, 0.3]}}}}]", whitened),
    ("median_blur", "kernel_size: 3, p: 1", ALBUMENTATIONS, "",
     by_albumentations(A.MedianBlur(blur_limit=(3, 3), p=1))),
    ("median_blur", "kernel_size: 7, p: 1", ALBUMENTATIONS, "",
     by_albumentations(A.MedianBlur(blur_limit=(7, 7), p=1))),
    ("motion_blur", "blur_limit: 7, degrees: [0, 0], p: 1", ALBUMENTATIONS, "",
     by_albumentations(A.MotionBlur(blur_limit=(7, 7), angle_range=(0, 0),
                                    direction_range=(0, 0), allow_shifted=False, p=1))),
    ("normalize", IMAGENET, FLOATS, "", lambda i: normalized(i).numpy()),
    ("pad", "padding: [3, 5], fill: 7", PICTURE, "", pictures(lambda i: F.pad(i, [3, 5], 7))),
    ("random_adjust_sharpness", "sharpness_factor: 2, p: 1", PICTURE, "",
     pictures(lambda i: F.adjust_sharpness(i, 2))),
    ("random_affine",
     "degrees: [10, 10], scale: [1.2, 1.2], shear: [5, 5], interpolation: bilinear", PICTURE, "",
     pictures(lambda i: F.affine(i, 10, [0, 0], 1.2, [5, 0], BILINEAR))),
    ("random_autocontrast", "p: 1", PICTURE, "", pictures(F.autocontrast)),
    ("random_equalize", "p: 1", PICTURE, "", pictures(F.equalize)),
    ("random_grayscale", "p: 1", PICTURE, "", pictures(T.RandomGrayscale(p=1))),
    ("random_horizontal_flip", "p: 1", PICTURE, "", pictures(F.horizontal_flip)),
    ("random_invert", "p: 1", PICTURE, "", pictures(F.invert)),
    ("random_posterize", "bits: 4, p: 1", PICTURE, "", pictures(lambda i: F.posterize(i, 4))),
    ("random_rotation", "degrees: [30, 30], interpolation: bilinear", PICTURE, "",
     pictures(lambda i: F.rotate(i, 30, BILINEAR))),
    ("random_rotation", "degrees: [30, 30]", PICTURE, "",
     pictures(lambda i: F.rotate(i, 30, NEAREST))),
    ("random_resize", "min_size: 256, max_size: 257", PICTURE,
     "[{random_resize: {min_size: 256, max_size: 257}}, {center_crop: {size: 256}}]",
     pictures(lambda i: F.center_crop(F.resize(i, [256], BILINEAR), [256, 256]))),
    ("random_short_side", "min_size: [256]", PICTURE, "[{random_short_side: {min_size: [256]}}, "
     "{center_crop: {size: 256}}]",
     pictures(lambda i: F.center_crop(F.resize(i, [256], BILINEAR), [256, 256]))),
    ("random_solarize", "threshold: 128, p: 1", PICTURE, "",
     pictures(lambda i: F.solarize(i, 128))),
    ("random_vertical_flip", "p: 1", PICTURE, "", pictures(F.vertical_flip)),
    ("resize", "size: [224, 224]", PICTURE, "",
     pictures(lambda i: F.resize(i, [224, 224], BILINEAR))),
    ("resize", "size: [224, 224]", TENSOR, "",
     planes(lambda i: F.resize(i, [224, 224], BILINEAR, antialias=True))),
    ("resize", "size: [224, 224], interpolation: bicubic", PICTURE, "",
     pictures(lambda i: F.resize(i, [224, 224], BICUBIC))),
    ("resize", "size: [224, 224], interpolation: nearest", PICTURE, "",
     pictures(lambda i: F.resize(i, [224, 224], NEAREST))),
    ("resize", "size: [224, 224], interpolation: opencv_linear", ALBUMENTATIONS, "",
     by_albumentations(A.Resize(224, 224, interpolation=cv2.INTER_LINEAR))),
    ("ten_crop", "size: 200", PICTURE, "", stacked(T.TenCrop(200))),
]  # fmt: skip

COPIES = "pixels are copied; the draws decide from where"
POLICY = (
    "the draws decide; each operation is one of the ops above and below, of Pillow's arithmetic"
)
NOT_COMPARED = {
    "apply": "the ops in it are compared by themselves",
    "one_of": "the ops in it are compared by themselves",
    "some_of": "the ops in it are compared by themselves",
    "aug_mix": POLICY,
    "auto_augment": POLICY,
    "coarse_dropout": COPIES,
    "cutmix": COPIES,
    "decode": "the codec's tests compare with libjpeg-turbo and the other decoders, bit for bit",
    "elastic_transform": "the displacements are random; pixels are looked up as by random_affine",
    "gaussian_noise": "the noise is random; its distribution is tested",
    "grid_distortion": "the steps are random; pixels are looked up as by random_affine",
    "lighting": "the amounts are random; a test computes them by hand",
    "mixup": "weights and partners are random; a test computes them by hand",
    "rand_augment": POLICY,
    "random_channel_permutation": COPIES,
    "random_crop": COPIES,
    "random_erasing": COPIES,
    "random_iou_crop": COPIES,
    "random_perspective": "the corners are random; pixels are looked up as by random_affine",
    "random_photometric_distort": "order and amounts are random; the steps are color_jitter's",
    "random_resized_crop": "the crop is random; it is resampled as by resize",
    "random_zoom_out": COPIES,
    "scale_jitter": "the scale is random; it is resampled as by resize",
    "trivial_augment_wide": POLICY,
}


class Ours:
    """The program that runs graphs."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def make(self, graph: str, image: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Return the graph's image, in the other side's type and shape."""
        height, width, channels = image.shape
        self._process.stdin.write(f"{height} {width} {channels} {graph}\n".encode())
        self._process.stdin.write(image.tobytes())
        self._process.stdin.flush()
        size, _, text = self._process.stdout.readline().decode().strip().partition(" ")
        if size == "0":
            sys.exit(f"{graph}: {text}")
        made = np.frombuffer(self._process.stdout.read(int(size)), like.dtype)
        if made.size != like.size:
            sys.exit(f"{graph}: {text}, and the other side has {like.dtype}{list(like.shape)}")
        return made.reshape(like.shape)


def significant(value: float) -> float:
    """Return two digits of a number."""
    return float(f"{value:.2g}")


def main() -> None:
    """Measure, and write the file."""
    program, folder, out = sys.argv[1:]
    ours = Ours(program)
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    images = [np.array(Image.open(path).convert("RGB")) for path in paths[:: len(paths) // PHOTOS]]
    images = [image for image in images if min(image.shape[:2]) >= 224][:PHOTOS]
    rows = []
    for op, parameters, beside, graph, other in ROWS:
        graph = graph or f"[{op}: {{{parameters}}}]"
        largest, mean = 0.0, 0.0
        for image in images:
            theirs = np.ascontiguousarray(other(image))
            difference = np.abs(
                ours.make(graph, image, theirs).astype(np.float64) - theirs.astype(np.float64)
            )
            largest = max(largest, float(difference.max()))
            mean += float(difference.mean()) / len(images)
        rows.append(
            {
                "op": op,
                "parameters": parameters,
                "beside": beside,
                "largest": significant(largest),
                "mean": significant(mean),
            }
        )
        print(op, parameters, beside, rows[-1]["largest"], rows[-1]["mean"], flush=True)
    document = {
        "versions": {
            "torchvision": torchvision.__version__.partition("+")[0],
            "torch": torch.__version__.partition("+")[0],
            "Pillow": PIL.__version__,
            "Albumentations": A.__version__,
            "OpenCV": cv2.__version__,
        },
        "photos": len(images),
        "rows": rows,
        "not_compared": NOT_COMPARED,
    }
    Path(out).write_text(json.dumps(document, indent=1) + "\n")


main()
