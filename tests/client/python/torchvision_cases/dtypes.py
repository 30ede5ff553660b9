"""Pictures, tensors and their types: ToTensor, ToDtype, Normalize, whole presets."""

from __future__ import annotations

from torchvision_fakes import (
    AS_FLOATS,
    CENTER,
    DOUBLE,
    FLIP,
    FLOAT,
    HALF,
    IMAGENET,
    NORMALIZE,
    TO_IMAGE,
    TO_TENSOR,
    UINT8,
    V2,
    InterpolationMode,
    Table,
    compose,
    fake,
    resize,
    to_dtype,
)

TRANSLATED: Table = {
    "ImageNet's": (
        [resize(256), CENTER, TO_TENSOR, NORMALIZE],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "ImageNet's in v2": (
        [TO_IMAGE, resize([256]), CENTER, to_dtype(FLOAT, True), NORMALIZE],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "a model's own": (
        [
            fake(
                "ImageClassification",
                "torchvision.transforms._presets",
                crop_size=[224],
                resize_size=[256],
                mean=NORMALIZE.mean,
                std=NORMALIZE.std,
                antialias=True,
                interpolation=InterpolationMode.BILINEAR,
            )
        ],
        [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}, IMAGENET],
    ),
    "floats without Normalize": ([TO_TENSOR], [AS_FLOATS]),
    "bytes of a tensor": ([fake("PILToTensor")], ["layout"]),
    "floats of 0..255": (
        [TO_IMAGE, to_dtype(FLOAT)],
        [{"normalize": {"mean": [0.0], "std": [1.0]}}],
    ),
    "Normalize of 0..255": (
        [TO_IMAGE, to_dtype(FLOAT), fake("Normalize", mean=[120.0], std=[60.0])],
        [{"normalize": {"mean": [120.0], "std": [60.0]}}],
    ),
    "the name of a type by v1": (
        [fake("PILToTensor"), fake("ConvertImageDtype", dtype=FLOAT)],
        [AS_FLOATS],
    ),
    "bytes again": ([TO_IMAGE, to_dtype(UINT8, True)], ["layout"]),
    "halves": (
        [TO_TENSOR, NORMALIZE, FLIP, to_dtype(HALF)],
        [{"normalize": {**IMAGENET["normalize"], "dtype": "float16"}}, "random_horizontal_flip"],
    ),
    "what changes nothing": (
        [
            fake("Identity", "torch.nn.modules.linear"),
            fake("RGB", V2),
            TO_IMAGE,
            fake("ToPILImage"),
            fake("ToPureTensor", V2),
            FLIP,
        ],
        ["random_horizontal_flip"],
    ),
    "a Compose in a Compose": (
        [compose(FLIP, compose(CENTER)), TO_TENSOR],
        ["random_horizontal_flip", {"center_crop": {"size": 224}}, AS_FLOATS],
    ),
}

REFUSED: Table = {
    "Normalize of bytes": ([NORMALIZE], "transform 1, Normalize: it needs floats: ToTensor"),
    "two tensors": ([TO_TENSOR, TO_TENSOR], "transform 2, ToTensor: it stands behind"),
    "a type of a picture": ([to_dtype(FLOAT)], "it needs a tensor: ToImage stands before it"),
    "doubles": ([TO_IMAGE, to_dtype(DOUBLE, True)], "to float64: normalize makes float32"),
    "bytes of floats": ([TO_TENSOR, to_dtype(UINT8, True)], "to uint8"),
    "a picture of floats": ([TO_TENSOR, fake("ToPILImage")], "it makes bytes of floats"),
    "many channels": ([TO_TENSOR, fake("Normalize", mean=[0.5] * 4, std=[1])], "normalize: mean"),
}  # fmt: skip
