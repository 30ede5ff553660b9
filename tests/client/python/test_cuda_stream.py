"""What `CudaStream` asks of torch, which is a fake one where there is no device."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace

import pytest

from feedwater.cuda_stream import CudaStream


class Torch(ModuleType):
    """What `CudaStream` uses of torch; it notes each call."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.calls: list = []
        self.result = 0
        self.copies, self.program = SimpleNamespace(name="copies"), SimpleNamespace(name="program")
        self.copies.synchronize = lambda: self.calls.append("synchronize copies")
        self.program.wait_event = lambda event: self.calls.append(("program waits", event))
        self.now = self.program
        self.cuda = SimpleNamespace(
            Stream=lambda device: self.copies,
            Event=self.event,
            stream=self.on,
            current_stream=lambda device: self.program,
            device=lambda device: nullcontext(),
            cudart=lambda: self,
        )
        self.inference = True
        self.inference_mode = self.mode
        self.cudaGetErrorString = lambda result: f"error {result}"

    def event(self):
        event = SimpleNamespace()
        event.record = lambda stream: self.calls.append(("record", stream.name))
        return event

    @contextmanager
    def mode(self, inference):
        before, self.inference = self.inference, inference
        yield
        self.inference = before

    def on(self, stream):
        torch = self

        class On:
            def __enter__(self) -> None:
                torch.now = stream

            def __exit__(self, *unused) -> None:
                torch.now = torch.program

        return On()

    def cudaHostRegister(self, address, size, flags):
        self.calls.append(("register", address, size, flags))
        return self.result

    def cudaHostUnregister(self, address):
        self.calls.append(("unregister", address))
        return self.result

    def ones(self, size, device):
        self.calls.append("kernel")
        raise RuntimeError("the error of before")


def test_cuda_is_asked_through_torch_as_it_wants_to_be(monkeypatch):
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    stream = CudaStream("cuda:1")
    tensor = SimpleNamespace(
        to=lambda device, non_blocking: (
            device,
            non_blocking,
            torch.now.name,
            "inference" if torch.inference else "normal",
        ),
        record_stream=lambda stream: torch.calls.append(("used by", stream.name)),
    )
    assert stream.copy(tensor) == ("cuda:1", True, "copies", "normal")
    event = stream.record()
    stream.let_program_wait(event)
    stream.used_by_program(tensor)
    stream.synchronize()
    expected = [("record", "copies"), ("program waits", event), ("used by", "program")]
    assert torch.calls == [*expected, "synchronize copies"]
    torch.calls.clear()
    # Portable, and read-only, as the arena is mapped.
    stream.pin(4096, 8192)
    stream.unpin(4096)
    assert torch.calls == [("register", 4096, 8192, 0x1 | 0x8), ("unregister", 4096)]
    torch.calls.clear()
    torch.result = 801
    with pytest.raises(OSError, match="cudaHostRegister: error 801"):
        stream.pin(4096, 8192)
    assert torch.calls[-1] == "kernel"  # which takes the error that CUDA still remembers
    torch.calls.clear()
    stream.unpin(4096)  # after an interrupt just before it was pinned
    assert torch.calls == [("unregister", 4096), "kernel"]


def test_a_batch_that_is_begun_in_inference_mode_can_be_trained_on(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    stream = CudaStream(torch.device("meta"))
    with torch.inference_mode():
        source = torch.ones(3)
        moved = stream.copy(source)
    assert source.is_inference() and not moved.is_inference()
