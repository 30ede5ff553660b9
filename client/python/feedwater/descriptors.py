"""Descriptors that are this process's alone: no child gets one, neither a program that is started
nor a forked process, where it would keep alive what ends with this process.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Protocol, TypeVar

# Held while one is made, and while it is handed on and closed: no fork in between.
no_fork = threading.RLock()

_kept: set[int] = set()


class _Open(Protocol):
    def fileno(self) -> int: ...

    def close(self) -> None: ...


_OpenT = TypeVar("_OpenT", bound=_Open)


def open_kept(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file that no child gets. `close` it."""
    with no_fork:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        _kept.add(fd)
        return fd


def memory_kept(name: str) -> int:
    """Make a file in memory that no child gets. `close` it."""
    with no_fork:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        _kept.add(fd)
        return fd


def kept(fd: int) -> int:
    """Let no child have a descriptor, which came under `no_fork`. `close` it."""
    _kept.add(fd)
    return fd


def close(fd: int) -> None:
    """Close what `open_kept` or `memory_kept` made, or `kept` took. May be called again."""
    with no_fork:
        if fd in _kept:
            _kept.discard(fd)
            os.close(fd)


def keep(one: _OpenT) -> _OpenT:
    """Let no child have a connection or a socket, which was made under `no_fork`. `forget` it."""
    _kept.add(one.fileno())
    return one


def forget(one: _Open) -> None:
    """Close a connection or a socket. May be called again."""
    with no_fork:
        with contextlib.suppress(OSError):  # it is closed
            _kept.discard(one.fileno())
        one.close()


def _after_fork_in_child() -> None:
    for fd in _kept:
        with contextlib.suppress(OSError):
            os.close(fd)
    _kept.clear()
    no_fork.release()


os.register_at_fork(
    before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_after_fork_in_child
)
