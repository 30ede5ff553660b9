"""The values in a user's own samples: what can be one, and which array it is."""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

from .wire import MAX_AXES

# As DType of control.proto. bfloat16 is in memory as uint16 with the same bits.
DTYPES = {
    name: number
    for number, name in enumerate(
        (
            "uint8", "int8", "bool", "int16", "uint16", "int32", "int64", "float16", "bfloat16",
            "float32", "float64",
        ),
        1,
    )
}  # fmt: skip
_CAST = {"uint32": "int64", "uint64": "int64", "longdouble": "float64", "complex64": "float32"}


class SampleError(Exception):
    """A sample that cannot be made into fields; the text names the place in it and the cure."""


def storage_of(dtype: str) -> np.dtype:
    """Return how elements of a type of `DTYPES` are in memory."""
    return np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)


def tensor_of(value: Any, where: str) -> tuple[np.ndarray, str]:
    """Return a value as an array in memory, and the name of its type.

    Raises
    ------
    SampleError
        It is nothing that a batch can hold.
    """
    if isinstance(value, (bool, np.bool_)):
        return np.asarray(value, dtype=np.bool_), "bool"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise SampleError(f"{where} is {value}, which is more than an int64 holds")
        return np.asarray(int(value), dtype=np.int64), "int64"
    if isinstance(value, float) and not isinstance(value, np.generic):
        return np.asarray(value, dtype=np.float64), "float64"
    if isinstance(value, str):
        return np.frombuffer(value.encode(), dtype=np.uint8), "uint8"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, dtype=np.uint8), "uint8"
    if value is None:
        raise SampleError(
            f"{where} is None: a batch needs a value of the same type in every sample. Leave it "
            "out, or give a number that stands for nothing"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, value, where)
    if isinstance(value, np.ma.MaskedArray):
        raise SampleError(
            f"{where} is a masked array, whose mask a batch has no place for: give "
            "array.filled(...), and its mask as another value"
        )
    if getattr(value, "mode", None) in ("P", "PA") and _is_image(value):
        raise SampleError(
            f"{where} is an image of mode {value.mode}, whose pixels are numbers of a palette: "
            "give image.convert('RGB')"
        )
    array = _image(value)
    if array is None:
        if not isinstance(value, (np.ndarray, np.generic)) and not hasattr(value, "__array__"):
            raise SampleError(
                f"{where} is of type {type(value).__module__}.{type(value).__qualname__}: give "
                "a NumPy array, a tensor, an image of Pillow, a number, a text or bytes instead"
            )
        array = np.asarray(value)
    return _known(array, where)


def _of_torch(torch: Any, value: Any, where: str) -> tuple[np.ndarray, str]:
    if value.layout is not torch.strided:
        raise SampleError(f"{where} is a sparse tensor: give tensor.to_dense()")
    value = value.detach().cpu()
    if value.dtype is torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.uint16), "bfloat16"
    try:
        array = value.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:
        raise SampleError(f"{where} is a tensor of {value.dtype}: {error}") from None
    return _known(array, where)


def _is_image(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def _image(value: Any) -> Optional[np.ndarray]:
    """Return an image of Pillow as rows, columns and channels; None: it is none."""
    if not _is_image(value):
        return None
    array = np.asarray(value.convert("L") if value.mode == "1" else value)
    return array if array.ndim == 3 else array[:, :, np.newaxis]


def _known(array: np.ndarray, where: str) -> tuple[np.ndarray, str]:
    name = array.dtype.name
    if name == "bfloat16":  # of ml_dtypes
        return array.view(np.uint16), name
    if name not in DTYPES:
        cure = f"give .astype('{_CAST[name]}')" if name in _CAST else "give numbers, or bytes"
        raise SampleError(
            f"{where} is an array of {array.dtype}, which a batch cannot hold: {cure}"
        )
    if array.ndim > MAX_AXES:
        raise SampleError(f"{where} has {array.ndim} axes; the most are {MAX_AXES}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array, name


def layout_of(value: Any, array: np.ndarray) -> str:
    """Return the layout of a value: ``encoded`` of bytes, ``HWC`` of an image, or ``plain``."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "encoded"
    is_image = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3)
    return "HWC" if is_image or _is_image(value) else "plain"
