"""Transforms of torchvision and the ops that do the same: the table that `from_torchvision` and
`feedwater migrate` share.

torchvision is not imported: a transform is known by the name and module of its class, and its
values are its attributes, or in `feedwater migrate` the arguments of its constructor, which have
the same names. `torchvision_translator` has what becomes of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from . import errors
from ._pipeline_schema import BATCH_OPS, KNOWN_AS, OPS
from .torchvision_steps import NoCounterpart
from .torchvision_translator import Translator

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


@dataclass(frozen=True)
class Transform:
    """A transform that may have a counterpart: its parameters in the constructor's order, with
    defaults (`REQUIRED`: none), and the method of `Translator` that translates it.
    """

    parameters: Mapping[str, Any]
    translate: Callable[[Translator, dict[str, Any]], None]


REQUIRED = object()


_SAMPLED = {"interpolation": "bilinear", "antialias": True}
_ANY_DTYPE = {"dtype": "float32"}
_WARPED: dict[str, Any] = {"interpolation": "nearest", "fill": 0}
_AUGMENTED: dict[str, Any] = {"interpolation": "nearest", "fill": None}


def _by_name(method: Callable[..., None], name: str, **more: Any) -> Callable[..., None]:
    """Return a method of Translator that is told an op's name."""

    def translate(translator: Translator, values: dict[str, Any]) -> None:
        method(translator, name, values, **more)

    return translate


def _with_p(name: str, p: float = 0.5, on_tensors: bool = True, **more: Any) -> Transform:
    """Return a transform whose parameters are its op's."""
    translate = _by_name(Translator.with_p, name, on_tensors=on_tensors)
    return Transform({**more, "p": p}, translate)


