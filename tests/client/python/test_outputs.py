"""Copies to devices: a slot goes back when the device has what was in it, and no earlier."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import feedwater
from feedwater.outputs import Converter


class Tensor:
    """What a batch's tensor must have here: it notes how it was copied."""

    def __init__(self) -> None:
        self.calls: list = []

    def to(self, device, non_blocking=False):
        self.calls.append((device.type, non_blocking))
        return self


class Event:
    """A point in a device's stream of work that has not been passed."""

    passed = False

    def record(self, stream) -> None:
        self.stream = stream

    def query(self) -> bool:
        return Event.passed

    def synchronize(self) -> None:
        Event.passed = True


class Device:
    """Those that are not there say so as torch does, where memory is asked of them."""

    missing = ("cuda:7",)

    @staticmethod
    def look(device) -> None:
        if device.name in Device.missing:
            raise AssertionError("Torch not compiled with CUDA enabled")


@pytest.fixture
def converter(monkeypatch):
    """Make converters with a module in torch's place that knows every device."""
    torch = ModuleType("torch")
    torch.device = lambda name: SimpleNamespace(name=name, type=name.partition(":")[0])
    torch.empty = lambda size, device: Device.look(device)
    torch.cuda = SimpleNamespace(Event=Event, current_stream=lambda device: device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(Event, "passed", False)
    return lambda device: Converter("torch", [], False, device)


@pytest.mark.parametrize("device", ["mps", "xpu", "hpu", "xla", "npu:1", "privateuseone"])
def test_a_device_whose_copies_cannot_be_followed_is_waited_for(converter, device):
    tensor = Tensor()
    convert = converter(device)
    convert._to_device([tensor], memory=object())
    assert tensor.calls == [(device.partition(":")[0], False)]
    assert not convert._in_flight  # the lease may go: the copy is complete


def test_a_copy_to_cuda_keeps_the_lease_until_the_device_has_passed_it(converter):
    tensor = Tensor()
    convert = converter("cuda:0")
    convert._to_device([tensor], memory=object())
    assert tensor.calls == [("cuda", True)]
    convert.let_go()
    assert len(convert._in_flight) == 1
    convert.let_go(wait=True)
    assert not convert._in_flight


def test_a_device_that_is_not_there_is_refused_before_the_first_batch(converter):
    with pytest.raises(feedwater.InvalidArgument, match="'cuda:7': Torch not compiled with CUDA"):
        converter("cuda:7")
