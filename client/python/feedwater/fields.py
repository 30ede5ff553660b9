"""The outputs of a pipeline: their types, and where they stand in a slot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

try:
    import ml_dtypes

    _BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    _BFLOAT16 = np.dtype(np.uint16)


def numpy_dtype(name: str) -> np.dtype:
    """Return NumPy's type of that name. ``bfloat16`` needs the package ml_dtypes; without it, it is
    ``uint16``.
    """
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


class Field(tuple):
    """One output of a pipeline, ``(dtype, shape)``.

    Attributes
    ----------
    dtype : numpy.dtype
        Of the elements. For ``bfloat16`` without the package ml_dtypes: ``uint16``, the same bits.
    shape : tuple of int
        Of one sample, without the batch axis.
    dtype_name : str
        The type's name, also for ``bfloat16``.
    layout : str
        ``"plain"``, ``"HWC"`` or ``"CHW"``.
    doc : str
        What it is.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    dtype_name: str
    layout: str
    doc: str

    def __new__(
        cls, dtype_name: str, shape: tuple[int, ...], layout: str = "plain", doc: str = ""
    ) -> Field:
        """Make the pair and its attributes."""
        dtype = numpy_dtype(dtype_name)
        self = super().__new__(cls, (dtype, shape))
        self.dtype, self.shape, self.dtype_name = dtype, shape, dtype_name
        self.layout, self.doc = layout, doc
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.dtype_name, self.shape, self.layout, self.doc)

    def __repr__(self) -> str:
        return f"Field(dtype={self.dtype_name}, shape={self.shape}, layout={self.layout!r})"


class Place:
    """Where an output of a batch stands in a slot, and how its bytes are to be read."""

    __slots__ = ("dtype", "dtype_name", "name", "offset", "sample_bytes", "shape", "storage")

    def __init__(self, name: str, field: Field, offset: int) -> None:
        self.name = name
        self.dtype = field.dtype
        self.dtype_name = field.dtype_name
        self.shape = field.shape
        self.offset = offset
        # What is in memory as a type that every NumPy and torch knows.
        self.storage = np.dtype(np.uint16) if field.dtype_name == "bfloat16" else field.dtype
        self.sample_bytes = self.storage.itemsize * math.prod(field.shape)
