"""How a sample of a user's own becomes named fields: what stands in it, of which type and shape.

Nested tuples, lists, dicts, named tuples and dataclasses become one flat row of fields. The first
few samples say which fields there are (`Plan`); every other sample is checked against them. A
`Plan` goes from one process to the others, so it is plain data.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np

from .sample_values import DTYPES, SampleError, layout_of, storage_of, tensor_of
from .wire import MAX_TENSORS

_OF_DAEMON = ("sample_id", "position", "is_real", "dataset_id")

Shape = Optional[Sequence[Optional[int]]]
_CHANNELS_CURE = "give image.convert('RGB') of each, or as many channels in another way"
# What `fields=` takes: names; or names with shapes, in which None is an axis that differs.
FieldNames = Union[Sequence[str], Mapping[str, Shape]]


@dataclasses.dataclass(frozen=True)
class SampleField:
    """One field of every sample.

    Attributes
    ----------
    name, where : str
        Its name, and its place in the sample: ``sample[0]['boxes']``.
    dtype : str
        A name of `DTYPES`.
    shape : tuple of int
        -1 is an axis that differs from sample to sample.
    layout : str
        ``plain``, ``HWC``, ``encoded``.
    """

    name: str
    where: str
    dtype: str
    shape: tuple[int, ...]
    layout: str

    @property
    def is_fixed(self) -> bool:
        """Every sample has the same shape."""
        return -1 not in self.shape

    @property
    def storage(self) -> np.dtype:
        """Its elements in memory."""
        return storage_of(self.dtype)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What every sample of a dataset has.

    Attributes
    ----------
    fields : tuple of SampleField
    skeleton : tuple or None
        The containers of a sample; None is a value. See `_skeleton`.
    """

    fields: tuple[SampleField, ...]
    skeleton: Any


# --- containers -----------------------------------------------------------------------------------


def _parts(value: Any) -> Optional[tuple[str, list[Any], list[Any]]]:
    """Return what kind of container it is, its keys and its parts; None: it is a value."""
    if isinstance(value, Mapping):
        return "map", list(value), list(value.values())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "attributes", list(value._fields), list(value)
    if isinstance(value, (tuple, list)):
        return "row", list(range(len(value))), list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return "attributes", names, [getattr(value, name) for name in names]
    return None


def _skeleton(value: Any) -> Any:
    """Return the containers of a sample: ``(kind, keys, skeletons)``, and None for a value."""
    parts = _parts(value)
    return parts and (parts[0], parts[1], [_skeleton(part) for part in parts[2]])


def _place(kind: str, key: Any) -> str:
    return f".{key}" if kind == "attributes" else f"[{key!r}]"


def _names(skeleton: Any, prefix: str = "", where: str = "sample") -> Iterator[tuple[str, str]]:
    """Return name and place of each value."""
    if skeleton is None:
        yield prefix or "field0", where
        return
    kind, keys, inner = skeleton
    for key, part in zip(keys, inner):
        name = re.sub(r"\W", "_", f"field{key}" if kind == "row" else str(key), flags=re.ASCII)
        yield from _names(part, f"{prefix}_{name}" if prefix else name, where + _place(kind, key))


def reader_of(skeleton: Any) -> Callable[[Any], Sequence[Any]]:
    """Return what takes the values out of a sample, in the order of the fields."""
    if skeleton is None:
        return lambda sample: (sample,)
    kind, keys, inner = skeleton
    length = len(keys)

    def read(sample: Any) -> Sequence[Any]:
        found: list[Any] = []
        _read(skeleton, sample, "sample", found)
        return found

    def read_row(sample: Any) -> Sequence[Any]:
        if type(sample) is tuple and len(sample) == length:
            return sample
        return read(sample)

    return read_row if kind == "row" and not any(inner) else read


