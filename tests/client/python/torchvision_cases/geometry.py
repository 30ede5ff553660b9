"""What moves pixels: sizes, crops, flips, padding, warps."""

from __future__ import annotations

from torchvision_fakes import (
    AS_FLOATS,
    CENTER,
    FLIP,
    IMAGENET,
    NORMALIZE,
    TO_IMAGE,
    TO_TENSOR,
    V2,
    InterpolationMode,
    Table,
    fake,
    random_crop,
    resize,
    rotation,
)

TRANSLATED: Table = {
    "a rotation": (
        [rotation(center=(3, 4), expand=True)],
        [
            {
                "random_rotation": {
                    "degrees": [-9.0, 9.0],
                    "interpolation": "bilinear",
                    "expand": True,
                    "center": [3, 4],
                }
            }
        ],
    ),
    "an affine map": (
        [
            fake(
                "RandomAffine",
                degrees=[-9.0, 9.0],
                translate=(0.1, 0.2),
                scale=None,
                shear=[-5.0, 5.0],
                interpolation=InterpolationMode.NEAREST,
                fill=7,
                center=None,
            )
        ],
        [
            {
                "random_affine": {
                    "degrees": [-9.0, 9.0],
                    "fill": [7.0],
                    "translate": [0.1, 0.2],
                    "shear": [-5.0, 5.0],
                }
            }
        ],
    ),
    "a perspective": (
        [
            fake(
                "RandomPerspective",
                distortion_scale=0.3,
                p=0.5,
                interpolation=InterpolationMode.BILINEAR,
                fill=0,
            )
        ],
        [{"random_perspective": {"distortion_scale": 0.3}}],
    ),
    "an elastic one": (
        [
            fake(
                "ElasticTransform",
                alpha=[40.0, 40.0],
                sigma=[5.0, 5.0],
                interpolation=InterpolationMode.BILINEAR,
                fill=0,
            )
        ],
        [{"elastic_transform": {"alpha": [40.0, 40.0]}}],
    ),
    "sizes for detection": (
        [
            fake("RandomZoomOut", V2, fill=0, side_range=(1.0, 3.0), p=0.5),
            fake(
                "ScaleJitter",
                V2,
                target_size=(48, 64),
                scale_range=(0.5, 2.0),
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
            fake(
                "RandomResize",
                V2,
                min_size=32,
                max_size=41,
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
            fake(
                "RandomShortestSize",
                V2,
                min_size=[32, 40],
                max_size=90,
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            ),
        ],
        [
            {"random_zoom_out": {"side_range": [1.0, 3.0]}},
            {"scale_jitter": {"target_size": [64, 48], "scale_range": [0.5, 2.0]}},
            {"random_resize": {"min_size": 32, "max_size": 41}},
            {"random_short_side": {"min_size": [32, 40], "max_size": 90}},
        ],
    ),
    "a border": (
        [fake("Pad", padding=[1, 2], fill=7, padding_mode="constant")],
        [{"pad": {"padding": [1, 2], "fill": [7.0]}}],
    ),
    "borders of version 2, which keeps them as they were given": (
        [
            fake("Pad", V2, padding=padding, fill=0, padding_mode="constant")
            for padding in (4, [1, 2], [1, 2, 3, 4])
        ],
        [{"pad": {"padding": padding}} for padding in (4, [1, 2], [1, 2, 3, 4])],
    ),
    "the shorter side": ([resize(256)], [{"resize": {"size": 256}}]),
    "the shorter side, as v2 keeps it": ([resize([256])], [{"resize": {"size": 256}}]),
    "both sides": ([resize((3, 4))], [{"resize": {"size": [3, 4]}}]),
    "both sides alike": ([resize((4, 4))], [{"resize": {"size": [4, 4]}}]),
    "a longest side": ([resize(8, max_size=9)], [{"resize": {"size": 8, "max_size": 9}}]),
    "bicubic": (
        [resize(8, InterpolationMode.BICUBIC)],
        [{"resize": {"size": 8, "interpolation": "bicubic"}}],
    ),
    "a number of Pillow's": ([resize(8, 3)], [{"resize": {"size": 8, "interpolation": "bicubic"}}]),
    "nearest of Pillow": (
        [resize(8, InterpolationMode.NEAREST)],
        [{"resize": {"size": 8, "interpolation": "nearest"}}],
    ),
    "the middle": ([CENTER], [{"center_crop": {"size": 224}}]),
    "an oblong middle": ([fake("CenterCrop", size=(2, 3))], [{"center_crop": {"size": [2, 3]}}]),
    "a random part": (
        [
            fake(
                "RandomResizedCrop",
                size=(8, 8),
                scale=(0.2, 1.0),
                ratio=(0.5, 2.0),
                interpolation=InterpolationMode.BILINEAR,
                antialias=True,
            )
        ],
        [{"random_resized_crop": {"size": 8, "scale": [0.2, 1.0], "ratio": [0.5, 2.0]}}],
    ),
    "flips": (
        [FLIP, fake("RandomVerticalFlip", p=0.1)],
        ["random_horizontal_flip", {"random_vertical_flip": {"p": 0.1}}],
    ),
    "flips behind Normalize": (
        [TO_TENSOR, NORMALIZE, FLIP],
        [IMAGENET, "random_horizontal_flip"],
    ),
    "padding": ([random_crop(padding=4)], [{"random_crop": {"size": 32, "padding": 4}}]),
    "padding of four sides": (
        [random_crop(padding=(1, 2, 3, 4), fill=(1, 2, 3), pad_if_needed=True)],
        [
            {
                "random_crop": {
                    "size": 32,
                    "padding": [1, 2, 3, 4],
                    "pad_if_needed": True,
                    "fill": [1.0, 2.0, 3.0],
                }
            }
        ],
    ),
    # Of v2 the attribute is left, right, top, bottom.
    "padding of four sides in v2": (
        [random_crop(module=V2, padding=[1, 3, 2, 4])],
        [{"random_crop": {"size": 32, "padding": [1, 2, 3, 4]}}],
    ),
    "a fill of floats": (
        [TO_TENSOR, random_crop(padding=4, fill=0.2)],
        [{"random_crop": {"size": 32, "padding": 4, "fill": [51.0]}}, AS_FLOATS],
    ),
    "a fill of normalized floats": (
        [TO_TENSOR, NORMALIZE, random_crop(padding=4, fill=0.25)],
        [IMAGENET, {"random_crop": {"size": 32, "padding": 4, "fill": [0.25]}}],
    ),
}

REFUSED: Table = {
    "crops of a tuple": ([fake("FiveCrop", size=(8, 8))], "put that behind normalize (nearest op: "
                         "five_crop)"),
    "boxes": ([fake("RandomIoUCrop", V2)], "it needs boxes"),
    "a rotation of tensors": ([TO_IMAGE, rotation()], "put it before ToImage"),
    "a bicubic rotation": ([rotation(interpolation=InterpolationMode.BICUBIC)], "random_rotation"),
    "a reflected border": ([fake("Pad", padding=3, fill=0, padding_mode="reflect")],
                           "mode 'reflect'"),
    "Lanczos": ([resize(8, InterpolationMode.LANCZOS)], "no interpolation LANCZOS; bicubic is"),
    "box": ([resize(8, 4)], "no interpolation BOX"),
    "nearest of tensors": ([TO_IMAGE, resize(8, InterpolationMode.NEAREST)], "before ToImage"),
    "exact nearest of tensors": (
        [TO_IMAGE, resize(8, InterpolationMode.NEAREST_EXACT)], "NEAREST-EXACT picks other pixels"
    ),
    "no antialias": ([TO_IMAGE, resize(8, antialias=None)], "say antialias=True"),
    "a resize of floats": ([TO_TENSOR, resize(8)], "put it before ToTensor (ToDtype) (nearest op: "
                           "resize)"),
    "a longest side alone": ([resize(None, max_size=8)], "needs 'size' beside 'max_size'"),
    "too small": ([resize(0)], "feedwater.ops.resize: size is 0: it is an integer from 1"),
    "reflected padding": ([random_crop(padding=4, padding_mode="reflect")], "mode 'reflect'"),
    "a fill between bytes": ([TO_TENSOR, random_crop(fill=0.5)], "images are bytes before"),
    "fills by type": ([random_crop(fill={int: 3})], "'fill' is a map"),
}  # fmt: skip