TRANSFORMS: dict[str, Transform] = {
    "AugMix": Transform(
        {
            "severity": 3,
            "mixture_width": 3,
            "chain_depth": -1,
            "alpha": 1.0,
            "all_ops": True,
            **_AUGMENTED,
            "interpolation": "bilinear",
        },
        _by_name(Translator.augment, "aug_mix"),
    ),
    "AutoAugment": Transform(
        {"policy": "imagenet", **_AUGMENTED}, _by_name(Translator.augment, "auto_augment")
    ),
    "CenterCrop": Transform({"size": REQUIRED}, Translator.center_crop),
    "ColorJitter": Transform(
        {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}, Translator.color_jitter
    ),
    "ConvertImageDtype": Transform(_ANY_DTYPE, Translator.convert_image_dtype),
    "ElasticTransform": Transform(
        {"alpha": 50.0, "sigma": 5.0, "interpolation": "bilinear", "fill": 0},
        Translator.elastic_transform,
    ),
    "GaussianBlur": Transform(
        {"kernel_size": REQUIRED, "sigma": (0.1, 2.0)}, Translator.gaussian_blur
    ),
    "GaussianNoise": Transform(
        {"mean": 0.0, "sigma": 0.1, "clip": True}, Translator.gaussian_noise
    ),
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
    "JPEG": Transform({"quality": REQUIRED}, Translator.jpeg),
    "LinearTransformation": Transform(
        {"transformation_matrix": REQUIRED, "mean_vector": REQUIRED},
        Translator.linear_transformation,
    ),
    "Normalize": Transform(
        {"mean": REQUIRED, "std": REQUIRED, "inplace": False}, Translator.normalize
    ),
    "PILToTensor": Transform({}, Translator.to_image),
    "Pad": Transform({"padding": REQUIRED, "fill": 0, "padding_mode": "constant"}, Translator.pad),
    "RGB": Transform({}, Translator.rgb),
    "RandAugment": Transform(
        {"num_ops": 2, "magnitude": 9, "num_magnitude_bins": 31, **_AUGMENTED},
        _by_name(Translator.augment, "rand_augment"),
    ),
    "RandomAdjustSharpness": Transform(
        {"sharpness_factor": REQUIRED, "p": 0.5}, Translator.random_adjust_sharpness
    ),
    "RandomAffine": Transform(
        {
            "degrees": REQUIRED,
            "translate": None,
            "scale": None,
            "shear": None,
            **_WARPED,
            "center": None,
        },
        Translator.random_affine,
    ),
    "RandomAutocontrast": _with_p("random_autocontrast", on_tensors=False),
    "RandomChannelPermutation": Transform(
        {}, _by_name(Translator.with_p, "random_channel_permutation")
    ),
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
    "RandomEqualize": _with_p("random_equalize"),
    "RandomErasing": Transform(
        {"p": 0.5, "scale": (0.02, 0.33), "ratio": (0.3, 3.3), "value": 0, "inplace": False},
        Translator.random_erasing,
    ),
    "RandomGrayscale": _with_p("random_grayscale", p=0.1, on_tensors=False),
    "RandomHorizontalFlip": Transform({"p": 0.5}, Translator.random_horizontal_flip),
    "RandomInvert": _with_p("random_invert"),
    "RandomPerspective": Transform(
        {"distortion_scale": 0.5, "p": 0.5, **_WARPED, "interpolation": "bilinear"},
        Translator.random_perspective,
    ),
    "RandomPhotometricDistort": Transform(
        {
            "brightness": (0.875, 1.125),
            "contrast": (0.5, 1.5),
            "saturation": (0.5, 1.5),
            "hue": (-0.05, 0.05),
            "p": 0.5,
        },
        Translator.random_photometric_distort,
    ),
    "RandomPosterize": _with_p("random_posterize", bits=REQUIRED),
    "RandomResizedCrop": Transform(
        {"size": REQUIRED, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3), **_SAMPLED},
        Translator.random_resized_crop,
    ),
    "RandomRotation": Transform(
        {
            "degrees": REQUIRED,
            "interpolation": "nearest",
            "expand": False,
            "center": None,
            "fill": 0,
        },
        Translator.random_rotation,
    ),
    "RandomResize": Transform(
        {"min_size": REQUIRED, "max_size": REQUIRED, **_SAMPLED}, Translator.random_resize
    ),
    "RandomShortestSize": Transform(
        {"min_size": REQUIRED, "max_size": None, **_SAMPLED}, Translator.random_short_side
    ),
    "RandomSolarize": Transform({"threshold": REQUIRED, "p": 0.5}, Translator.random_solarize),
    "RandomZoomOut": Transform(
        {"fill": 0, "side_range": (1.0, 4.0), "p": 0.5}, Translator.random_zoom_out
    ),
    "ScaleJitter": Transform(
        {"target_size": REQUIRED, "scale_range": (0.1, 2.0), **_SAMPLED}, Translator.scale_jitter
    ),
    "TrivialAugmentWide": Transform(
        {"num_magnitude_bins": 31, **_AUGMENTED},
        _by_name(Translator.augment, "trivial_augment_wide"),
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


# What some parameters were called in older versions, with values that mean the same.
OLD_NAMES: dict[str, dict[str, str]] = {
    "RandomAffine": {"resample": "interpolation", "fillcolor": "fill"},
    "RandomChoice": {"probabilities": "p"},
    "RandomRotation": {"resample": "interpolation"},
}


def values_of(name: str, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter of a class, where `given` has those of a call.

    Raises
    ------
    NoCounterpart
        An argument is not a parameter of the class, or one is missing.
    """
    values = dict(parameters)
    old = OLD_NAMES.get(name, {})
    for argument, value in given.items():
        if argument in old and old[argument] not in given:
            if value is not None:  # None: as if it was not given
                values[old[argument]] = value
        elif argument in parameters:
            values[argument] = value
        else:
            raise NoCounterpart(f"argument {argument!r} is not known")
    if REQUIRED in values.values():
        raise NoCounterpart("an argument is missing")
    return values


def translate(translator: Translator, name: str, values: Mapping[str, Any]) -> None:
    """Translate a transform of a known name; raise NoCounterpart."""
    try:
        TRANSFORMS[name].translate(translator, dict(values))
    except errors.InvalidArgument as error:
        raise NoCounterpart(str(error)) from None


# Those that hold others, one after the other.
CONTAINERS = ("Compose", "Sequential")


_SERVED = "serve it with feedwater.serve_op(NAME, function), and put `python: {name: NAME}` there"


def without_counterpart(name: str, is_own: bool = False) -> NoCounterpart:
    """Return why a class of transforms is not in the table."""
    if is_own:
        return NoCounterpart(f"a class or function of the program's own: {_SERVED}")
    if name == "Lambda":
        return NoCounterpart(
            "a function of the program's own. What only converts to RGB can be left out, as decode "
            f"gives RGB; else {_SERVED}"
        )
    known = KNOWN_AS["torchvision"].get(name)
    if known in BATCH_OPS:
        return NoCounterpart("it is for batches: the op stands in batch={'graph': [...]}", known)
    if name in ("FiveCrop", "TenCrop"):
        return NoCounterpart(
            "it gives a tuple, and the op one field of all crops: put that behind normalize", known
        )
    if name == "RandomIoUCrop":
        return NoCounterpart("it needs boxes: the op takes in=[image, boxes, labels]", known)
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if word in OPS or word in BATCH_OPS:
        return NoCounterpart("this version does not translate it", word)
    return NoCounterpart("no op does exactly the same", known)


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