def _read(skeleton: Any, value: Any, where: str, found: list[Any]) -> None:
    if skeleton is None:
        found.append(value)
        return
    kind, keys, inner = skeleton
    parts = _parts(value)
    if parts is None or parts[0] != kind or len(parts[1]) != len(keys):
        what = f"of type {type(value).__qualname__}"
        what += "" if parts is None else f" with {len(parts[1])} parts"
        cure = ""
        if kind == "row" and not any(inner):
            cure = ". Each part is a value: a list of numbers is one as np.asarray(...)"
        raise SampleError(
            f"{where} is {what}; in the first sample it has {', '.join(map(str, keys))}{cure}"
        )
    for key, part in zip(keys, inner):
        place = where + _place(kind, key)
        if kind == "map":
            if key not in value:
                raise SampleError(f"{place} is not there, as it is in the first sample")
            _read(part, value[key], place, found)
        else:
            _read(part, value[key] if kind == "row" else getattr(value, key), place, found)


# --- plans ----------------------------------------------------------------------------------------


def plan_of(samples: Sequence[tuple[int, Any]], fields: Optional[FieldNames] = None) -> Plan:
    """Return the plan of a dataset, from some of its samples with their records' numbers.

    Raises
    ------
    SampleError
        They cannot be made into fields, or differ where they may not.
    """
    skeleton = _skeleton(samples[0][1])
    names = list(_names(skeleton))
    if not 1 <= len(names) <= MAX_TENSORS:
        raise SampleError(
            f"a sample has {len(names)} values: it has 1 to {MAX_TENSORS}. A list of numbers is "
            "one value as np.asarray(...)"
        )
    read = reader_of(skeleton)
    columns: list[list[tuple[int, Any]]] = [[] for _ in names]
    for record, sample in samples:
        for column, value in zip(columns, read(sample)):
            column.append((record, value))
    shapes = _given(fields, names)
    made = [
        _field(name, where, column, shapes[name])
        for name, (_, where), column in zip(shapes, names, columns)
    ]
    return Plan(tuple(made), skeleton)


def _given(fields: Optional[FieldNames], found: list[tuple[str, str]]) -> dict[str, Shape]:
    """Return the fields' names, with the shapes that the user gives."""
    given: list[tuple[str, Shape]]
    if fields is None:
        given = [(name, None) for name, _ in found]
    elif isinstance(fields, str):
        raise SampleError(f"fields is {fields!r}: it is a list of names")
    elif isinstance(fields, Mapping):
        given = _by_name(fields, found)
    else:
        given = [(name, None) for name in fields]
    if len(given) != len(found):
        places = ", ".join(where for _, where in found)
        raise SampleError(
            f"fields has {len(given)} names, and a sample has {len(found)} values: {places}. It "
            "names each; outputs= says which of them a batch has"
        )
    shapes: dict[str, Shape] = {}
    for (name, shape), (_, where) in zip(given, found):
        why = ""
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII):
            why = "is not 1 to 64 letters, digits and '_'"
        elif name in _OF_DAEMON:
            why = (
                "is a field that every dataset has, of the daemon's making, which outputs= may name"
            )
        elif name in shapes:
            why = "stands there twice"
        if why:
            raise SampleError(
                f"the field name {name!r} of {where} {why}: name all with fields=[...]"
            )
        shapes[name] = shape
    return shapes


def _by_name(fields: Mapping[str, Shape], found: list[tuple[str, str]]) -> list[tuple[str, Shape]]:
    """Return a map's fields in the order of the sample's values."""
    names = [name for name, _ in found]
    if set(fields) <= set(names):  # of the others nothing is said
        return [(name, fields.get(name)) for name in names]
    if any(not re.fullmatch(r"sample(\[\d+\])*", where) for _, where in found):
        raise SampleError(
            f"fields names {', '.join(map(str, fields))}, and a sample has {', '.join(names)}: a "
            "map has the sample's own names, in any order. To give others, say fields=[...]"
        )
    return list(fields.items())  # places have no names of their own


