"""Turns the outputs of a lent batch into what the program wants: NumPy arrays, torch tensors or JAX
arrays.

NumPy and torch get views over the slot, without a copy, that keep the slot lent. Small outputs
(labels, ids) are copies, so that a program may keep them. A JAX array, and a torch tensor on
another device, is a copy.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import numpy as np

from .arena import Lease
from .errors import InvalidArgument
from .fields import Place
from .ragged import Ragged, arrays
from .spill import CopiedBatch

KINDS = ("auto", "torch", "numpy", "jax")
SMALL_BYTES = 16 << 10  # an output of a batch up to this size is handed out as a copy

_Memory = Union[Lease, CopiedBatch]


def choose(output: str, device: Any, writable: Optional[bool]) -> tuple[str, bool]:
    """Settle what `Loader`'s arguments mean: the kind of output and whether to map the memory copy
    on write.
    """
    if output not in KINDS:
        raise InvalidArgument(f"output is {output!r}: it is one of {', '.join(KINDS)}")
    if output == "auto":
        there = "torch" in sys.modules or importlib.util.find_spec("torch") is not None
        output = "torch" if there else "numpy"
    if output in ("torch", "jax"):
        try:
            importlib.import_module(output)
        except ImportError as error:
            raise InvalidArgument(
                f"output={output!r} needs the package {output}: {error}"
            ) from None
    if device is not None and output != "torch":
        raise InvalidArgument(f"device={device!r} works with output='torch', here it is {output!r}")
    if output == "torch":
        if writable is False:
            raise InvalidArgument(
                "writable=False cannot be had with torch, which has no read-only tensors; use "
                "output='numpy'"
            )
        return output, True
    return output, bool(writable) and output == "numpy"


class Converter:
    """Makes the outputs of a batch.

    Parameters
    ----------
    kind : str
        ``"torch"``, ``"numpy"`` or ``"jax"``.
    places : sequence of Place
        In the order of the pipeline's outputs.
    as_dict : bool
        Give a dict by name instead of a tuple.
    device : optional
        A torch device to copy to.
    """

    def __init__(self, kind: str, places: Sequence[Place], as_dict: bool, device: Any) -> None:
        self._places = tuple(places)
        self._names = tuple(place.name for place in places) if as_dict else None
        self._in_flight: deque[tuple[Any, Any]] = deque()  # events, and what is read until then
        self._device: Any = None
        self._one: Callable[[np.ndarray, Place], Any] = _numpy
        if kind == "jax":
            self._one = _jax
        elif kind == "torch":
            self._one = _torch
            if device is not None:
                import torch

                try:
                    self._device = torch.device(device)
                    torch.empty(0, device=self._device)  # that it is there is known now
                except (RuntimeError, TypeError, AssertionError) as error:
                    raise InvalidArgument(f"device={device!r}: {error}") from None
                if self._device.type == "cpu":
                    self._device = None

    def __call__(self, memory: _Memory, samples: int) -> Any:
        """Return the batch's outputs, each with `samples` as its first axis, or `Ragged`."""
        outputs = [self._output(memory, place, samples) for place in self._places]
        if self._device is not None:
            outputs = self._to_device(outputs, memory)
        if self._names is None:
            return tuple(outputs)
        return dict(zip(self._names, outputs))

    def _output(self, memory: _Memory, place: Place, samples: int) -> Any:
        if place.offsets is None:
            return self._one(memory.array(place, samples), place)
        values, offsets = arrays(memory, place, samples)
        copy = offsets.copy()  # 8 bytes a sample
        copy.setflags(write=offsets.flags.writeable)
        return Ragged(
            self._one(values, place), self._one(copy, place.offsets), bounds=copy.tolist()
        )

    def _to_device(self, outputs: list[Any], memory: _Memory) -> list[Any]:
        if self._device.type != "cuda":
            # Only of CUDA is it known here how to learn when a copy is complete: any other device
            # is waited for, so that the slot does not go back while it is being read.
            return [tensor.to(self._device) for tensor in outputs]
        import torch

        moved = [tensor.to(self._device, non_blocking=True) for tensor in outputs]
        # The copy may still be reading the slot, or what was copied out of it: both stay until the
        # device has passed this point.
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(self._device))
        self._in_flight.append((done, (memory, outputs)))
        return moved

    def __del__(self) -> None:
        # No device may go on reading memory that is given back. CUDA may be gone when the
        # interpreter ends.
        with contextlib.suppress(Exception):
            while self._in_flight:
                self.let_go(wait=True)

    def let_go(self, wait: bool = False) -> None:
        """Give back the batches whose copies to the device are complete; `wait` for the oldest."""
        while self._in_flight:
            done, _ = self._in_flight[0]
            if wait:
                done.synchronize()
                wait = False
            elif not done.query():
                return
            self._in_flight.popleft()


def _kept(array: np.ndarray) -> np.ndarray:
    """Return the array over the slot, or a copy of a small one."""
    if array.base is None or array.nbytes > SMALL_BYTES:
        return array
    copy = array.copy()
    copy.setflags(write=array.flags.writeable)
    return copy


def _numpy(array: np.ndarray, place: Place) -> np.ndarray:
    array = _kept(array)
    return array if place.storage is place.dtype else array.view(place.dtype)


def _torch(array: np.ndarray, place: Place) -> Any:
    import torch

    array = _kept(array)
    if place.dtype_name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError:  # uint16 before torch 2.3
        return torch.from_numpy(array.astype(np.int32))


def _jax(array: np.ndarray, place: Place) -> Any:
    import jax.numpy as jnp

    if place.dtype_name == "bfloat16":
        array = array.view(np.dtype(jnp.bfloat16))
    return jnp.array(array, copy=True)
