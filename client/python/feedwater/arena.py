"""The shared memory of a session, as this process sees it, and the batches that are lent from it.

The daemon makes the memory (a sealed memfd without a name) and alone writes it. Here it is mapped

* shared and read-only: a write by the program is refused by NumPy, or
* privately, copy on write: the program may write; its changes are its own copies of pages. They are
  dropped before the slot goes back,
  because else the next batch in that slot would be hidden behind them.

A `Lease` is one lent slot. Every array over the slot refers to it (NumPy's ``base``), and so do
torch tensors and DLPack capsules made from these arrays; when the last of them dies, the lease dies
and the slot goes back. That may happen in any thread and in the midst of anything, so nothing here
waits for a lock.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import sys
import weakref
from functools import lru_cache, partial
from itertools import starmap
from operator import setitem
from typing import Any, Callable, Optional

import numpy as np

from .fields import Place
from .wire import ProtocolError

_F_GET_SEALS = 1034
_SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE, _SEAL_SEAL = 2, 4, 16, 1
_SEALS = _SEAL_SHRINK | _SEAL_GROW | _SEAL_FUTURE_WRITE | _SEAL_SEAL

PAGE = mmap.PAGESIZE
_MADV_DONTNEED_LOCKED = 24  # since Linux 5.18


class PageMap:
    """Says whether this process has its own copies of pages in a range: ``/proc/self/pagemap``.

    A page that is present or swapped, and is not a file's (bit 61), is a copy that a write made.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    # At the interpreter's end the names of modules may be gone.
    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            _close(self._fd)

    def has_copies(self, address: int, size: int) -> bool:
        """Tell whether a page in ``[address, address + size)`` was written. Both are multiples of
        the page size.
        """
        raw = os.pread(self._fd, size // PAGE * 8, address // PAGE * 8)
        if len(raw) != size // PAGE * 8:
            return True
        kinds = np.frombuffer(raw, dtype=np.uint64) >> np.uint64(61)  # present, swapped, file
        return bool(((kinds >= 2) & (kinds & np.uint64(1) == 0)).any())


@lru_cache(maxsize=1)
def page_map() -> Optional[PageMap]:
    """Return the process's page map, or None where it cannot be read or does not tell the truth."""
    try:
        pages = PageMap()
        file = os.memfd_create("feedwater-probe", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, PAGE)
            probe = mmap.mmap(file, PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(file)
        view = np.frombuffer(probe, dtype=np.uint8)
        address = view.ctypes.data
        seen = [view[0] == 0 and pages.has_copies(address, PAGE)]
        view[0] = 1
        seen.append(pages.has_copies(address, PAGE))
        return pages if seen == [False, True] else None
    except OSError:
        return None


def _forget_page_map() -> None:
    page_map.cache_clear()  # it is of the parent's memory


os.register_at_fork(after_in_child=_forget_page_map)


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


class Arena:
    """A mapping of a session's arena.

    Parameters
    ----------
    fd : int
        The memfd; it is not kept.
    size, slot_bytes, slots : int
        As the daemon announced them.
    writable : bool
        Map privately, copy on write, instead of shared and read-only.
    debug_protect : bool
        Let a slot be read only while it is lent: a pointer that is used for longer is a fault.

    Raises
    ------
    ProtocolError
        The file's size or seals are not those of an arena: reading it would not be safe.
    """

    def __init__(
        self,
        fd: int,
        size: int,
        slot_bytes: int,
        slots: int,
        writable: bool,
        debug_protect: bool = False,
    ) -> None:
        actual = os.fstat(fd).st_size
        if size <= 0 or slots <= 0 or slot_bytes <= 0 or size != slots * slot_bytes:
            raise ProtocolError(f"an arena of {size} bytes with {slots} slots of {slot_bytes}")
        if actual != size:
            raise ProtocolError(f"the arena has {actual} bytes, {size} were announced")
        if slot_bytes % PAGE:
            raise ProtocolError(f"slots of {slot_bytes} bytes, not a multiple of {PAGE}-byte pages")
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
        if seals & _SEALS != _SEALS:
            raise ProtocolError(f"the arena is not sealed (seals {seals:#x}, needed {_SEALS:#x})")
        if writable:
            self._map = mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        else:
            self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        self.address = np.frombuffer(self._map, dtype=np.uint8).ctypes.data
        self.size = size
        self.slot_bytes = slot_bytes
        self.slots = slots
        self.writable = writable
        self._access: Optional[int] = None
        if debug_protect:
            self._access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            for slot in range(slots):
                self.hide(slot)

    def show(self, slot: int) -> None:
        """Let a slot be read that was hidden. Nothing happens without `debug_protect`."""
        if self._access is not None:
            self._protect(slot, self._access)

    def hide(self, slot: int) -> None:
        """Let any access to the slot be a fault (SIGSEGV), with `debug_protect`."""
        if self._access is not None:
            self._protect(slot, 0)

    def _protect(self, slot: int, access: int) -> None:
        begin = self.address + slot * self.slot_bytes
        if _libc().mprotect(begin, self.slot_bytes, access) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"mprotect: {os.strerror(error)}")

    def drop_writes(self, slot: int) -> None:
        """Make the slot show the daemon's bytes again, if the program wrote into it."""
        if not self.writable:
            return
        begin = slot * self.slot_bytes
        pages = page_map()
        if pages is None or pages.has_copies(self.address + begin, self.slot_bytes):
            try:
                self._map.madvise(mmap.MADV_DONTNEED, begin, self.slot_bytes)
            except OSError:  # the program has locked its memory
                self._map.madvise(_MADV_DONTNEED_LOCKED, begin, self.slot_bytes)


class Returns:
    """The way back of the slots of a session, from any thread.

    A slot comes back in the midst of anything, even of `flush` itself, and an interrupt (Ctrl-C)
    may strike on the way, between any two steps of Python code. So what must not be lost is done in
    single steps that are no Python code: a weak reference notes that a lease has died, and whoever
    calls `flush` next sends what was noted.
    """

    def __init__(
        self, send: Callable[[int, int, dict[int, int]], bool], arena: Arena, pid: int
    ) -> None:
        self._dropped: dict[tuple[int, int], object] = {}  # (slot, generation), not yet sent
        self._flushing: dict[object, None] = {}  # calls of `flush`; the first one sends
        self._send = send
        self._arena = arena
        self._pid = pid
        self._finish: Optional[Callable[[], None]] = None
        self._sent: dict[int, int] = {}  # slot -> generation that went back last
        self.held: dict[int, object] = {}  # by slot: what tells that its lease has died

    def lend(self, lease: Lease, taken: Callable[[], object]) -> None:
        """Let the slot come back when `lease` dies, and call `taken`: both or neither."""
        dropped = partial(setitem, self._dropped, (lease.slot, lease.generation))
        watched = map(weakref.ref, (lease,), (dropped,))
        self.held.update(zip((lease.slot,), zip(watched, starmap(taken, ((),)))))

    def flush(self) -> None:
        """Send what waits. What the socket does not take now stays for the next call.

        Nobody waits here: of several calls at a time one sends, and looks again when it is done.
        """
        if os.getpid() != self._pid:
            return  # a forked child's copies of the leases: the parent still has its own
        if sys.is_finalizing():
            return  # the process's end gives everything back, and modules may be gone already
        while self._dropped or self._finish is not None:
            mine = object()
            try:
                self._flushing[mine] = None
                calls = list(self._flushing)
                if calls[0] is not mine or not self._send_all():
                    return
            finally:
                self._flushing.pop(mine, None)

    def _send_all(self) -> bool:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
            self._send = _went_with_the_session
        for slot, generation in list(self._dropped):
            if self._sent.get(slot) != generation:
                self._arena.drop_writes(slot)
                self._arena.hide(slot)
                held = self.held.pop(slot, None)  # once sent, it may be lent again at once
                if not self._send(slot, generation, self._sent):
                    self.held[slot] = held
                    return False
            self._dropped.pop((slot, generation), None)
        return True

    def finish(self, close: Callable[[], None]) -> None:
        """Call `close` when nobody is sending. Then nothing is sent any more, and the session is
        let go of: its memory is unmapped with the last lease, without waiting for the collector.
        """
        if os.getpid() != self._pid:  # a forked child's copy, over which nobody sends
            close()
            self._send = _went_with_the_session
            return
        self._finish = close
        self.flush()

    @property
    def waiting(self) -> bool:
        """Something is still to be sent."""
        return bool(self._dropped)


def _went_with_the_session(slot: int, generation: int, sent: dict[int, int]) -> bool:
    return True


class Lease:
    """A lent slot. It goes back when this object dies."""

    __slots__ = ("__weakref__", "_flush", "arena", "generation", "slot")

    def __init__(
        self,
        arena: Arena,
        returns: Returns,
        slot: int,
        generation: int,
        taken: Callable[[], object] = int,
    ) -> None:
        arena.show(slot)
        self.arena = arena
        self.slot = slot
        self.generation = generation
        self._flush = _Flush(returns)
        returns.lend(self, taken)

    def array(self, place: Place, samples: int) -> np.ndarray:
        """Return an output of the batch, shape ``(samples, *place.shape)``, over the slot; of a
        ragged one, whose samples are rows, or its offsets.
        """
        return np.asarray(_Memory(self, place, samples))


class _Flush:
    """Sends what waits when it dies: as a part of a lease, just after that has died."""

    __slots__ = ("_returns",)

    def __init__(self, returns: Returns) -> None:
        self._returns = returns

    def __del__(self) -> None:
        returns = getattr(self, "_returns", None)  # absent: interrupted while it was made
        if returns is not None:
            returns.flush()


class _Memory:
    """Lends a part of a slot to NumPy, which keeps this object, and so the lease, as the array's
    base.
    """

    __slots__ = ("__array_interface__", "_lease")

    def __init__(self, lease: Lease, place: Place, samples: int) -> None:
        arena = lease.arena
        self._lease = lease
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (samples, *place.shape),
            "typestr": place.storage.str,
            "data": (
                arena.address + lease.slot * arena.slot_bytes + place.offset,
                not arena.writable,
            ),
        }