def _field(name: str, where: str, column: list[tuple[int, Any]], given: Shape) -> SampleField:
    arrays = [(record, *tensor_of(value, where)) for record, value in column]
    first, dtype = arrays[0][1:]
    layout = layout_of(column[0][1], first)
    if isinstance(column[0][1], (str, bytes, bytearray, memoryview)):
        return SampleField(name, where, dtype, (-1,), layout)
    shape = list(first.shape)
    for record, array, found in arrays[1:]:
        if found != dtype or array.ndim != first.ndim:
            raise SampleError(
                f"{where} is {described(dtype, first.shape)} in record {column[0][0]} and "
                f"{described(found, array.shape)} in record {record}: every sample has the same "
                "type and number of axes"
            )
        for axis, size in enumerate(array.shape):
            if size != shape[axis]:
                shape[axis] = -1
    if given is not None:
        is_like = len(given) == len(shape) and all(
            size is None or size == have for size, have in zip(given, shape)
        )
        if not is_like:
            raise SampleError(
                f"fields says {list(given)} for {name}, and {where} is "
                f"{described(dtype, tuple(shape))}"
            )
        shape = [-1 if size is None else size for size in given]
    if layout == "HWC" and shape[2] == -1 and given is None:
        raise SampleError(
            f"{where} is {described(dtype, tuple(shape))}, an image whose channels differ from "
            f"record to record: {_CHANNELS_CURE}"
        )
    if layout == "HWC" and -1 in shape[:2]:
        shape[:2] = [-1, -1]
    elif -1 in shape[1:]:
        raise SampleError(
            f"{where} differs from record to record in other axes than the first, "
            f"{described(dtype, tuple(shape))}: only the number of rows may differ. Pad it, or "
            "transpose it"
        )
    return SampleField(name, where, dtype, tuple(shape), layout)


def described(dtype: str, shape: Sequence[int]) -> str:
    """Return type and shape for people: ``float32 [3, 224, ?]``."""
    return f"{dtype} [{', '.join('?' if size < 0 else str(size) for size in shape)}]"


class Check:
    """Takes the value of one field out of samples, and checks it."""

    __slots__ = ("_ndarray", "_number", "_torch", "code", "field", "is_fixed", "shape", "storage")

    def __init__(self, field: SampleField) -> None:
        self.field = field
        self.shape, self.is_fixed = field.shape, field.is_fixed
        self.storage = field.storage
        self.code = DTYPES[field.dtype]
        # Values of these types need no more than a look.
        numbers = {"int64": int, "float64": float, "bool": bool}
        self._number = numbers.get(field.dtype) if field.shape == () else None
        is_plain = field.dtype != "bfloat16" and field.is_fixed
        self._ndarray = np.ndarray if is_plain else None
        self._torch = getattr(sys.modules.get("torch"), "Tensor", None) if is_plain else None

    def take(self, value: Any) -> Any:
        """Return the value as an array, or as the number that it is.

        Raises
        ------
        SampleError
            It is not what the first samples were.
        """
        kind = type(value)
        if kind is self._number:
            if kind is not int or -(1 << 63) <= value < 1 << 63:
                return value
        elif kind is self._ndarray:
            if value.dtype == self.storage and value.shape == self.shape:
                return value
        elif kind is self._torch and not value.requires_grad and value.shape == self.shape:
            try:
                array = value.numpy()
            except (TypeError, RuntimeError):  # of a type or device that `tensor_of` knows
                pass
            else:
                if array.dtype == self.storage:
                    return array
        return self._slowly(value)

    def _slowly(self, value: Any) -> np.ndarray:
        field = self.field
        array, dtype = tensor_of(value, field.where)
        if dtype != field.dtype and field.dtype == "float64" and type(value) is int:
            if int(float(value)) != value:
                raise SampleError(
                    f"field {field.name!r} ({field.where}) is {value}, which no float64 is: give "
                    "int64 in every sample"
                )
            array, dtype = array.astype(np.float64), "float64"
        is_like = dtype == field.dtype and array.ndim == len(field.shape)
        if is_like and all(size in (-1, have) for size, have in zip(field.shape, array.shape)):
            return array
        cure = "make them alike"
        if is_like and field.layout == "HWC" and array.shape[2] != field.shape[2]:
            cure = _CHANNELS_CURE
        elif is_like:
            cure += f", or say which axes differ: fields={{{field.name!r}: (None, ...), ...}}"
        raise SampleError(
            f"field {field.name!r} ({field.where}) is {described(dtype, array.shape)}; by the "
            f"first samples it is {described(field.dtype, field.shape)}: {cure}"
        )
