"""The memory that a provider shares with the daemon: windows, and the payloads in them.

proto/shm/README.md has the bytes. A payload is a head for each tensor, then the tensors.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from . import wire
from .sample_values import DTYPES, storage_of

MAX_PAYLOAD = 256 << 20

_F_GET_SEALS = 1034
_SEALS = 1 | 2 | 4  # SEAL, SHRINK, GROW
_HEAD = wire.TENSOR_HEAD.size
_UNIT = wire.PAYLOAD_UNIT
_DTYPES = {number: name for name, number in DTYPES.items()}
_BFLOAT16 = DTYPES["bfloat16"]


class TooLarge(Exception):
    """A payload that the window has no room for."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def align(offset: int) -> int:
    """Return the next place where a payload or a tensor may begin."""
    return -(-offset // _UNIT) * _UNIT


class Region:
    """The mapped region.

    Parameters
    ----------
    fd : int
        Its descriptor; it is not kept.
    about : wire.Region
        As the daemon announced it.

    Raises
    ------
    ProtocolError
        Its size or seals are not those of a region: writing to it would not be safe.
    """

    def __init__(self, fd: int, about: wire.Region) -> None:
        size = os.fstat(fd).st_size
        wanted = wire.WORDS_BYTES + about.windows * about.window_bytes
        in_range = 1 <= about.windows <= wire.MAX_WINDOWS and 1 <= about.entries <= wire.MAX_ENTRIES
        if not in_range or about.window_bytes % wire.WINDOW_UNIT:
            raise wire.ProtocolError(f"a region such as {about}")
        if not size == about.region_bytes == wanted:
            raise wire.ProtocolError(f"a region of {size} bytes; {about} needs {wanted}")
        if fcntl.fcntl(fd, _F_GET_SEALS) & _SEALS != _SEALS:
            raise wire.ProtocolError("the region is not sealed")
        self.memory = mmap.mmap(fd, size)
        self.about = about
        self.first_payload = align(about.entries * wire.ENTRY.size)  # in a window
        # By offset in the region: payloads of one layout come to lie at the same places again.
        self._views: dict[int, list[np.ndarray]] = {}
        # Of its own, since the one that came may share its position with others.
        self._words = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_CLOEXEC)
        os.lseek(self._words, size - wire.WORDS_BYTES, os.SEEK_SET)

    def words(self) -> int:
        """Return a descriptor that writes last words, from their beginning; more than fit fail."""
        return self._words

    def close(self) -> None:
        """Let go of it. Arrays over it keep the memory."""
        self._views.clear()
        os.close(self._words)

    def begin(self, window: int) -> int:
        """Return where a window begins."""
        if window >= self.about.windows:
            raise wire.ProtocolError(f"window {window} of {self.about.windows}")
        return window * self.about.window_bytes

    def forget(self) -> None:
        """Something else was written where payloads of one layout lie."""
        self._views.clear()

    def write(
        self, layout: Optional[FixedLayout], codes: Sequence[int], values: Sequence[Any],
        offset: int, end: int,
    ) -> int:  # fmt: skip
        """Write a payload at `offset`, before `end`; return its bytes.

        Parameters
        ----------
        layout : FixedLayout, optional
            Where all payloads have this one; then a value may also be a number.
        codes, values
            The tensors' types and the tensors.

        Raises
        ------
        TooLarge
            It needs more room.
        """
        if layout is None:
            layout = FixedLayout(codes, [getattr(value, "shape", ()) for value in values])
            views = self._place(layout, offset, end)
        else:
            placed = self._views.get(offset)
            if placed is None:
                placed = self._views[offset] = self._place(layout, offset, end)
            views = placed
        for view, value in zip(views, values):
            view[...] = value
        return layout.size

    def _place(self, layout: FixedLayout, offset: int, end: int) -> list[np.ndarray]:
        if offset + layout.size > end:
            raise TooLarge(layout.size)
        self.memory[offset : offset + len(layout.heads)] = layout.heads
        return [
            np.ndarray(shape, storage, self.memory, offset + place)
            for shape, storage, place in zip(layout.shapes, layout.storages, layout.places)
        ]

    def read(self, offset: int, size: int) -> list[np.ndarray]:
        """Return the tensors of a payload, over the memory."""
        if size < _HEAD or offset % _UNIT or offset + size > len(self.memory):
            raise wire.ProtocolError(f"an input of {size} bytes at {offset}")
        first = wire.TENSOR_HEAD.unpack_from(self.memory, offset)[4]
        found = []
        for at in range(offset, offset + min(first, size), _HEAD):
            dtype, axes, _, _, place, *shape = wire.TENSOR_HEAD.unpack_from(self.memory, at)
            if dtype not in _DTYPES or axes > wire.MAX_AXES:
                raise wire.ProtocolError(f"an input of type {dtype} with {axes} axes")
            storage = storage_of(_DTYPES[dtype])
            array = np.ndarray(shape[:axes], storage, self.memory, offset + place)
            found.append(_shown(array) if dtype == _BFLOAT16 else array)
        return found


class FixedLayout:
    """Where the tensors of a payload stand, by their types and shapes.

    Attributes
    ----------
    size : int
        Bytes of the payload.
    heads : bytes
        What it begins with.
    places : list of int
        Of the tensors, from the payload's beginning.
    """

    __slots__ = ("heads", "places", "shapes", "size", "storages")

    def __init__(self, codes: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> None:
        at = _HEAD * len(codes)
        heads = []
        self.places = []
        self.shapes = shapes
        self.storages = [storage_of(_DTYPES[code]) for code in codes]
        for code, shape, storage in zip(codes, shapes, self.storages):
            at = align(at)
            padded = (*shape, 0, 0, 0, 0, 0, 0)[: wire.MAX_AXES]
            heads.append(wire.TENSOR_HEAD.pack(code, len(shape), 0, 0, at, *padded))
            self.places.append(at)
            size = storage.itemsize
            for axis in shape:
                size *= axis
            at += size
        self.size = at
        self.heads = b"".join(heads)


def _shown(array: np.ndarray) -> np.ndarray:
    """Return an array of bfloat16 as programs see it."""
    from .fields import numpy_dtype

    return array.view(numpy_dtype("bfloat16"))
