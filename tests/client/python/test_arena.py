"""The mapping of an arena: what is checked before it is read, and that a private mapping never
shows stale bytes.
"""

import ctypes
import fcntl
import gc
import mmap
import os
import sys

import numpy as np
import pytest

from feedwater import arena as module
from feedwater.arena import PAGE, Arena, PageMap, page_map
from feedwater.wire import ProtocolError

SLOTS, SLOT_BYTES = 3, 4 * PAGE
SEALS = 1 | 2 | 4 | 16


@pytest.fixture
def memory():
    """A sealed arena, and the daemon's writable view of it."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SLOTS * SLOT_BYTES)
    view = np.frombuffer(mmap.mmap(fd, SLOTS * SLOT_BYTES), dtype=np.uint8)
    fcntl.fcntl(fd, 1033, SEALS)
    yield fd, view
    os.close(fd)


def bytes_of(arena):
    interface = {
        "version": 3,
        "shape": (SLOTS * SLOT_BYTES,),
        "typestr": "|u1",
        "data": (arena.address, not arena.writable),
    }
    holder = type("Holder", (), {"__array_interface__": interface, "arena": arena})()
    return np.asarray(holder)


def test_the_daemons_writes_are_seen_and_the_program_cannot_write(memory):
    fd, daemon = memory
    arena = Arena(fd, SLOTS * SLOT_BYTES, SLOT_BYTES, SLOTS, writable=False)
    ours = bytes_of(arena)
    daemon[5] = 7
    assert ours[5] == 7
    with pytest.raises(ValueError, match="read-only"):
        ours[5] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        ours.flags.writeable = True


@pytest.mark.parametrize("readable_page_map", [True, False])
def test_a_write_stays_private_and_is_dropped_with_its_slot(memory, monkeypatch, readable_page_map):
    if not readable_page_map:
        monkeypatch.setattr(module, "page_map", lambda: None)
    fd, daemon = memory
    arena = Arena(fd, SLOTS * SLOT_BYTES, SLOT_BYTES, SLOTS, writable=True)
    ours = bytes_of(arena)
    daemon[:] = 1
    ours[SLOT_BYTES + PAGE] = 99
    ours[2 * SLOT_BYTES] = 98
    assert daemon[SLOT_BYTES + PAGE] == 1
    daemon[:] = 2
    assert ours[SLOT_BYTES + PAGE + 1] == 1, "the program's copy hides the new bytes"
    arena.drop_writes(1)
    assert (ours[SLOT_BYTES : 2 * SLOT_BYTES] == 2).all()
    assert ours[2 * SLOT_BYTES] == 98, "another slot keeps its writes"


@pytest.mark.skipif(page_map() is None, reason="/proc/self/pagemap cannot be read here")
def test_pages_are_dropped_only_when_they_were_written(memory):
    fd, daemon = memory
    arena = Arena(fd, SLOTS * SLOT_BYTES, SLOT_BYTES, SLOTS, writable=True)
    ours = bytes_of(arena)
    pages = PageMap()

    def written():
        return [pages.has_copies(arena.address + i * SLOT_BYTES, SLOT_BYTES) for i in range(SLOTS)]

    assert written() == [False] * 3
    assert ours.sum() == 0  # reading copies nothing
    daemon[:] = 3
    assert written() == [False] * 3
    ours[SLOT_BYTES + 3 * PAGE] = 1
    assert written() == [False, True, False]
    arena.drop_writes(1)
    assert written() == [False] * 3


def test_a_page_map_that_cannot_be_opened_is_none_and_says_nothing(monkeypatch):
    def refuse(*_):
        raise PermissionError("hidepid")

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with monkeypatch.context() as during:
        during.setattr(module.os, "open", refuse)
        assert page_map.__wrapped__() is None
    gc.collect()
    assert said == []


def test_writes_in_locked_memory_are_dropped_too(memory):
    fd, daemon = memory
    arena = Arena(fd, SLOTS * SLOT_BYTES, SLOT_BYTES, SLOTS, writable=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(arena.address), ctypes.c_size_t(SLOTS * SLOT_BYTES)) != 0:
        pytest.skip("this user may not lock memory")
    ours = bytes_of(arena)
    ours[SLOT_BYTES] = 9
    daemon[:] = 4
    try:
        arena.drop_writes(1)
    except OSError:
        pytest.skip("this kernel cannot drop locked pages")
    assert (ours[SLOT_BYTES : 2 * SLOT_BYTES] == 4).all()


def test_an_arena_that_could_shrink_or_change_is_refused():
    for missing in (2, 4, 16, 1):
        fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SLOT_BYTES)
        for seal in (2, 4, 16, 1):  # SEAL last: it forbids the others
            if seal != missing:
                fcntl.fcntl(fd, 1033, seal)
        with pytest.raises(ProtocolError, match="not sealed"):
            Arena(fd, SLOT_BYTES, SLOT_BYTES, 1, writable=False)
        os.close(fd)


@pytest.mark.parametrize(
    ("size", "slot_bytes", "slots"),
    [
        (SLOTS * SLOT_BYTES + PAGE, SLOT_BYTES, SLOTS),
        (4 * SLOT_BYTES, SLOT_BYTES, 4),
        (2 * SLOT_BYTES, SLOT_BYTES, 2),
        (SLOTS * SLOT_BYTES, SLOT_BYTES // 8, 8 * SLOTS),
        (SLOTS * SLOT_BYTES, SLOTS * SLOT_BYTES, 0),
        (0, 0, 0),
    ],
)
def test_an_arena_whose_sizes_do_not_fit_together_is_refused(memory, size, slot_bytes, slots):
    with pytest.raises(ProtocolError):
        Arena(memory[0], size, slot_bytes, slots, writable=False)
