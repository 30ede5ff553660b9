"""The outputs of a pipeline: their types, and where they stand in a slot."""

from __future__ import annotations

import math
from typing import Any, Optional, cast

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
    shape : tuple of int or None
        Of one sample, without the batch axis. None stands first where the number of rows differs
        from sample to sample: the output is a `Ragged`.
    dtype_name : str
        The type's name, also for ``bfloat16``.
    layout : str
        ``"plain"``, ``"HWC"`` or ``"CHW"``; ``"encoded"``: the bytes of an image file.
    doc : str
        What it is.
    max_rows : int
        Rows of a sample at most, where their number differs; else 0.
    """

    dtype: np.dtype
    shape: tuple[Optional[int], ...]
    dtype_name: str
    layout: str
    doc: str
    max_rows: int

    def __new__(
        cls,
        dtype_name: str,
        shape: tuple[Optional[int], ...],
        layout: str = "plain",
        doc: str = "",
        max_rows: int = 0,
    ) -> Field:
        """Make the pair and its attributes."""
        dtype = numpy_dtype(dtype_name)
        self = super().__new__(cls, (dtype, shape))
        self.dtype, self.shape, self.dtype_name = dtype, shape, dtype_name
        self.layout, self.doc, self.max_rows = layout, doc, max_rows
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.dtype_name, self.shape, self.layout, self.doc, self.max_rows)

    def __repr__(self) -> str:
        return f"Field(dtype={self.dtype_name}, shape={self.shape}, layout={self.layout!r})"


class Place:
    """Where an output of a batch stands in a slot, and how its bytes are to be read.

    Attributes
    ----------
    shape : tuple of int
        Of one sample; of a ragged output, of one row.
    offsets : Place or None
        Of a ragged output: where its offsets stand.
    """

    __slots__ = (
        "dtype",
        "dtype_name",
        "max_rows",
        "name",
        "offset",
        "offsets",
        "sample_bytes",
        "shape",
        "storage",
    )

    def __init__(self, name: str, field: Field, offset: int, offsets_offset: int = 0) -> None:
        self.name = name
        self.dtype = field.dtype
        self.dtype_name = field.dtype_name
        self.max_rows = field.max_rows
        self.shape = cast(tuple[int, ...], field.shape[1:] if field.max_rows else field.shape)
        self.offset = offset
        # The name of no output, which has no space.
        self.offsets: Optional[Place] = (
            Place(f"{name} offsets", Field("int64", ()), offsets_offset) if field.max_rows else None
        )
        # What is in memory as a type that every NumPy and torch knows.
        self.storage = np.dtype(np.uint16) if field.dtype_name == "bfloat16" else field.dtype
        self.sample_bytes = self.storage.itemsize * math.prod(self.shape) * (self.max_rows or 1)
