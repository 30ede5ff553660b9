"""Batches on a real CUDA device: bytes, pinning, slots, streams. Skipped where there is none."""

from __future__ import annotations

import contextlib
import ctypes
import gc

import numpy as np
import pytest
from reading import check, positions

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

ALL = list(range(40))
LONG = 100_000_000  # cycles: about 50 ms of a kernel that does nothing


def on_host(batch) -> dict[str, np.ndarray]:
    """Return a batch of the device as `check` takes it."""
    raw = {n: x.view(torch.int16) if x.dtype is torch.bfloat16 else x for n, x in batch.items()}
    return {name: tensor.cpu().numpy() for name, tensor in raw.items()}


def pinned(arena) -> bool:
    """Return whether the driver knows an arena's memory."""
    page = (ctypes.c_uint8 * 4096).from_address(arena.address)
    return torch.frombuffer(page, dtype=torch.uint8).is_pinned()


@pytest.fixture
def loader_of(daemon, open_loader):
    """Open loaders on the device."""

    def open_one(**options):
        return open_loader(daemon, output="torch", device="cuda", **options)

    return open_one


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_every_byte_of_every_type_arrives(loader_of, slots):
    loader = loader_of(slots=slots)
    for epoch in range(3):
        seen = []
        for batch in loader:
            assert all(tensor.is_cuda for tensor in batch.values())
            check(on_host(batch), epoch)
            seen += positions(batch)
        assert seen == ALL


def test_the_arena_is_pinned_until_it_is_unmapped(loader_of, caplog):
    loader = loader_of()
    next(iter(loader))
    arena = loader._feed.stream._session.arena
    assert pinned(arena)
    assert not [r for r in caplog.records if "pinned" in r.getMessage()]
    address = arena.address
    del arena
    loader.close()
    gc.collect()
    assert int(torch.cuda.cudart().cudaHostUnregister(address)) != 0  # it was undone
    with contextlib.suppress(RuntimeError):  # takes the error that this has left
        torch.ones(1, device="cuda")


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_program_whose_kernels_are_late_reads_its_own_batch(loader_of, slots):
    """The daemon overwrites each slot that is given back: one that went back too early shows."""
    loader = loader_of(slots=slots)
    for epoch in range(3):
        kept = []
        for batch in loader:
            torch.cuda._sleep(LONG // 10)
            kept.append({name: tensor.clone() for name, tensor in batch.items()})
            del batch
        for batch in kept:
            check(on_host(batch), epoch)
        assert [p for batch in kept for p in positions(batch)] == ALL
    assert loader.stats()["spilled"] == 0


def test_copies_that_are_late_hold_their_slots(loader_of):
    loader = loader_of(slots=3)
    stream = loader._feed._convert._copies._backend._stream
    kept = []
    for batch in loader:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)  # ahead of the next copy
        kept.append(batch)
    for batch in kept:
        check(on_host(batch), 0)


def test_a_program_on_a_stream_of_its_own(loader_of):
    loader = loader_of(slots=3)
    mine, kept = torch.cuda.Stream(), []
    with torch.cuda.stream(mine):
        for epoch in range(3):
            for batch in loader:
                torch.cuda._sleep(LONG // 100)
                kept.append((epoch, {n: tensor.clone() for n, tensor in batch.items()}))
                del batch  # the allocator may use its memory again when `mine` is done with it
    torch.cuda.synchronize()
    for epoch, batch in kept:
        check(on_host(batch), epoch)


def test_closing_with_copies_in_flight(loader_of):
    loader = loader_of()
    stream = loader._feed._convert._copies._backend._stream
    iterator = iter(loader)
    first = next(iterator)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
    second = next(iterator)
    loader.close()
    check(on_host(first), 0)
    check(on_host(second), 0)


def test_a_daemon_that_comes_again_has_another_pinned_arena(daemon, loader_of):
    loader = loader_of()
    iterator = iter(loader)
    seen = positions(next(iterator))
    (session,) = daemon.sessions.values()
    session.close()
    assert session.ended.wait(10)
    for batch in iterator:
        check(on_host(batch), 0)
        seen += positions(batch)
    assert seen == ALL
    assert loader.stats()["reconnects"] == 1
    assert pinned(loader._feed.stream._session.arena)


def test_two_loaders_in_one_process(loader_of):
    loaders = [loader_of(job="one"), loader_of(job="two")]
    for batches in zip(*loaders):
        for batch in batches:
            check(on_host(batch), 0)
