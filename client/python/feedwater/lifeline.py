"""`Lifeline`: how this process holds on to a private daemon, which ends with its last client.

A private daemon has a FIFO of which it holds the end for reading (server/lifeline.h). Each process
that uses it holds the end for writing, once, while a loader of it is open and for `GRACE_S` longer:
loaders that follow one another (training, validation) find the same daemon. However the process
ends, the kernel closes its end. Programs that it starts do not get the descriptor, and a forked
child closes it at once.

Who holds it also renews the times of the daemon's files, so that no cleaner of ``/tmp`` takes them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import threading
import time
from typing import Optional

from .descriptors import close, no_fork, open_kept

FIFO = "lifeline"
GRACE_S = 1.0  # that a daemon outlives the last loader of a process that goes on
_RENEW_S = 900.0

_lifelines: dict[str, Lifeline] = {}
# Of users that are gone: a finalizer may run at any time, in any thread and below any lock, so it
# does nothing but this.
_releases: queue.SimpleQueue[tuple[Lifeline, int]] = queue.SimpleQueue()
_numbers = itertools.count()
_thread: Optional[threading.Thread] = None  # that lets go of daemons, once there is one


def _after_fork_in_child() -> None:
    global _releases, _thread
    _releases, _thread = queue.SimpleQueue(), None
    for lifeline in _lifelines.values():
        lifeline.forget()
    _lifelines.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def lifeline_of(folder: str) -> Lifeline:
    """Return this process's lifeline to the daemon in a folder."""
    with no_fork:
        return _lifelines.setdefault(folder, Lifeline(folder))


def own_lifeline() -> Optional[Lifeline]:
    """Return the lifeline to a daemon of this process's job, if it holds one."""
    with no_fork:
        return next(
            (line for line in _lifelines.values() if line.is_own and line.is_joined()), None
        )


class Lifeline:
    """See the module. `lifeline_of` makes one.

    Attributes
    ----------
    folder : str
        The daemon's runtime directory.
    is_own : bool
        The daemon was started for this process's job; else the program named it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.is_own = False
        self._fd: Optional[int] = None
        self._users: set[int] = set()
        self._unused_since: Optional[float] = None

    def is_joined(self) -> bool:
        """Tell whether this process holds on to a daemon that is there."""
        with no_fork:
            return self._fd is not None and self._is_there(self._fd)

    def is_lost(self) -> bool:
        """Tell whether this process held on to a daemon that is gone."""
        with no_fork:
            return self._fd is not None and not self._is_there(self._fd)

    def _is_there(self, fd: int) -> bool:
        # A daemon whose folder was removed, or has another one's files, cannot be connected to.
        return not _has_no_reader(fd) and _is_at(fd, os.path.join(self.folder, FIFO))

    def take(self, fd: int) -> None:
        """Hold what `open_end` opened from now on, instead of the one before it."""
        global _thread
        with no_fork:
            old, self._fd = self._fd, fd
            if old is not None:
                close(old)
            if _thread is None:
                _thread = threading.Thread(target=_let_go_in_time, name="feedwater-lifeline")
                _thread.daemon = True
                try:
                    _thread.start()
                except RuntimeError:  # no thread to be had: the daemon stays as long as the process
                    _thread = None

    def hold(self) -> Hold:
        """Return what stands for a user."""
        with no_fork:
            number = next(_numbers)
            self._users.add(number)
            self._unused_since = None
            return Hold(self, number)

    def drop(self) -> None:
        """Let go of the daemon at once."""
        with no_fork:
            fd, self._fd = self._fd, None
            if fd is not None:
                close(fd)

    def renew(self) -> None:
        """Renew the times of the daemon's files."""
        if self.is_joined():
            with contextlib.suppress(OSError):
                for name in (".", *os.listdir(self.folder)):
                    os.utime(os.path.join(self.folder, name), follow_symlinks=False)

    def forget(self) -> None:
        """Forget all of it: in a forked child, whose parent it belongs to."""
        self._fd = None
        self._users.clear()

    def remove(self, user: int) -> None:
        """Forget a user. The thread's."""
        self._users.discard(user)
        if not self._users and self._unused_since is None:
            self._unused_since = time.monotonic()

    def seconds_left(self) -> Optional[float]:
        """Return when to let go of the daemon, from now on; None: not yet known. The thread's."""
        if self._users or self._fd is None or self._unused_since is None:
            return None
        return self._unused_since + GRACE_S - time.monotonic()


def _let_go_in_time() -> None:
    """Let go of daemons that nothing in this process has used for `GRACE_S`."""
    wait = _RENEW_S
    renewed = time.monotonic()
    while True:
        with contextlib.suppress(queue.Empty):
            lifeline, user = _releases.get(timeout=wait)
            with no_fork:
                lifeline.remove(user)
        with no_fork:
            left = {line: line.seconds_left() for line in _lifelines.values()}
            for line, seconds in left.items():
                if seconds is not None and seconds <= 0:
                    line.drop()
            lines = list(left)
            wait = min([_RENEW_S, *(s for s in left.values() if s is not None and s > 0)])
        if time.monotonic() - renewed >= _RENEW_S:
            renewed = time.monotonic()
            for line in lines:
                line.renew()


class Hold:
    """A user of a daemon: a loader. Whoever forgets to `release` it does so by dropping it."""

    def __init__(self, lifeline: Lifeline, number: int) -> None:
        self._lifeline, self._number = lifeline, number
        self._releases = _releases  # those of this process

    def release(self) -> None:
        """Count the user no longer. May be called again."""
        self._releases.put((self._lifeline, self._number))

    __del__ = release


def open_end(folder: str) -> Optional[int]:
    """Open the end that clients hold; None where nobody holds the other one."""
    try:
        return open_kept(os.path.join(folder, FIFO), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def _has_no_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))
