"""Descriptors that are this process's alone: no child gets one, neither a program that is started
nor a forked process, where it would keep alive what ends with this process.
"""

from __future__ import annotations

import contextlib
import os
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
    info = os.fstat(fd)
    _kept[fd] = _Kept(info.st_dev, info.st_ino, has_owner)


def _is_still(fd: int, what: _Kept) -> bool:
    try:
        info = os.fstat(fd)
    except OSError:
        return False
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
    null = -1
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd, what in _kept.items():
        if not _is_still(fd, what):
            continue
        with contextlib.suppress(OSError):
            if what.has_owner and null >= 0:
                os.dup2(null, fd, inheritable=False)  # no other file gets the number
            else:
                os.close(fd)
    if null >= 0:
        os.close(null)
    _kept.clear()
    no_fork.release()


os.register_at_fork(
    before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_after_fork_in_child
)
