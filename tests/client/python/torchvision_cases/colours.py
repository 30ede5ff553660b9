"""What changes pixels where they are: colours, filters, noise, erasing, learned policies."""

from __future__ import annotations

from torchvision_fakes import (
    AS_FLOATS,
    FLOAT,
    IMAGENET,
    NORMALIZE,
    TO_IMAGE,
    TO_TENSOR,
    V2,
    InterpolationMode,
    Policy,
    Table,
    erasing,
    fake,
    normalized,
    to_dtype,
)

PICKED = {"interpolation": InterpolationMode.NEAREST, "fill": None}
TRANSLATED: Table = {
    "a blur": (
        [TO_IMAGE, fake("GaussianBlur", kernel_size=(5, 9), sigma=(0.1, 5.0))],
        [{"gaussian_blur": {"kernel_size": [5, 9], "sigma": [0.1, 5.0]}}, "layout"],
    ),
    "noise": (
        [TO_IMAGE, fake("GaussianNoise", V2, mean=0.0, sigma=0.2, clip=True)],
        [{"gaussian_noise": {"sigma": 0.2}}, "layout"],
    ),
    "artefacts of a JPEG": (
        [fake("JPEG", V2, quality=(50, 90))],
        [{"jpeg": {"quality": [50, 90]}}],
    ),
    "whitened colours": (
        [
            TO_TENSOR,
            NORMALIZE,
            fake("LinearTransformation", transformation_matrix=[[2.0]], mean_vector=[0.5]),
        ],
        [
            IMAGENET,
            {"linear_transformation": {"transformation_matrix": [[2.0]], "mean_vector": [0.5]}},
        ],
    ),
    "points": (
        [
            fake("RandomInvert", p=0.5),
            fake("RandomPosterize", bits=3, p=0.2),
            fake("RandomSolarize", threshold=128, p=0.5),
            fake("RandomEqualize", p=1),
            fake("RandomAutocontrast", p=0.5),
            fake("RandomGrayscale", p=0.1),
            fake("RandomChannelPermutation", V2),
        ],
        [
            "random_invert",
            {"random_posterize": {"bits": 3, "p": 0.2}},
            {"random_solarize": {"threshold": 128}},
            {"random_equalize": {"p": 1}},
            "random_autocontrast",
            "random_grayscale",
            "random_channel_permutation",
        ],
    ),
    "photometric distortion": (
        [
            fake(
                "RandomPhotometricDistort",
                V2,
                brightness=(0.875, 1.125),
                contrast=(0.5, 1.5),
                saturation=(0.5, 1.5),
                hue=(-0.1, 0.1),
                p=0.5,
            )
        ],
        [{"random_photometric_distort": {"hue": [-0.1, 0.1]}}],
    ),
    "policies": (
        [
            fake("RandAugment", num_ops=3, magnitude=7, num_magnitude_bins=31, **PICKED),
            fake("TrivialAugmentWide", num_magnitude_bins=31, **PICKED),
            fake("AutoAugment", policy=Policy.CIFAR10, **PICKED),
            fake(
                "AugMix",
                severity=4,
                mixture_width=3,
                chain_depth=-1,
                alpha=1.0,
                all_ops=True,
                interpolation=InterpolationMode.BILINEAR,
                fill=None,
            ),
        ],
        [
            {"rand_augment": {"num_ops": 3, "magnitude": 7}},
            "trivial_augment_wide",
            {"auto_augment": {"policy": "cifar10"}},
            {"aug_mix": {"severity": 4}},
        ],
    ),
    "sharpness": (
        [fake("RandomAdjustSharpness", sharpness_factor=2, p=0.5)],
        [{"random_adjust_sharpness": {"sharpness_factor": 2}}],
    ),
    "erasing behind Normalize": (
        [TO_TENSOR, NORMALIZE, erasing(value=(1.5, 0, -1))],
        [IMAGENET, {"random_erasing": {"p": 0.25, "value": [1.5, 0.0, -1.0]}}],
    ),
    "erasing with noise": (
        [TO_TENSOR, NORMALIZE, erasing(value="random")],
        [IMAGENET, {"random_erasing": {"p": 0.25, "noise": True}}],
    ),
    "colours": (
        [
            fake(
                "ColorJitter",
                brightness=(0.6, 1.4),
                contrast=None,
                saturation=None,
                hue=(-0.1, 0.1),
            )
        ],
        [{"color_jitter": {"brightness": [0.6, 1.4], "hue": [-0.1, 0.1]}}],
    ),
    "no colours": (
        [fake("ColorJitter", brightness=None, contrast=None, saturation=None, hue=None)],
        [],
    ),
    "grey of three channels": (
        [fake("Grayscale", num_output_channels=3)],
        [{"grayscale": {"num_output_channels": 3}}],
    ),
    "one grey channel": (
        [fake("Grayscale", num_output_channels=1), TO_TENSOR, normalized((0.5,), (0.25,))],
        ["grayscale", {"normalize": {"mean": [127.5], "std": [63.75]}}],
    ),
    "grey of tensors": (
        [TO_IMAGE, fake("Grayscale", V2, num_output_channels=1), to_dtype(FLOAT, True)],
        ["grayscale", AS_FLOATS],
    ),
    "grey and back": (
        [fake("Grayscale", V2, num_output_channels=1), fake("RGB", V2), TO_TENSOR, NORMALIZE],
        ["grayscale", {"grayscale": {"num_output_channels": 3}}, IMAGENET],
    ),
}

REFUSED: Table = {
    "autocontrast of tensors": ([TO_IMAGE, fake("RandomAutocontrast", p=0.5)], "before ToImage"),
    "solarize of floats": ([fake("RandomSolarize", threshold=0.5, p=0.5)], "from 0 to 255"),
    "noise that is not clipped": ([TO_IMAGE, fake("GaussianNoise", V2, mean=0, sigma=0.1,
                                                  clip=False)], "the op clips"),
    "whitening of bytes": ([fake("LinearTransformation", transformation_matrix=[[1]],
                                 mean_vector=[0])], "behind Normalize"),
    "sharpness of tensors": ([TO_IMAGE, fake("RandomAdjustSharpness", sharpness_factor=2, p=1)],
                             "put it before ToImage"),
    "noise of bytes": ([TO_TENSOR, erasing(value="random")], "does it behind Normalize"),
    "a jitter of floats": ([TO_TENSOR, fake("ColorJitter", brightness=(0, 1), contrast=None,
                                            saturation=None, hue=None)], "computes in floats"),
    "two grey channels": ([fake("Grayscale", num_output_channels=2)], "num_output_channels"),
    "grey of floats": ([TO_TENSOR, fake("Grayscale", num_output_channels=1)],
                       "computes in floats here"),
    "colours of a grey image": ([fake("Grayscale", num_output_channels=1), TO_TENSOR, NORMALIZE],
                                "transform 3, Normalize: mean has 3 values, and the image is grey: "
                                "it takes one (nearest op: normalize)"),
}  # fmt: skip
