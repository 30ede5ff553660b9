"""Where private daemons of this user live: a folder for each, below one that only the user may
enter.

``$XDG_RUNTIME_DIR/feedwater/private/NAME``, or ``/tmp/feedwater-UID/private/NAME``, is the runtime
directory of a private daemon: its sockets, its configuration and its lifeline. It goes with the
daemon; what a killed one left is removed by whoever starts the next one. Who starts, joins or
removes one has the lock of the folder above (`StartLock`), so that there is one daemon a job.

State (caches, saved indexes, the log) stays: ``~/.local/state/feedwater/private/HOST/N``, of which
each daemon holds the first one that is free. The host is part of it, since hosts may share a home
and not know of each other's locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import stat
import time
from typing import Any, Optional

from . import errors
from .address import CONTROL_SOCKET, DATA_SOCKET, is_locked
from .descriptors import close, open_kept
from .lifeline import FIFO, open_end

_log = logging.getLogger("feedwater")

CONFIG = "feedwater.yaml"
LOG = "feedwaterd.log"
_LOCK = "feedwaterd.lock"  # the daemon's own
_FILES = (DATA_SOCKET, CONTROL_SOCKET, CONFIG, FIFO, _LOCK)  # this one last
_SLOT_LOCK = "in-use.lock"
_SLOTS = 1024
_LONGEST_PATH = 107  # of a Unix socket
_LOCK_S = 120.0
_LOOK_S = 0.02
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)  # of a file system


def explain(error: OSError, folder: str) -> errors.Error:
    """Return the error of a folder that a private daemon needs, with the cure."""
    where = error.filename or folder
    if error.errno in _FULL:
        return errors.ResourceExhausted(
            f"a private daemon could not be started: {where}: {error.strerror}. Cure: make room "
            "there, or set XDG_RUNTIME_DIR (sockets) or XDG_STATE_HOME (caches) to a folder with "
            'room, or use a shared daemon (daemon="shared")'
        )
    if error.errno in _CLOSED:
        return errors.PermissionDenied(
            f"a private daemon could not be started: {where}: {error.strerror}. Cure: set "
            "XDG_RUNTIME_DIR to a folder of this user's that may be written, or use a shared "
            'daemon (daemon="shared")'
        )
    return errors.Error(f"a private daemon could not be started: {where}: {error.strerror}")


def _own_folder(path: str) -> None:
    """Make a folder that is this user's alone, or check that it is."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise errors.PermissionDenied(
            f"{path} is not a folder of user {os.geteuid()}: a private daemon could not be "
            "started there. Cure: have it removed, or set XDG_RUNTIME_DIR to a folder of this user"
        )
    if found.st_mode & 0o022:
        raise errors.PermissionDenied(
            f"{path} may be changed by other users. Cure: chmod 700 {path}"
        )


def _own_path(base: str, *names: str) -> str:
    """Make folders below `base`, which is there or is made."""
    path = base
    for name in names:
        _own_folder(path)
        path = os.path.join(path, name)
    _own_folder(path)
    return path


def _tmp() -> str:
    return f"/tmp/feedwater-{os.geteuid()}"


def _runtime_bases() -> list[str]:
    """Return the folders that may hold ``private``, best first."""
    bases = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and len(runtime) < _LONGEST_PATH - 64:
        with contextlib.suppress(OSError):
            if os.stat(runtime).st_uid == os.geteuid() and os.access(runtime, os.W_OK | os.X_OK):
                bases.append(os.path.join(runtime, "feedwater"))
    return [*bases, _tmp()]


def _searched_bases() -> list[str]:
    """Return the folders in which another process may have put ``private``: of the ranks of one job
    some may have been started without XDG_RUNTIME_DIR.
    """
    login = f"/run/user/{os.geteuid()}/feedwater"
    return list(dict.fromkeys([*_runtime_bases(), login]))


def all_private() -> list[str]:
    """Return the folders of private daemons of this user, whether they run or not."""
    found = []
    for base in _searched_bases():
        private = os.path.join(base, "private")
        with contextlib.suppress(OSError):
            if os.lstat(private).st_uid == os.geteuid():
                found += [os.path.join(private, name) for name in sorted(os.listdir(private))]
    return found


