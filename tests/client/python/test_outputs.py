"""Copies to devices: a slot goes back when the device has what was in it, and no earlier."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import feedwater
from feedwater import outputs
from feedwater.outputs import Converter, choose


class Tensor:
    """What a batch's tensor must have here: it notes how it was copied."""

    def __init__(self) -> None:
        self.calls: list = []

    def to(self, device, non_blocking=False):
        self.calls.append((device.type, non_blocking))
        return self


def empty(size, device):
    """Devices that are not there say so as torch does, where memory is asked of them."""
    if device == "cuda:7":
        raise AssertionError("Torch not compiled with CUDA enabled")
    return SimpleNamespace(device=SimpleNamespace(type=device.partition(":")[0]))


@pytest.fixture
def converter(monkeypatch):
    """Make converters with a module in torch's place that knows every device, for one output."""
    torch = ModuleType("torch")
    torch.empty = empty
    monkeypatch.setitem(sys.modules, "torch", torch)
    return lambda device: Converter("torch", [], False, device)


@pytest.mark.parametrize("device", ["mps", "xpu", "hpu", "xla", "npu:1", "privateuseone"])
def test_a_device_whose_copies_cannot_be_followed_is_waited_for(converter, device, monkeypatch):
    tensor = Tensor()
    convert = converter(device)
    convert._places = ("image",)
    monkeypatch.setattr(convert, "_output", lambda memory, place, samples: tensor)
    assert convert.finish(convert.begin(object(), 1)) == (tensor,)
    assert tensor.calls == [(device.partition(":")[0], False)]  # complete: the lease may go
    assert not convert.copies_ahead
    assert choose("torch", device, None) == ("torch", True)


def test_memory_that_only_cuda_reads_is_mapped_so_that_it_can_be_pinned(converter, monkeypatch):
    monkeypatch.setattr(outputs, "CudaStream", lambda device: device.type)
    assert choose("torch", "cuda:1", None) == ("torch", False)
    assert choose("torch", "cpu", None) == choose("torch", None, None) == ("torch", True)
    assert converter("cuda:1").copies_ahead
    assert not converter("cpu").copies_ahead


def test_a_device_that_is_not_there_is_refused_before_the_first_batch(converter):
    with pytest.raises(feedwater.InvalidArgument, match="'cuda:7': Torch not compiled with CUDA"):
        converter("cuda:7")
    with pytest.raises(feedwater.InvalidArgument, match="'cuda:7': Torch not compiled with CUDA"):
        choose("torch", "cuda:7", None)
