"""Transforms of torchvision and the ops that do the same: the table that `from_torchvision` and
`feedwater migrate` share.

torchvision is not imported: a transform is known by the name and module of its class, and its
values are its attributes, or in `feedwater migrate` the arguments of its constructor, which have
the same names. A `Translator` follows what an image is between the transforms: Pillow's or a
tensor, of bytes or of floats, in 0..255 or 0..1. Here an image is uint8 until `normalize`; what
torchvision computes in floats on such an image is therefore refused unless pixels are only moved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import errors, ops
from ._pipeline_schema import BATCH_OPS, OPS
from .pipeline import Op

# Pillow's numbers of its filters, as older programs give them.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_FLOATS = {"float": "float32", "half": "float16", "double": "float64"}

# What comes nearest to transforms without a counterpart, where no op has their name.
_NEAREST = {
    "AugMix": "color_jitter",
    "AutoAugment": "color_jitter",
    "CutMix": "cutmix",
    "ElasticTransform": "random_resized_crop",
    "FiveCrop": "center_crop",
    "GaussianBlur": "resize",
    "LinearTransformation": "normalize",
    "MixUp": "mixup",
    "Pad": "random_crop",
    "RandAugment": "color_jitter",
    "RandomAdjustSharpness": "color_jitter",
    "RandomAffine": "random_resized_crop",
    "RandomAutocontrast": "color_jitter",
    "RandomEqualize": "color_jitter",
    "RandomErasing": "cutmix",
    "RandomGrayscale": "color_jitter",
    "RandomIoUCrop": "random_resized_crop",
    "RandomPerspective": "random_resized_crop",
    "RandomPhotometricDistort": "color_jitter",
    "RandomPosterize": "color_jitter",
    "RandomResize": "random_resized_crop",
    "RandomRotation": "random_resized_crop",
    "RandomShortestSize": "random_resized_crop",
    "RandomSolarize": "color_jitter",
    "RandomZoomOut": "random_crop",
    "ScaleJitter": "random_resized_crop",
    "TenCrop": "center_crop",
    "TrivialAugmentWide": "color_jitter",
}

# Formats whose images are known: the field, and whether it has a file's bytes.
_IMAGES = {
    "array_record": ("data", True),
    "cifar10": ("image", False),
    "cifar100": ("image", False),
    "coco": ("data", True),
    "image_folder": ("data", True),
    "images": ("data", True),
    "lmdb": ("data", True),
    "mnist": ("image", False),
    "voc": ("data", True),
    "webdataset": ("data", True),
}
_CHANNELS = {"cifar10": 3, "cifar100": 3, "mnist": 1}


class NoCounterpart(Exception):
    """A transform, or one of its values, for which no op does exactly the same."""

    def __init__(self, reason: str, nearest: Optional[str] = None) -> None:
        super().__init__(reason)
        self.nearest = nearest


@dataclass(frozen=True)
class Transform:
    """A transform that may have a counterpart: its parameters in the constructor's order, with
    defaults (`REQUIRED`: none), and the method of `Translator` that translates it.
    """

    parameters: Mapping[str, Any]
    translate: Callable[[Translator, dict[str, Any]], None]


REQUIRED = object()


class Translator:
    """Translates transforms one after the other into `ops`.

    Attributes
    ----------
    ops : list of Op
        Those of the transforms so far.
    field : str
        The image's field.
    """

    def __init__(self, field: str, decode: bool, channels: int) -> None:
        self.ops: list[Op] = []
        self._channels = channels
        self.field = "image" if decode else field
        self._in = None if self.field == "image" else field
        if decode:
            self.ops.append(ops.decode(in_=None if field == "data" else field))
        self._is_tensor = False
        self._is_float = False
        self._unit = 1.0  # what torchvision's values must be multiplied by to be ours
        self._normalized: Optional[int] = None  # where in `ops`

    def add(self, name: str, values: Mapping[str, Any]) -> None:
        """Translate a transform of a known name; raise NoCounterpart."""
        try:
            TRANSFORMS[name].translate(self, dict(values))
        except errors.InvalidArgument as error:
            raise NoCounterpart(str(error)) from None

    @property
    def is_tensor(self) -> bool:
        """Whether the image is a tensor behind the transforms so far."""
        return self._is_tensor

    def finish(self) -> list[Op]:
        """Add what makes a batch of the image: as a tensor is CHW, of floats where it was."""
        if self._normalized is None and self._is_float:
            self._emit("normalize", mean=[0.0], std=[self._unit])
        elif self._normalized is None and self._is_tensor:
            self._emit("layout")
        return self.ops

    def _emit(self, name: str, **values: Any) -> None:
        self.ops.append(getattr(ops, name)(**values, in_=self._in))

    # --- sizes and places

    def _refuse_floats(self, name: str) -> None:
        if self._is_float:
            raise NoCounterpart(
                "it computes in floats here, and the op in bytes: put it before ToTensor (ToDtype)",
                name,
            )

    def _interpolation(self, values: Mapping[str, Any]) -> str:
        given = values["interpolation"]
        given = getattr(given, "value", given)
        name = _FILTERS.get(given, "") if isinstance(given, int) else str(given)
        if name in ("nearest", "nearest-exact"):
            if self._is_tensor:
                raise NoCounterpart(
                    f"on tensors {name.upper()} picks other pixels than on Pillow's images, whose "
                    "are the op's: put it before ToImage"
                )
            return "nearest"
        if name not in ("bilinear", "bicubic"):
            raise NoCounterpart(f"there is no interpolation {name.upper()}; bicubic is nearest")
        if self._is_tensor and values["antialias"] is not True:
            raise NoCounterpart(
                "on tensors it is not antialiased, and the op is: say antialias=True. "
                "interpolation: opencv_linear is nearest to what it does now"
            )
        return name

    def resize(self, values: dict[str, Any]) -> None:
        """Resize."""
        self._refuse_floats("resize")
        size = values["size"]
        if size is None:
            raise NoCounterpart("the op needs 'size' beside 'max_size'")
        size = _listed(size)
        self._emit(
            "resize",
            size=size[0] if len(size) == 1 else size,
            interpolation=self._interpolation(values),
            max_size=values["max_size"],
        )

    def center_crop(self, values: dict[str, Any]) -> None:
        """CenterCrop."""
        self._emit("center_crop", size=_window(values["size"]))

    def random_crop(self, values: dict[str, Any]) -> None:
        """RandomCrop."""
        if values["padding_mode"] != "constant":
            raise NoCounterpart(
                f"padding_mode {values['padding_mode']!r}: the op pads with one value, `fill`"
            )
        padding = values["padding"]
        if isinstance(padding, Sequence) and len(padding) == 1:
            padding = padding[0]
        self._emit(
            "random_crop",
            size=_window(values["size"]),
            padding=0 if padding is None else padding,
            pad_if_needed=values["pad_if_needed"],
            fill=self._fill(values["fill"]),
        )

    def _fill(self, given: Any) -> Any:
        if given is None:
            given = 0
        if isinstance(given, Mapping):
            raise NoCounterpart("'fill' is a map: the op has one value for the image")
        if not isinstance(given, Sequence):
            given = [given]
        scale = self._unit if self._normalized is None else 1.0
        fill = [_decimal(value * scale) for value in given]
        if self._normalized is None and any(value != int(value) for value in fill):
            raise NoCounterpart(f"'fill' is {given}: images are bytes before normalize")
        return fill

    def random_resized_crop(self, values: dict[str, Any]) -> None:
        """RandomResizedCrop."""
        self._refuse_floats("random_resized_crop")
        self._emit(
            "random_resized_crop",
            size=_window(values["size"]),
            scale=_listed(values["scale"]),
            ratio=_listed(values["ratio"]),
            interpolation=self._interpolation(values),
        )

    def random_horizontal_flip(self, values: dict[str, Any]) -> None:
        """RandomHorizontalFlip."""
        self._emit("random_horizontal_flip", p=values["p"])

    def random_vertical_flip(self, values: dict[str, Any]) -> None:
        """RandomVerticalFlip."""
        self._emit("random_vertical_flip", p=values["p"])

    # --- colours

    def color_jitter(self, values: dict[str, Any]) -> None:
        """ColorJitter. Attributes are ranges or None, arguments may be numbers."""
        self._refuse_floats("color_jitter")
        given: dict[str, Any] = {}
        for name in ("brightness", "contrast", "saturation", "hue"):
            value = values[name]
            if value is not None and value != 0:
                given[name] = list(value) if isinstance(value, Sequence) else value
        if given:
            self._emit("color_jitter", **given)

    def grayscale(self, values: dict[str, Any]) -> None:
        """Grayscale: three channels as a jitter that takes all saturation away."""
        self._refuse_floats("color_jitter")
        wanted = values["num_output_channels"]
        if wanted == 1 and self._channels == 1:
            return
        if wanted != 3 or self._channels != 3:
            raise NoCounterpart(
                f"no op makes {wanted} of {self._channels or 'pixels with unknown'} channels; "
                "color_jitter: {saturation: [0, 0]} makes a grey image of 3 from 3",
                "color_jitter",
            )
        self._emit("color_jitter", saturation=[0.0, 0.0])

    def rgb(self, values: dict[str, Any]) -> None:
        """RGB: what decode gives, and CIFAR's images are."""
        if not self._channels:
            raise NoCounterpart("how many channels the pixels have is not known: leave it out")
        if self._channels != 3:
            raise NoCounterpart("no op makes RGB of a grey image")

    # --- types

    def to_tensor(self, values: dict[str, Any]) -> None:
        """ToTensor."""
        if self._is_tensor:
            raise NoCounterpart("it stands behind a transform that gives a tensor already")
        self._is_tensor = self._is_float = True
        self._unit = 255.0

    def to_image(self, values: dict[str, Any]) -> None:
        """ToImage and PILToTensor: a tensor of bytes."""
        self._is_tensor = True

    def to_pil_image(self, values: dict[str, Any]) -> None:
        """ToPILImage."""
        if self._is_float:
            raise NoCounterpart("it makes bytes of floats: put it before ToTensor (ToDtype)")
        self._is_tensor = False

    def nothing(self, values: dict[str, Any]) -> None:
        """Identity and the like."""

    def convert_image_dtype(self, values: dict[str, Any]) -> None:
        """ConvertImageDtype: as ToDtype with scale."""
        self.to_dtype({**values, "scale": True})

    def to_dtype(self, values: dict[str, Any]) -> None:
        """ToDtype, with and without scale."""
        dtype = _dtype_name(values["dtype"])
        if not self._is_tensor:
            raise NoCounterpart("it needs a tensor: ToImage stands before it")
        if dtype == "uint8" and not self._is_float:
            return
        if dtype == "float32" and self._is_float:
            return
        if dtype == "float32":
            self._is_float = True
            self._unit = 255.0 if values["scale"] else 1.0
            return
        if dtype in ("float16", "bfloat16") and self._normalized is not None:
            params = self.ops[self._normalized].params
            params.pop("in", None)
            params["dtype"] = dtype
            self.ops[self._normalized] = ops.normalize(**params, in_=self._in)
            return
        raise NoCounterpart(
            f"to {dtype}: normalize makes float32 of bytes; float16 and bfloat16 stand behind "
            "Normalize",
            "normalize",
        )

    def normalize(self, values: dict[str, Any]) -> None:
        """Normalize: mean and std in the units of our values."""
        if not self._is_float:
            raise NoCounterpart("it needs floats: ToTensor, or ToDtype(torch.float32), before it")
        unit = self._unit if self._normalized is None else 1.0
        mean, std = (
            [_decimal(value * unit) for value in _listed(values[name])] for name in ("mean", "std")
        )
        self._normalized = len(self.ops)
        self._emit("normalize", mean=mean, std=std)

    def image_classification(self, values: dict[str, Any]) -> None:
        """ImageClassification: what a model's `weights.transforms()` gives."""
        values = {**values, "max_size": None}
        self.resize({**values, "size": values["resize_size"]})
        self.center_crop({"size": values["crop_size"]})
        self._is_tensor = self._is_float = True
        self._unit = 255.0
        self.normalize(values)


