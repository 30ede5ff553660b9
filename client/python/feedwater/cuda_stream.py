"""`CudaStream`: what `DeviceCopies` needs of a CUDA device, through torch."""

from __future__ import annotations

import contextlib
from typing import Any

# cudaHostRegister: for all devices, and for memory that this process maps read-only.
_PORTABLE, _READ_ONLY = 0x01, 0x08


class CudaStream:
    """A stream for copies beside the program's: a `device_copies.Backend`.

    Parameters
    ----------
    device : torch.device
        With its number.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy(self, tensor: Any) -> Any:
        """Issue a copy of a tensor of the host."""
        # The program uses it in a mode of its own, which need not be the one of now.
        with self._torch.inference_mode(False), self._torch.cuda.stream(self._stream):
            return tensor.to(self._device, non_blocking=True)

    def record(self) -> Any:
        """Return the event behind all copies issued so far."""
        event = self._torch.cuda.Event()
        event.record(self._stream)
        return event

    def synchronize(self) -> None:
        """Wait until all copies issued so far are complete."""
        self._stream.synchronize()

    def let_program_wait(self, event: Any) -> None:
        """Let the stream that the program has chosen wait for an event."""
        self._torch.cuda.current_stream(self._device).wait_event(event)

    def used_by_program(self, tensor: Any) -> None:
        """Keep the memory of a tensor from the copies' stream until the program's is done."""
        tensor.record_stream(self._torch.cuda.current_stream(self._device))

    def pin(self, address: int, size: int) -> None:
        """Register memory with the driver.

        Raises
        ------
        OSError
            The driver cannot pin it; the text names its error.
        """
        cudart = self._torch.cuda.cudart()
        with self._torch.cuda.device(self._device):
            result = cudart.cudaHostRegister(address, size, _PORTABLE | _READ_ONLY)
        if int(result) == 0:
            return
        self._take_last_error()
        raise OSError(f"cudaHostRegister: {cudart.cudaGetErrorString(result)}")

    def unpin(self, address: int) -> None:
        """Undo `pin`, if it was done."""
        with self._torch.cuda.device(self._device):
            if int(self._torch.cuda.cudart().cudaHostUnregister(address)) != 0:
                self._take_last_error()

    def _take_last_error(self) -> None:
        # A failure stays the runtime's last error, and would be told as that of the next kernel:
        # one that is launched here takes it.
        with contextlib.suppress(RuntimeError):
            self._torch.ones(1, device=self._device)
