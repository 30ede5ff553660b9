"""What translating transforms of torchvision shares: what an image is between them, and types.

A `Steps` follows what an image is between the transforms: Pillow's or a tensor, of bytes or of
floats, in 0..255 or 0..1. Here an image is uint8 until `normalize`; what torchvision computes in
floats on such an image is therefore refused unless pixels are only moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from . import ops
from .pipeline import Op

# Pillow's numbers of its filters, as older programs give them.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_BY_CHANCE = "it changes the image's type by chance"
_CHANNELS_BY_CHANCE = "it changes the number of channels by chance"
# Ops whose results are float32, whatever they are given.
_OF_FLOATS = {"linear_transformation", "normalize"}
_HALVES = ("float16", "bfloat16")
_FLOATS = {"float": "float32", "half": "float16", "double": "float64"}


class NoCounterpart(Exception):
    """A transform, or one of its values, for which no op does exactly the same."""

    def __init__(self, reason: str, nearest: Optional[str] = None) -> None:
        super().__init__(reason)
        self.nearest = nearest


class Steps:
    """Translates transforms of types one after the other into `ops`.

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
        self._half = ""  # float16 or bfloat16, once the image is of that type
        self._by_chance = False

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

    def apart(self, work: Callable[[], None]) -> list[Op]:
        """Return the ops of transforms that are done by chance: the image's type stays."""
        before, so_far, was_by_chance = self._type(), self.ops, self._by_chance
        channels = self._channels
        self.ops, self._by_chance = [], True
        try:
            work()
            made, after = self.ops, self._type()
            if self._channels != channels:
                raise NoCounterpart(_CHANNELS_BY_CHANCE)
        finally:
            self._channels = channels
            self.ops, self._by_chance = so_far, was_by_chance
            self._is_tensor, self._is_float, self._unit, self._normalized = before
        if before[:3] != after[:3] or (before[3] is None) != (after[3] is None):
            raise NoCounterpart(_BY_CHANCE)
        return made

    def _type(self) -> tuple[bool, bool, float, Optional[int]]:
        return self._is_tensor, self._is_float, self._unit, self._normalized

    def combined(self, name: str, made: list[Op], **values: Any) -> Op:
        """Return a combinator of some ops."""
        op: Op = getattr(ops, name)(**values, ops=made, in_=self._in)
        return op

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

    def _fill(self, given: Any) -> Any:
        if given is None:
            given = 0
        if isinstance(given, Mapping):
            raise NoCounterpart("'fill' is a map: the op has one value for the image")
        if not isinstance(given, Sequence):
            given = [given]
        scale = self._unit if self._normalized is None else 1.0
        fill = [decimal(value * scale) for value in given]
        if self._normalized is None and not all(float(value).is_integer() for value in fill):
            raise NoCounterpart(f"'fill' is {given}: images are bytes before normalize")
        return fill

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
        """ToPILImage: in another mode its three channels are other colours."""
        if values["mode"] not in (None, "L" if self._channels == 1 else "RGB"):
            raise NoCounterpart(f"mode {values['mode']!r}: channels are taken as they are")
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
        dtype = dtype_name(values["dtype"])
        if not self._is_tensor:
            raise NoCounterpart("it needs a tensor: ToImage stands before it")
        if dtype == "uint8" and not self._is_float:
            return
        if self._half:
            if dtype == self._half:
                return
            raise NoCounterpart(
                f"to {dtype} of values that are rounded to {self._half}: normalize rounds once, at "
                f"the end. Leave out the step to {self._half}, or this one"
            )
        if dtype == "float32" and self._is_float:
            return
        if dtype == "float32":
            self._is_float = True
            self._unit = 255.0 if values["scale"] else 1.0
            return
        place = self._normalized
        if self._by_chance:
            raise NoCounterpart(_BY_CHANCE)
        if dtype in _HALVES and place is not None and place < len(self.ops):
            if any(_computes(op.to_plain()) for op in self.ops[place + 1 :]):
                raise NoCounterpart(
                    f"to {dtype}: an op behind normalize computes in float32, and gives that",
                    "normalize",
                )
            params = self.ops[place].params
            params.pop("in", None)
            params["dtype"] = dtype
            self.ops[place] = ops.normalize(**params, in_=self._in)
            self._half = dtype
            return
        raise NoCounterpart(
            f"to {dtype}: normalize makes float32 of bytes; float16 and bfloat16 stand behind "
            "Normalize",
            "normalize",
        )

    def _refuse_halves(self, name: str) -> None:
        if self._half:
            raise NoCounterpart(
                f"it computes in {self._half} here, and the op in float32: put it before the step "
                f"to {self._half}",
                name,
            )

    def normalize(self, values: dict[str, Any]) -> None:
        """Normalize: mean and std in the units of our values."""
        self._refuse_halves("normalize")
        if not self._is_float:
            raise NoCounterpart("it needs floats: ToTensor, or ToDtype(torch.float32), before it")
        unit = self._unit if self._normalized is None else 1.0
        mean, std = (
            [decimal(value * unit) for value in listed(values[name])] for name in ("mean", "std")
        )
        for name, value in (("mean", mean), ("std", std)):
            if self._channels == 1 and len(value) > 1:
                raise NoCounterpart(
                    f"{name} has {len(value)} values, and the image is grey: it takes one",
                    "normalize",
                )
        self._normalized = len(self.ops)
        self._emit("normalize", mean=mean, std=std)


def _computes(entry: Any) -> bool:
    """Tell whether an entry of a graph has an op of `_OF_FLOATS`, also in a combinator."""
    if isinstance(entry, Mapping):
        return any(name in _OF_FLOATS or _computes(inner) for name, inner in entry.items())
    if isinstance(entry, list):
        return any(map(_computes, entry))
    return entry in _OF_FLOATS


def decimal(value: float) -> float:
    """Return a product of decimal fractions without the noise of its last bits."""
    return float(f"{value:.12g}")


def listed(value: Any) -> list[Any]:
    """Return a sequence or tensor as a list, and one value as a list of it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, (list, tuple)) else [value]


def window(size: Any) -> Any:
    """Return the size of a crop: one number where both sides are alike."""
    sides = listed(size)
    return sides[0] if len(set(sides)) == 1 and len(sides) <= 2 else sides


def dtype_name(dtype: Any) -> str:
    """Return the name of torch's type, of images where it is a map."""
    if isinstance(dtype, Mapping):
        images = [value for key, value in dtype.items() if getattr(key, "__name__", "") == "Image"]
        if len(images) != 1:
            raise NoCounterpart("its dtype is a map that does not name tv_tensors.Image")
        dtype = images[0]
    name = str(dtype).rpartition(".")[2]
    return _FLOATS.get(name, name)