def _decimal(value: float) -> float:
    """Return a product of decimal fractions without the noise of its last bits."""
    return float(f"{value:.12g}")


def _listed(value: Any) -> list[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _window(size: Any) -> Any:
    """Return the size of a crop: one number where both sides are alike."""
    sides = _listed(size)
    return sides[0] if len(set(sides)) == 1 and len(sides) <= 2 else sides


def _dtype_name(dtype: Any) -> str:
    if isinstance(dtype, Mapping):
        images = [value for key, value in dtype.items() if getattr(key, "__name__", "") == "Image"]
        if len(images) != 1:
            raise NoCounterpart("its dtype is a map that does not name tv_tensors.Image")
        dtype = images[0]
    name = str(dtype).rpartition(".")[2]
    return _FLOATS.get(name, name)


_SAMPLED = {"interpolation": "bilinear", "antialias": True}
_ANY_DTYPE = {"dtype": "float32"}

TRANSFORMS: dict[str, Transform] = {
    "CenterCrop": Transform({"size": REQUIRED}, Translator.center_crop),
    "ColorJitter": Transform(
        {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}, Translator.color_jitter
    ),
    "ConvertImageDtype": Transform(_ANY_DTYPE, Translator.convert_image_dtype),
    "Grayscale": Transform({"num_output_channels": 1}, Translator.grayscale),
    "Identity": Transform({}, Translator.nothing),
    "ImageClassification": Transform(
        {
            "crop_size": REQUIRED,
            "resize_size": 256,
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            **_SAMPLED,
        },
        Translator.image_classification,
    ),
    "Normalize": Transform(
        {"mean": REQUIRED, "std": REQUIRED, "inplace": False}, Translator.normalize
    ),
    "PILToTensor": Transform({}, Translator.to_image),
    "RGB": Transform({}, Translator.rgb),
    "RandomCrop": Transform(
        {
            "size": REQUIRED,
            "padding": None,
            "pad_if_needed": False,
            "fill": 0,
            "padding_mode": "constant",
        },
        Translator.random_crop,
    ),
    "RandomHorizontalFlip": Transform({"p": 0.5}, Translator.random_horizontal_flip),
    "RandomResizedCrop": Transform(
        {"size": REQUIRED, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3), **_SAMPLED},
        Translator.random_resized_crop,
    ),
    # Their names in versions before 0.2.
    "RandomSizedCrop": Transform(
        {"size": REQUIRED, **_SAMPLED, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)},
        Translator.random_resized_crop,
    ),
    "Scale": Transform({"size": REQUIRED, **_SAMPLED, "max_size": None}, Translator.resize),
    "RandomVerticalFlip": Transform({"p": 0.5}, Translator.random_vertical_flip),
    "Resize": Transform(
        {"size": REQUIRED, "interpolation": "bilinear", "max_size": None, "antialias": True},
        Translator.resize,
    ),
    "ToDtype": Transform({"dtype": REQUIRED, "scale": False}, Translator.to_dtype),
    "ToImage": Transform({}, Translator.to_image),
    "ToPILImage": Transform({"mode": None}, Translator.to_pil_image),
    "ToPureTensor": Transform({}, Translator.nothing),
    "ToTensor": Transform({}, Translator.to_tensor),
}

