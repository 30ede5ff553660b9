"""Descriptors that are this process's alone: no child gets one, neither a program that is started
nor a forked process, where it would keep alive what ends with this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from typing import NamedTuple, Protocol, TypeVar

# Held while one is made, and while it is handed on and closed: no fork in between.
no_fork = threading.RLock()


class _Kept(NamedTuple):
    """What a number was kept for. Where somebody else has closed it, it is another file's now."""

    device: int
    inode: int
    has_owner: bool  # an object, whose copy in a forked child closes the number there, too


_kept: dict[int, _Kept] = {}


def _remember(fd: int, has_owner: bool) -> None:
    try:
        info = os.fstat(fd)
    except BaseException:
        if not has_owner:
            os.close(fd)
        raise
    _kept[fd] = _Kept(info.st_dev, info.st_ino, has_owner)


def _is_still(fd: int, what: _Kept) -> bool:
    try:
        info = os.fstat(fd)
    except OSError as error:
        return error.errno != errno.EBADF  # storage that does not say: nothing else is known
    return (info.st_dev, info.st_ino) == (what.device, what.inode)


class _Open(Protocol):
    def fileno(self) -> int: ...

    def close(self) -> None: ...


_OpenT = TypeVar("_OpenT", bound=_Open)


def open_kept(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file that no child gets. `close` it."""
    with no_fork:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        _remember(fd, has_owner=False)
        return fd


def memory_kept(name: str) -> int:
    """Make a file in memory that no child gets. `close` it."""
    with no_fork:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        _remember(fd, has_owner=False)
        return fd


def kept(fd: int) -> int:
    """Let no child have a descriptor, which came under `no_fork`. `close` it."""
    _remember(fd, has_owner=False)
    return fd


def close(fd: int) -> None:
    """Close what `open_kept` or `memory_kept` made, or `kept` took. May be called again."""
    with no_fork:
        what = _kept.pop(fd, None)
        if what is not None and _is_still(fd, what):
            os.close(fd)


def keep(one: _OpenT) -> _OpenT:
    """Let no child have a connection or a socket, which was made under `no_fork`. `forget` it."""
    _remember(one.fileno(), has_owner=True)
    return one


def forget(one: _Open) -> None:
    """Close a connection or a socket. May be called again."""
    with no_fork:
        with contextlib.suppress(OSError):  # it is closed
            _kept.pop(one.fileno(), None)
        one.close()


def _after_fork_in_child() -> None:
    """Close what is kept. An interrupt comes behind it: what was left would live on here."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        still = {fd: what for fd, what in _kept.items() if _is_still(fd, what)}
        owned = [fd for fd, what in still.items() if what.has_owner]
        for fd in still.keys() - owned:
            _close_in_child(fd)
        _occupy(owned)
    finally:
        _kept.clear()
        no_fork.release()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _close_in_child(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)


def _occupy(numbers: list[int]) -> None:
    """Close what objects own, whose copies close the numbers again: no other file may get them."""
    if not numbers:
        return
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # there is no room for one more: with the first closed there is
        _close_in_child(numbers[0])
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # there is no such file
            for fd in numbers[1:]:
                _close_in_child(fd)
            return
    for fd in numbers:
        with contextlib.suppress(OSError):
            os.dup2(null, fd, inheritable=False)
    if null not in numbers:
        os.close(null)


os.register_at_fork(
    before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_after_fork_in_child
)
