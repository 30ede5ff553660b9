"""Objects of classes with the names, modules and attributes of torchvision's transforms, for tests
that run where it is not installed.
"""

from __future__ import annotations

import enum
from typing import Any

import pytest

import feedwater
from feedwater import from_torchvision

FOLDER = {"format": "image_folder", "root": "photos"}
MNIST = {"format": "mnist", "root": "data"}
V1, V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2._geometry"
# Cases by name: transforms, and what comes of them.
Table = dict[str, tuple[list[Any], Any]]


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Policy(enum.Enum):
    CIFAR10 = "cifar10"


class DType:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


FLOAT, UINT8, HALF, DOUBLE = map(DType, ("float32", "uint8", "float16", "float64"))


def fake(name: str, module: str = V1, **attributes: Any) -> Any:
    """An object of a class with this name and module."""
    return type(name, (), {"__module__": module, **attributes})()


def compose(*transforms: Any, module: str = V1) -> Any:
    return fake("Compose", module, transforms=list(transforms))


def graph(*transforms: Any, dataset: Any = FOLDER, **options: Any) -> list[Any]:
    """The graph that a Compose becomes, without the decoding before it."""
    made = from_torchvision(compose(*transforms), dataset=dataset, **options).to_dict()["graph"]
    return made[1:] if made[0] == "decode" else made


def refusal(*transforms: Any, dataset: Any = FOLDER) -> str:
    with pytest.raises(feedwater.InvalidArgument) as found:
        from_torchvision(compose(*transforms), dataset=dataset)
    return str(found.value)


def resize(size: Any, interpolation: Any = InterpolationMode.BILINEAR, **more: Any) -> Any:
    values = {"size": size, "interpolation": interpolation, "max_size": None, "antialias": True}
    return fake("Resize", **{**values, **more})


def random_crop(size: Any = (32, 32), module: str = V1, **more: Any) -> Any:
    values = {"padding": None, "pad_if_needed": False, "fill": 0, "padding_mode": "constant"}
    return fake("RandomCrop", module, size=size, **{**values, **more})


TO_TENSOR, TO_IMAGE = fake("ToTensor"), fake("ToImage", V2)
FLIP = fake("RandomHorizontalFlip", p=0.5)
CENTER = fake("CenterCrop", size=(224, 224))


def normalized(mean: Any, std: Any) -> Any:
    return fake("Normalize", mean=mean, std=std)


NORMALIZE = normalized([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
IMAGENET = {"normalize": {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}}
AS_FLOATS = {"normalize": {"mean": [0.0], "std": [255.0]}}


def to_dtype(dtype: Any, scale: bool = False) -> Any:
    return fake("ToDtype", V2, dtype=dtype, scale=scale)


def erasing(**more: Any) -> Any:
    values = {"p": 0.25, "scale": (0.02, 0.33), "ratio": (0.3, 3.3), "value": 0}
    return fake("RandomErasing", **{**values, **more})


def rotation(**more: Any) -> Any:
    values = {"interpolation": InterpolationMode.BILINEAR, "expand": False, "center": None}
    return fake("RandomRotation", degrees=[-9.0, 9.0], fill=0, **{**values, **more})


def by_chance(*transforms: Any, p: float = 0.3) -> Any:
    return fake("RandomApply", transforms=list(transforms), p=p)


def choice(transforms: list[Any], module: str = V1, **more: Any) -> Any:
    return fake("RandomChoice", module, transforms=transforms, **more)


BLUR = fake("GaussianBlur", kernel_size=(3, 3), sigma=(0.1, 2.0))
JITTER = fake("ColorJitter", brightness=(0.6, 1.4), contrast=None, saturation=None, hue=None)
# Of the program's own.
OTHER = fake("Rotate", "my_project.transforms")
LAMBDA = fake("Lambda", lambd=lambda image: image)