# Those that hold others, one after the other.
CONTAINERS = ("Compose", "Sequential")


def without_counterpart(name: str, is_own: bool = False) -> NoCounterpart:
    """Return why a class of transforms is not in the table."""
    if is_own:
        return NoCounterpart("a class or function of the program's own; no op runs Python")
    if name == "Lambda":
        return NoCounterpart(
            "a function of the program's own; no op runs Python. What only converts to RGB can be "
            "left out: decode gives RGB"
        )
    if name in ("RandomApply", "RandomChoice", "RandomOrder"):
        return NoCounterpart("no op chooses among ops; the flips have a probability `p`")
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if word in OPS or word in BATCH_OPS:
        return NoCounterpart("this version does not translate it", word)
    return NoCounterpart("no op does exactly the same", _NEAREST.get(name))


def told(which: str, reason: NoCounterpart) -> str:
    """Return the line about a transform that could not be translated."""
    nearest = f" (nearest op: {reason.nearest})" if reason.nearest else ""
    return f"{which}: {reason}{nearest}"


def image_field(
    dataset: Mapping[str, Any], image: Optional[str], decode: Optional[bool]
) -> tuple[str, bool, int]:
    """Return the dataset's field with the image, whether decode stands first, and its channels.

    Those are 0 where the pixels of a record may have any number of them.
    """
    sources = dataset.get("mix")
    sources = sources if isinstance(sources, Sequence) and sources else [dataset]
    formats = {source.get("format") for source in sources if isinstance(source, Mapping)}
    form = formats.pop() if len(formats) == 1 else None
    known = _IMAGES.get(form) if isinstance(form, str) else None
    if known is None and (image is None or decode is None):
        raise errors.InvalidArgument(
            f"dataset has the format {form!r}, whose images may be in any field: say "
            "image='FIELD', and decode=True where that has the bytes of image files, "
            "decode=False where it has pixels"
        )
    field, encoded = known if known is not None else ("", False)
    if decode is None:
        decode = encoded
    channels = 3 if decode else _CHANNELS.get(form, 0) if isinstance(form, str) else 0
    return image or field, decode, channels
