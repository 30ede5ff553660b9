"""`DeviceCopies`: batches on their way to a CUDA device, on a stream beside the program's.

The copy of a batch is issued as soon as the batch is there, most often while the program still uses
the one before it. Three things keep that safe:

* the program's stream waits for the copy's event before it touches the batch;
* the allocator is told that the program's stream uses the memory (`record_stream`), since it was
  taken on the other one;
* what is read, a slot of the arena or a copy of one, is kept until the event is complete.

The arena's pages are pinned, so that the device reads them itself: without that CUDA copies each
batch once more, and the program waits for it. What does this on a device is a `Backend`; the one
for CUDA is `cuda_stream.CudaStream`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .arena import Arena
from .ragged import Ragged

_log = logging.getLogger("feedwater")


class Event(Protocol):
    """A point in a stream."""

    def query(self) -> bool:
        """Tell whether the stream has passed it."""

    def synchronize(self) -> None:
        """Wait until it has."""


class Backend(Protocol):
    """A stream for copies, and what the program's stream has to be told of them."""

    def copy(self, tensor: Any) -> Any:
        """Issue a copy of a tensor to the device; return the tensor that it makes."""

    def record(self) -> Event:
        """Return the point behind all copies issued so far."""

    def synchronize(self) -> None:
        """Wait until all copies issued so far are complete."""

    def let_program_wait(self, event: Event) -> None:
        """Let the program's stream wait for an event."""

    def used_by_program(self, tensor: Any) -> None:
        """Say that the program's stream uses a tensor that `copy` returned."""

    def pin(self, address: int, size: int) -> None:
        """Let the device read memory of this process itself. OSError: it cannot."""

    def unpin(self, address: int) -> None:
        """Undo `pin`, if it was done."""


class DeviceCopy:
    """One batch on its way."""

    __slots__ = ("event", "outputs", "sources")

    def __init__(self, outputs: list[Any], event: Event, sources: object) -> None:
        self.outputs = outputs
        self.event = event
        self.sources = sources  # what is read until the event is complete


class DeviceCopies:
    """Issues copies, hands them to the program, and lets go of what they have read. One thread
    copies; `close` may be called in another.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._in_flight: deque[DeviceCopy] = deque()
        self._lock = threading.Lock()  # of the deque
        self._pid = os.getpid()
        self._arenas: weakref.WeakSet[Arena] = weakref.WeakSet()  # those that were seen
        self._pins = True

    def copy(self, outputs: list[Any], memory: Any) -> DeviceCopy:
        """Issue the copy of a batch, whose `outputs` lie in `memory` or are copies of their own."""
        self._pin(getattr(memory, "arena", None))
        sources = (memory, outputs)
        try:
            moved = [_each(self._backend.copy, output) for output in outputs]
            copy = DeviceCopy(moved, self._backend.record(), sources)
            with self._lock:
                self._in_flight.append(copy)
        except BaseException:  # interrupted: no device may go on reading what is given back
            self._backend.synchronize()
            raise
        return copy

    def hand_on(self, copy: DeviceCopy) -> list[Any]:
        """Return the outputs of a copy, for the program's stream to use."""
        self._backend.let_program_wait(copy.event)
        outputs, copy.outputs = copy.outputs, []  # its sources may still be waited for
        for tensor in _tensors(outputs):
            self._backend.used_by_program(tensor)
        return outputs

    def let_go(self, wait: bool = False) -> None:
        """Let go of what complete copies have read; `wait` for the oldest copy."""
        if wait:
            with self._lock:
                oldest = self._in_flight[0] if self._in_flight else None
            if oldest is not None:
                oldest.event.synchronize()  # not below the lock: it may take long
        with self._lock:
            while self._in_flight and self._in_flight[0].event.query():
                # The copy itself may still be waiting to be handed on.
                self._in_flight.popleft().sources = None

    def close(self) -> None:
        """Wait for all copies, and let go of what they have read."""
        while self._in_flight and os.getpid() == self._pid:  # a forked child has no device
            self.let_go(wait=True)

    def __del__(self) -> None:
        # CUDA may be gone when the interpreter ends.
        with contextlib.suppress(Exception):
            self.close()

    def _pin(self, arena: Any) -> None:
        """Pin an arena that is seen for the first time."""
        if arena is None or not self._pins or arena in self._arenas:
            return
        self._arenas.add(arena)
        # The arena unmaps its memory after its references have been told. This one is there before
        # the memory is pinned: an interrupt may come at the end of `pin`.
        finalizer = weakref.finalize(arena, _unpin, self._backend.unpin, arena.address, os.getpid())
        finalizer.atexit = False  # the process's end gives everything back
        try:
            self._backend.pin(arena.address, arena.size)
        except OSError as error:
            finalizer.detach()
            self._pins = False
            _log.warning(
                "the %d MiB of shared memory cannot be pinned for the device (%s): each batch is "
                "copied once more on its way there, and next() waits for that. Nothing else "
                "changes.",
                arena.size >> 20,
                str(
                    error
                ),  # a record may be kept, and with an error the frames that hold the batch
            )


def _unpin(unpin: Callable[[int], None], address: int, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(Exception):
            unpin(address)


def _each(copy: Callable[[Any], Any], output: Any) -> Any:
    """Copy an output: a tensor, or both of a ragged one."""
    if isinstance(output, Ragged):
        return output.map(copy)
    return copy(output)


def _tensors(outputs: Iterable[Any]) -> Iterator[Any]:
    for output in outputs:
        if isinstance(output, Ragged):
            yield from (output.values, output.offsets)
        else:
            yield output
