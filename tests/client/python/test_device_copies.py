"""Copies to a CUDA device, with a fake stream in its place: order, slots, pinning, the end.

The stream runs when the test says so, and the fake daemon overwrites each slot that is given back:
a slot that went back too early shows in the bytes.
"""

from __future__ import annotations

import gc
import os
import select
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from fake_samples import OUTPUTS
from fake_stream import FakeStream
from reading import check, epoch_positions, positions

import feedwater
from feedwater import outputs, wire
from feedwater.device_copies import DeviceCopies
from feedwater.fields import Field, Place
from feedwater.outputs import Converter
from feedwater.spill import CopiedBatch

ALL = list(range(40))
TENSORS = len(OUTPUTS)  # of a batch


@pytest.fixture
def open_on_device(open_loader):
    """Open loaders whose batches are copied by a fake stream."""

    def open_one(daemon, stream: FakeStream, **options) -> feedwater.Loader:
        loader = open_loader(daemon, **options)
        loader._feed._convert._copies = DeviceCopies(stream)
        return loader

    return open_one


def wait_for_a_batch(loader) -> None:
    """Wait until the next batch lies in the socket."""
    assert select.select([loader._feed.stream._session._socket], [], [], 10)[0]


def test_the_next_copy_is_issued_before_a_batch_is_handed_on(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    iterator = iter(loader)
    first = next(iterator)
    wait_for_a_batch(loader)
    stream.log.clear()
    for step in range(1, 4):
        ahead = stream.issued
        batch = next(iterator)
        assert stream.issued >= ahead + TENSORS
        check(batch, 0)
        assert positions(batch) == ALL[4 * step : 4 * step + 4]
        wait_for_a_batch(loader)
    check(first, 0)
    # From the second on: its copy was there already, and the one behind it began before the return.
    batch_begun = ["copy"] * TENSORS + ["record"]
    assert stream.log[-len(batch_begun) - 1 :] == ["wait", *batch_begun]


def test_the_program_waits_for_the_copy_and_the_allocator_is_told(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    batch = next(iter(loader))
    assert "wait" in stream.log
    assert {id(tensor) for tensor in batch.values()} == {id(tensor) for tensor in stream.used}


def test_a_slot_goes_back_when_its_event_is_complete_and_no_earlier(daemon, open_on_device):
    class NeverRuns(FakeStream):
        def let_program_wait(self, event) -> None:
            pass

    stream = NeverRuns()
    loader = open_on_device(daemon, stream, slots=4)
    iterator = iter(loader)
    batches = [next(iterator)]
    wait_for_a_batch(loader)
    batches.append(next(iterator))
    assert loader.stats()["held"] >= 2  # though nothing but copies on the device are left
    released = daemon.counts["released"]
    copies = loader._feed._convert._copies
    copies.let_go()
    assert daemon.counts["released"] == released
    held = loader.stats()["held"]
    stream.run(TENSORS - 1)
    copies.let_go()
    assert loader.stats()["held"] == held
    stream.run(1)
    copies.let_go()
    assert loader.stats()["held"] == held - 1
    stream.synchronize()
    for batch in batches:
        check(batch, 0)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("by_itself", [0, 1, 5, 1000])
def test_every_byte_arrives_however_slow_the_device_is(daemon, open_on_device, slots, by_itself):
    loader = open_on_device(daemon, FakeStream(by_itself), slots=slots)
    for epoch in range(3):
        kept = list(loader)  # copies: as many as the device holds
        assert [p for batch in kept for p in positions(batch)] == ALL
        for batch in kept:
            check(batch, epoch)
    assert loader.stats()["spilled"] == 0


def test_the_position_counts_what_was_returned_and_not_what_was_begun(daemon, open_on_device):
    loader = open_on_device(daemon, FakeStream())
    iterator = iter(loader)
    for step in range(4):
        batch = next(iterator)
        wait_for_a_batch(loader)
        assert loader.state_dict()["position"] == 4 * (step + 1)
        assert loader.stats()["batches"] == step + 1
    state = loader.state_dict()
    again = open_on_device(daemon, FakeStream(), job="again")
    again.load_state_dict(state)
    assert epoch_positions(again) == ALL[16:]
    check(batch, 0)
    # And here, where the copy of the next batch has begun.
    loader.load_state_dict(state)
    assert epoch_positions(loader) == ALL[16:]


def test_moving_forgets_the_batch_that_was_begun(daemon, open_on_device):
    loader = open_on_device(daemon, FakeStream())

    def taken(count: int) -> list[int]:
        iterator, seen = iter(loader), []
        for _ in range(count):
            batch = next(iterator)
            check(batch, loader.epoch)
            seen += positions(batch)
            wait_for_a_batch(loader)
        return seen

    assert taken(3) == ALL[:12]
    assert epoch_positions(loader) == ALL and loader.epoch == 1 + 1  # after the `break`
    loader.set_epoch(7)
    assert taken(2) == ALL[:8] and loader.epoch == 7
    iterator = iter(loader)
    assert positions(next(iterator)) == ALL[:4]
    loader.skip(1, 7)
    replayed = loader.replay(5)
    check(replayed, 8)
    assert positions(replayed) == ALL[20:24]
    assert [p for batch in iterator for p in positions(batch)] == ALL[32:]


def test_a_bad_sample_is_told_in_its_turn(daemon, open_on_device):
    daemon.faults.fail_at[0, 2] = wire.Failed(0, 15, 0, 2, 0, 17, "a/b.jpg", "cut off")
    loader = open_on_device(daemon, FakeStream())
    iterator = iter(loader)
    for step in range(2):
        assert positions(next(iterator)) == ALL[4 * step : 4 * step + 4]
        if step == 0:
            wait_for_a_batch(loader)
    with pytest.raises(feedwater.BadSample) as failure:
        next(iterator)
    assert failure.value.record == 17
    assert loader.state_dict()["position"] == 8


def test_a_wrong_checksum_is_told_in_its_turn(daemon, open_on_device):
    daemon.faults.wrong_crc_at.add((0, 2))
    loader = open_on_device(daemon, FakeStream(), verify=True)
    iterator = iter(loader)
    for _ in range(2):
        check(next(iterator), 0)
        wait_for_a_batch(loader)
    with pytest.raises(feedwater.ChecksumMismatch):
        next(iterator)
    daemon.faults.wrong_crc_at.clear()
    assert [p for batch in iterator for p in positions(batch)] == ALL[8:]


@pytest.mark.parametrize("at", range(3 * TENSORS))
def test_an_interrupt_in_a_copy_waits_for_the_device_and_loses_nothing(daemon, open_on_device, at):
    stream = FakeStream()

    def interrupt() -> None:
        if stream.issued == at + 1:
            stream.issued += 1  # once
            stream.done += 1
            raise KeyboardInterrupt

    stream.on_copy = interrupt
    loader = open_on_device(daemon, stream)
    iterator, seen, interrupts = iter(loader), [], 0
    while True:
        try:
            batch = next(iterator)
        except KeyboardInterrupt:
            interrupts += 1
            assert stream.log[-1] == "synchronize all"
            continue
        except StopIteration:
            break
        check(batch, 0)
        seen += positions(batch)
    assert (interrupts, seen) == (1, ALL)


def test_a_device_without_memory_for_the_next_batch_gets_it_in_its_turn(daemon, open_on_device):
    stream, failures = FakeStream(), []
    loader = open_on_device(daemon, stream)
    look_ahead = loader._feed.look_ahead

    def fail() -> None:
        failures.append(stream.issued)
        raise RuntimeError("CUDA out of memory")

    def look_ahead_without_memory() -> None:
        stream.on_copy = fail
        look_ahead()
        stream.on_copy = bool

    loader._feed.look_ahead = look_ahead_without_memory
    seen = []
    for batch in loader:
        check(batch, 0)
        seen += positions(batch)
        if len(seen) < 20:
            wait_for_a_batch(loader)
    assert failures and seen == ALL
    assert daemon.counts["seeks"] == 0


def test_an_interrupt_at_the_end_of_pinning_leaves_nothing_pinned(daemon, open_on_device):
    class Interrupted(FakeStream):
        def pin(self, address: int, size: int) -> None:
            super().pin(address, size)
            raise KeyboardInterrupt

    stream = Interrupted()
    loader = open_on_device(daemon, stream)
    iterator = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert len(stream.pinned) == 1
    assert [p for batch in iterator for p in positions(batch)] == ALL
    loader.close()
    gc.collect()
    assert stream.pinned == {}


def test_a_device_that_has_failed_keeps_nothing_open(daemon, open_on_device):
    def lost(*unused) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    stream, closed = FakeStream(), []
    loader = open_on_device(daemon, stream)
    loader._served = SimpleNamespace(close=lambda: closed.append("served"), check=bool)
    loader._daemon = SimpleNamespace(
        release=lambda: closed.append("daemon"), look_around=bool, ensure=bool
    )
    batch = next(iter(loader))
    (session,) = daemon.sessions.values()
    loader._feed._convert.close = lost
    with pytest.raises(RuntimeError, match="illegal memory access"):
        loader.close()
    assert closed == ["served", "daemon"]
    assert not loader.is_open
    assert session.ended.wait(10)
    loader.close()
    del batch


def test_a_daemon_that_comes_again_is_a_pause_with_another_pinned_arena(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    iterator = iter(loader)
    seen = positions(next(iterator))
    wait_for_a_batch(loader)
    seen += positions(next(iterator))
    (session,) = daemon.sessions.values()
    session.close()
    assert session.ended.wait(10)
    for batch in iterator:
        check(batch, 0)
        seen += positions(batch)
    assert seen == ALL
    assert loader.stats()["reconnects"] == 1
    assert stream.pins == 2
    gc.collect()
    assert len(stream.pinned) == 1  # the old arena was unmapped, and unpinned before that


def test_an_arena_is_pinned_once_and_as_a_whole(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    for _ in range(2):
        epoch_positions(loader)
    arena = loader._feed.stream._session.arena
    assert stream.pinned == {arena.address: arena.slots * arena.slot_bytes}
    assert stream.pins == 1
    del arena
    loader.close()
    gc.collect()
    assert stream.pinned == {}


def test_an_arena_that_cannot_be_pinned_is_told_once_and_nothing_else_changes(
    daemon, open_on_device, caplog
):
    stream = FakeStream()
    stream.cannot_pin = "cudaHostRegister: operation not supported"
    loader = open_on_device(daemon, stream)
    assert epoch_positions(loader) == ALL
    (session,) = daemon.sessions.values()
    session.close()
    assert epoch_positions(loader) == ALL
    assert loader.stats()["reconnects"] == 1
    warnings = [r.getMessage() for r in caplog.records if "pinned" in r.getMessage()]
    assert len(warnings) == 1 and stream.cannot_pin in warnings[0]
    assert stream.pins == 1


def test_others_may_copy_while_a_copy_is_waited_for():
    stream = FakeStream()
    copies = DeviceCopies(stream)
    array = np.arange(4)
    first = copies.copy([array], None)
    synchronize = first.event.synchronize

    def copy_meanwhile() -> None:
        thread = threading.Thread(target=copies.copy, args=([array], None))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        synchronize()

    first.event.synchronize = copy_meanwhile
    copies.let_go(wait=True)
    assert first.sources is None and stream.issued == 2
    copies.close()


def test_closing_waits_for_the_copies_that_run(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    batch = next(iter(loader))
    wait_for_a_batch(loader)
    loader.replay(3)
    next(iter(loader))
    copied = stream.issued
    loader.close()
    assert stream.done == copied
    assert loader.stats()["held"] == 0
    check(batch, 0)


def test_a_loader_that_is_dropped_waits_for_the_copies_that_run(daemon):
    stream = FakeStream()
    loader = feedwater.Loader(
        "numbers", address=str(daemon.directory), output="numpy", as_dict=True
    )
    loader._feed._convert._copies = DeviceCopies(stream)
    next(iter(loader))
    del loader
    gc.collect()
    assert stream.done == stream.issued > 0
    assert stream.pinned == {}


def test_a_forked_child_leaves_the_device_alone(daemon, open_on_device):
    stream = FakeStream()
    loader = open_on_device(daemon, stream)
    next(iter(loader))
    copies = loader._feed._convert._copies
    before = list(stream.log)
    child = os.fork()
    if child == 0:
        copies.close()
        os._exit(stream.log != before)
    assert os.waitpid(child, 0)[1] == 0


def test_both_parts_of_a_ragged_output_are_copied_and_told():
    place = Place("boxes", Field("float32", (None, 2), max_rows=9), 0, 64)
    memory = CopiedBatch(
        {
            "boxes": np.arange(6, dtype=np.float32).reshape(3, 2),
            place.offsets.name: np.array([0, 1, 1, 3], dtype=np.int64),
        }
    )
    stream = FakeStream()
    convert = Converter("numpy", [place], as_dict=False, device=None)
    convert._copies = DeviceCopies(stream)
    begun = convert.begin(memory, 3)
    del memory
    assert len(stream.sources) == 2
    assert all(source() is not None for source in stream.sources), "kept until they are copied"
    (boxes,) = convert.finish(begun)
    convert.let_go()
    assert all(source() is None for source in stream.sources)
    assert boxes.to_list() == [[[0, 1]], [], [[2, 3], [4, 5]]]
    assert boxes.offsets.tolist() == [0, 1, 1, 3]
    assert [id(tensor) for tensor in stream.used] == [id(boxes.values), id(boxes.offsets)]
    assert stream.pins == 0  # no arena


# --- with torch -----------------------------------------------------------------------------------


def test_torch_copies_from_memory_that_is_mapped_read_only(daemon, open_loader, monkeypatch):
    """The whole way of ``Loader(device="cuda")``, but for the device."""
    torch = pytest.importorskip("torch")

    class TorchStream(FakeStream):
        def copy(self, tensor):
            moved = torch.zeros_like(tensor)
            self._waiting.append(lambda: moved.copy_(tensor))
            self.issued += 1
            return moved

    stream = TorchStream()
    monkeypatch.setattr(outputs, "CudaStream", lambda device: stream)
    monkeypatch.setattr(outputs, "_torch_device", torch.device)
    monkeypatch.setattr(outputs, "SMALL_BYTES", 16 << 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch has no read-only tensors, and would say so
        loader = open_loader(daemon, output="torch", device="cuda:1")
        assert not loader._feed.stream._session.arena.writable
        for epoch in range(2):
            for batch in loader:
                half = batch.pop("half").view(torch.int16).numpy()
                check({**{n: x.numpy() for n, x in batch.items()}, "half": half}, epoch)
                batch["image"].mul_(0)  # a copy: it is the program's own
    assert stream.pins == 1