def name_of(key: str) -> str:
    """Return the name of a job's folder: short, whatever the job is called."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", key).strip("-.")[:24]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def listens(folder: str) -> bool:
    """Tell whether a daemon listens in the folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            sock.connect(os.path.join(folder, DATA_SOCKET))
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
    return True


def _has_locks(folder: str) -> bool:
    return any(is_locked(os.path.join(folder, name)) for name in (CONFIG, _LOCK))


def has_daemon(folder: str) -> bool:
    """Tell whether a daemon has the folder, also one that starts or ends at this moment, or one of
    whose files only the sockets are left, as a cleaner of ``/tmp`` leaves them.
    """
    return _has_locks(folder) or listens(folder)


def put_aside(folder: str) -> bool:
    """Move a folder away whose daemon serves, but has lost its lifeline and locks: nobody can join
    it, and its clients go on. False: it is another daemon's. For who has the `StartLock`.
    """
    if _has_locks(folder) or not listens(folder):
        return False
    for number in range(1024):
        aside = f"{folder}.{number}"
        if not os.path.lexists(aside):
            os.rename(folder, aside)
            return True
    return False


def is_private(folder: str) -> bool:
    """Tell whether the folder is that of a private daemon."""
    try:
        found = os.lstat(os.path.join(folder, FIFO))
    except OSError:
        return False
    return stat.S_ISFIFO(found.st_mode)


