"""A device's stream for copies that runs when the test says so: a `device_copies.Backend` over
NumPy arrays.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np


class FakeEvent:
    """A point in the stream."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._at = stream.issued

    def query(self) -> bool:
        self._stream.run(self._stream.by_itself)
        return self._stream.done >= self._at

    def synchronize(self) -> None:
        self._stream.log.append("synchronize")
        self._stream.run(self._at - self._stream.done)


class FakeStream:
    """Copies happen in `run`, and so does the reading of what they copy.

    Attributes
    ----------
    log : list
        What was called, in order.
    by_itself : int
        Copies that run each time somebody looks at an event.
    """

    def __init__(self, by_itself: int = 0) -> None:
        self.log: list[Any] = []
        self.by_itself = by_itself
        self.issued = self.done = 0
        self.sources: list[weakref.ref] = []  # what copies read
        self.used: list[Any] = []  # tensors that the program's stream was said to use
        self.pinned: dict[int, int] = {}  # address -> size
        self.pins = 0
        self.cannot_pin = ""
        self.on_copy: Callable[[], object] = bool
        self._waiting: deque[Callable[[], object]] = deque()

    def run(self, copies: int) -> None:
        """Let so many copies happen."""
        for _ in range(min(copies, len(self._waiting))):
            self._waiting.popleft()()
            self.done += 1

    def copy(self, tensor: np.ndarray) -> np.ndarray:
        moved = np.full(tensor.shape, 0xDD, np.uint8).astype(tensor.dtype)
        # As a device does: by the address, which keeps nothing alive.
        address, size = tensor.ctypes.data, tensor.nbytes
        self._waiting.append(lambda: ctypes.memmove(moved.ctypes.data, address, size))
        self.sources.append(weakref.ref(tensor))
        self.issued += 1
        self.log.append("copy")
        self.on_copy()
        return moved

    def record(self) -> FakeEvent:
        self.log.append("record")
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.log.append("synchronize all")
        self.run(len(self._waiting))

    def let_program_wait(self, event: FakeEvent) -> None:
        """The program's stream goes on when the event is complete, so it is from here on."""
        self.log.append("wait")
        self.run(event._at - self.done)

    def used_by_program(self, tensor: np.ndarray) -> None:
        self.used.append(tensor)

    def pin(self, address: int, size: int) -> None:
        self.pins += 1
        if self.cannot_pin:
            raise OSError(self.cannot_pin)
        self.pinned[address] = size

    def unpin(self, address: int) -> None:
        del self.pinned[address]
