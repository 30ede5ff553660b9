"""Ordinary memory for batches of a program that keeps more of them than there are slots.

The last free slot is not lent to such a program: its batch is copied, and the slot goes back at
once, so that the daemon can fill it again. ``list(loader)`` and a notebook's history need that.
"""

from __future__ import annotations

import gc
import logging
import os
import weakref
from collections.abc import Sequence

import numpy as np

from .arena import Lease
from .fields import Place
from .machine import usable_memory
from .ragged import arrays

_LIMIT_DEFAULT = 2 << 30  # of each loader; an eighth of the memory where that is less
_SHARE_DEFAULT = 8
_FEWEST_SLOTS = 3  # with fewer the program asked for little memory, and gets no other

_log = logging.getLogger("feedwater")


class CopiedBatch:
    """A batch outside shared memory. It stands where a `Lease` does."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = arrays

    def array(self, place: Place, samples: int) -> np.ndarray:
        """Return an output of the batch, shape ``(samples, *place.shape)``; of a ragged one, whose
        samples are rows, or its offsets.
        """
        return self._arrays[place.name]


def lendable(slots: int) -> int:
    """Return how many of the slots a program can hold before batches are copied."""
    return slots - 1 if slots >= _FEWEST_SLOTS else slots


class Spill:
    """The copies of one loader.

    Attributes
    ----------
    batches : int
        Copied so far.
    """

    def __init__(self) -> None:
        self.batches = 0
        self._alive: list[tuple[weakref.ref[np.ndarray], int]] = []  # copied outputs, and bytes
        self._looks = 0
        self._limit = _limit()

    def copy(self, lease: Lease, places: Sequence[Place], samples: int) -> CopiedBatch:
        """Return a copy of the batch."""
        if self.batches == 0:
            _log.warning(
                "the program holds %d batches, and shared memory has %d slots: while it holds so "
                "many, further batches are copied to ordinary memory, up to %d MiB "
                "($FEEDWATER_SPILL_BYTES). Copy what you keep (tensor.clone(), numpy.array(x)), or "
                "make the loader with slots=N.",
                lendable(lease.arena.slots),
                lease.arena.slots,
                self._limit >> 20,
            )
        self.batches += 1
        copies: dict[str, np.ndarray] = {}
        for place in places:
            names = [place.name] if place.offsets is None else [place.name, place.offsets.name]
            copies.update(zip(names, map(self._copy, arrays(lease, place, samples))))
            for name in names:
                copies[name].setflags(write=lease.arena.writable)
        return CopiedBatch(copies)

    def _copy(self, array: np.ndarray) -> np.ndarray:
        copy = np.array(array)
        self._alive.append((weakref.ref(copy), copy.nbytes))
        return copy

    def has_room(self, size: int) -> bool:
        """Tell whether a batch of `size` bytes may be copied."""
        self._alive = [(array, nbytes) for array, nbytes in self._alive if array() is not None]
        return sum(nbytes for _, nbytes in self._alive) + size <= self._limit

    def look_for_cycles(self) -> None:
        """Collect batches in reference cycles, such as those of a traceback: ever more rarely, for
        it takes time.
        """
        self._looks += 1
        if self._looks & (self._looks - 1) == 0:
            gc.collect()


def _limit() -> int:
    try:
        return max(0, int(os.environ.get("FEEDWATER_SPILL_BYTES", "")))
    except ValueError:
        return min(_LIMIT_DEFAULT, usable_memory() // _SHARE_DEFAULT)
