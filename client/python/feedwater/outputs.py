"""Turns the outputs of a lent batch into what the program wants: NumPy arrays, torch tensors or JAX
arrays.

NumPy and torch get views over the slot, without a copy, that keep the slot lent. Small outputs
(labels, ids) are copies, so that a program may keep them. A JAX array, and a torch tensor on
another device, is a copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import numpy as np

from .arena import Lease
from .cuda_stream import CudaStream
from .device_copies import DeviceCopies, DeviceCopy
from .errors import InvalidArgument
from .fields import Place
from .ragged import Ragged, arrays
from .spill import CopiedBatch

KINDS = ("auto", "torch", "numpy", "jax")
SMALL_BYTES = 16 << 10  # an output of a batch up to this size is handed out as a copy

_Memory = Union[Lease, CopiedBatch]
Begun = Union[list[Any], DeviceCopy]  # outputs, or what they are copied by


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
        # What is only copied to a device is mapped as it is: a private mapping cannot be pinned,
        # since the pages would be this process's own from then on.
        return output, device is None or _torch_device(device).type != "cuda"
    return output, bool(writable) and output == "numpy"


def _torch_device(device: Any) -> Any:
    """Return the device, with its number, that a program means."""
    import torch

    try:
        return torch.empty(0, device=device).device  # that it is there is known now
    except (RuntimeError, TypeError, AssertionError) as error:
        raise InvalidArgument(f"device={device!r}: {error}") from None


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
        self._copies: Optional[DeviceCopies] = None
        self._device: Any = None
        self._one: Callable[[np.ndarray, Place], Any] = _numpy
        if kind == "jax":
            self._one = _jax
        elif kind == "torch":
            self._one = _torch
            self._device = None if device is None else _torch_device(device)
            if self._device is not None and self._device.type == "cpu":
                self._device = None
            if self._device is not None and self._device.type == "cuda":
                self._one = _torch_source
                self._copies = DeviceCopies(CudaStream(self._device))

    @property
    def copies_ahead(self) -> bool:
        """Whether a batch that is there is to be begun before it is asked for."""
        return self._copies is not None

    def begin(self, memory: _Memory, samples: int) -> Begun:
        """Make a batch's outputs, or begin the copy of them to a CUDA device, for `finish`."""
        outputs = [self._output(memory, place, samples) for place in self._places]
        if self._copies is not None:
            return self._copies.copy(outputs, memory)
        if self._device is not None:
            # Only of CUDA is it known here how to learn when a copy is complete: any other device
            # is waited for, so that the slot does not go back while it is being read.
            return [output.to(self._device) for output in outputs]
        return outputs

    def finish(self, begun: Begun) -> Any:
        """Return the outputs, each with the samples as its first axis, or `Ragged`."""
        if isinstance(begun, DeviceCopy):
            assert self._copies is not None
            begun = self._copies.hand_on(begun)
        if self._names is None:
            return tuple(begun)
        return dict(zip(self._names, begun))

    def _output(self, memory: _Memory, place: Place, samples: int) -> Any:
        if place.offsets is None:
            return self._one(memory.array(place, samples), place)
        values, offsets = arrays(memory, place, samples)
        copy = offsets.copy()  # 8 bytes a sample
        copy.setflags(write=offsets.flags.writeable)
        return Ragged(
            self._one(values, place), self._one(copy, place.offsets), bounds=copy.tolist()
        )

    def let_go(self, wait: bool = False) -> None:
        """Give back the batches whose copies to the device are complete; `wait` for the oldest."""
        if self._copies is not None:
            self._copies.let_go(wait)

    def close(self) -> None:
        """Wait for the copies to the device."""
        if self._copies is not None:
            self._copies.close()


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
    return _tensor(_kept(array), place)


class _Alias:
    """Lets torch, which has no read-only tensors, look at an array that is only copied from."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        described = dict(array.__array_interface__)
        self.__array_interface__ = {**described, "data": (described["data"][0], False)}


def _torch_source(array: np.ndarray, place: Place) -> Any:
    return _tensor(np.asarray(_Alias(array)), place)


def _tensor(array: np.ndarray, place: Place) -> Any:
    import torch

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