def remove(folder: str) -> None:
    """Remove the folder of a daemon that is gone."""
    for name in _FILES:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def write_config(folder: str, about: dict[str, Any], config: dict[str, Any]) -> tuple[str, int]:
    """Write the configuration, with what others are told of this daemon in its first line.

    Returns
    -------
    tuple
        Its path, and a descriptor with its lock. The daemon inherits that, so that it is known to
        be there from its first moment on, also when whoever started it is not any more.
    """
    path = os.path.join(folder, CONFIG)
    text = f"# {json.dumps(about)}\n{json.dumps(config, indent=1)}\n".encode()
    fd = open_kept(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    except BaseException:
        close(fd)
        raise
    return path, fd


def read_config(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `write_config` wrote; empty where it cannot be read."""
    try:
        with open(os.path.join(folder, CONFIG)) as file:
            first, rest = file.readline(), file.read()
        return json.loads(first[1:]), json.loads(rest)
    except (OSError, ValueError):
        return {}, {}


def pid_of(folder: str) -> Optional[int]:
    """Return the process of the daemon that has the folder."""
    try:
        with open(os.path.join(folder, _LOCK)) as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


class StartLock:
    """The right to start, join and remove private daemons; use it as a context manager.

    It is a lock of the folder ``private`` itself, so nothing is left of it.

    Attributes
    ----------
    private : str
        That folder.
    """

    def __init__(self, private: Optional[str] = None) -> None:
        self.private = ""
        self._given = private  # None: the best one
        self._fd = -1

    def __enter__(self) -> StartLock:
        deadline = time.monotonic() + _LOCK_S
        while not self._try():
            if time.monotonic() > deadline:
                raise errors.DaemonLost(
                    f"another process has been starting a private daemon in {self.private} for "
                    f"{_LOCK_S:g} s"
                )
            time.sleep(_LOOK_S)
        return self

    def _try(self) -> bool:
        try:
            self.private = _make_private() if self._given is None else _remake(self._given)
            fd = open_kept(self.private, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # removed by a daemon that has just ended
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_of(fd):
                self._fd, fd = fd, -1
                return True
        except BlockingIOError:
            pass
        finally:
            if fd >= 0:
                close(fd)
        return False

    def _is_of(self, fd: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), os.stat(self.private))
        return False

    def make(self, folder: str) -> bool:
        """Make a daemon's folder, with its lifeline. False: a daemon that ended has removed the
        folder, or the one above and with it this lock; take another one.
        """
        fifo = os.path.join(folder, FIFO)
        try:
            os.mkdir(folder, 0o700)
            os.mkfifo(fifo, 0o600)
        except FileNotFoundError:
            return False
        if self._is_of(self._fd):  # and stays, as neither is empty any more
            return True
        with contextlib.suppress(OSError):
            os.unlink(fifo)
            os.rmdir(folder)
        return False

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.private)  # where nothing came of it
        self._unlock()

    def _unlock(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # also where a child has it
            close(fd)

    __del__ = _unlock  # of one that was interrupted

    def others(self, folder: str) -> list[str]:
        """Return the folders of this user's other private daemons that run, and remove those of
        daemons that are gone.
        """
        alive = []
        for other in all_private():
            if other == folder:
                continue
            if not has_daemon(other):
                if os.path.dirname(other) == self.private:  # that another lock guards another one
                    remove(other)
                continue
            end = open_end(other)
            if end is not None:
                close(end)
                alive.append(other)
        return alive


def _make_private() -> str:
    """Return the folder for private daemons; it is made where it is not there."""
    # The kind and the text: an error kept here would keep this frame, and those of the callers.
    closed: Optional[tuple[type[errors.Error], str]] = None
    for base in _runtime_bases():
        try:
            return _own_path(base, "private")
        except FileNotFoundError:
            time.sleep(0)  # made and removed at the same time
            with contextlib.suppress(FileNotFoundError):
                return _own_path(base, "private")
        except OSError as error:
            closed = closed or _said(explain(error, base))
        except errors.Error as error:
            closed = closed or _said(error)
    if closed is None:
        raise errors.Error("a private daemon could not be started: its folder goes away")
    kind, text = closed
    raise kind(text)


def _said(error: errors.Error) -> tuple[type[errors.Error], str]:
    return type(error), str(error)


def _remake(private: str) -> str:
    """Make this folder for private daemons where it is not there."""
    base = os.path.dirname(private)
    if not os.path.isdir(os.path.dirname(base)):
        raise errors.DaemonLost(
            f"the folder of this job's private daemon is gone: there is no {os.path.dirname(base)} "
            "any more (of a user who has logged out?). A loader that is opened now has a daemon in "
            "another one. Cure: loginctl enable-linger, or set XDG_RUNTIME_DIR to a folder that "
            "stays"
        )
    return _own_path(base, os.path.basename(private))


class StateSlot:
    """A state folder that is this daemon's alone while it runs.

    The lock is the kernel's and goes with the descriptor, which the daemon inherits.

    Attributes
    ----------
    path : str
    fd : int
        To be passed to the daemon, and closed here then.
    """

    def __init__(self, preferred: Optional[str] = None) -> None:
        self.fd = -1
        state = _state_folder()
        try:
            taken = self._take(state, preferred)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            elsewhere = _own_path(_tmp(), "state", "private", _host())
            _log.warning(
                "the file system of %s has no locks (%s): a private daemon keeps its caches and "
                "its log in %s. To choose: XDG_STATE_HOME",
                state,
                error.strerror,
                elsewhere,
            )
            state = elsewhere
            taken = self._take(state, None)
        if not taken:
            raise errors.ResourceExhausted(f"all of {_SLOTS} folders in {state} are in use")

    def _take(self, state: str, preferred: Optional[str]) -> bool:
        numbers = [os.path.join(state, str(n)) for n in range(_SLOTS)]
        for self.path in [preferred, *numbers] if preferred else numbers:
            _own_folder(self.path)
            self.fd = open_kept(os.path.join(self.path, _SLOT_LOCK), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                self.close()
            except OSError:
                self.close()
                raise
        return False

    @property
    def log(self) -> str:
        """The daemon's log."""
        return os.path.join(self.path, LOG)

    def close(self) -> None:
        """Leave it to the daemon, if that has it. May be called again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    __del__ = close


def _state_folder() -> str:
    """Return the folder for the state of private daemons; it is made where it is not there."""
    given = os.environ.get("XDG_STATE_HOME", "")
    home = given if os.path.isabs(given) else os.path.expanduser("~/.local/state")
    if os.path.isabs(home):
        base = os.path.join(home, "feedwater")
        with contextlib.suppress(OSError, errors.PermissionDenied):
            os.makedirs(base, 0o700, exist_ok=True)
            private = os.path.join(base, "private")
            _own_folder(private)
            path = os.path.join(private, _host())
            _own_folder(path)
            if os.access(path, os.W_OK | os.X_OK):
                return path
    return _own_path(_tmp(), "state", "private", _host())


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname()).strip("-.")[:64] or "host"
