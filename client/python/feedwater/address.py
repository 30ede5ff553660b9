"""Where the daemon is: the runtime directory that holds ``control.sock`` and ``data.sock``."""

from __future__ import annotations

import ctypes
import fcntl
import grp
import os
import socket
import time
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Optional

from .errors import DaemonLost, InvalidArgument, PermissionDenied
from .machine import cpu_list

DATA_SOCKET = "data.sock"
CONTROL_SOCKET = "control.sock"
APPEARS_S = 3.0  # how long a daemon that is being started may take to listen
_LOOK_S = 0.05

_nodes: dict[tuple[int, str], int] = {}  # by process


def numa_node(sysfs: str = "/sys/devices/system/node") -> int:
    """Return the NUMA node of this process: where it may run, or if that is several, where it ran
    when this was asked first. Asked anew, it might serve at one daemon and load at another.
    """
    asked = os.getpid(), sysfs  # a forked child may be bound to another one
    if asked not in _nodes:
        _nodes[asked] = _node_now(sysfs)
    return _nodes[asked]


def _node_now(sysfs: str) -> int:
    try:
        nodes = {}
        for name in os.listdir(sysfs):
            if name.startswith("node") and name[4:].isdigit():
                with open(os.path.join(sysfs, name, "cpulist")) as file:
                    nodes[int(name[4:])] = cpu_list(file.read())
        allowed = os.sched_getaffinity(0)
        mine = [node for node, cpus in nodes.items() if cpus & allowed]
        if len(mine) == 1:
            return mine[0]
        cpu = _cpu_now()
        return next((node for node in mine if cpu in nodes[node]), 0)
    except (OSError, ValueError, AttributeError):
        return 0


def _cpu_now() -> int:
    return int(ctypes.CDLL(None).sched_getcpu())


def candidates(node: int) -> list[str]:
    """Return the directories where a daemon may be found without being told, best first."""
    bases = []
    if os.environ.get("XDG_RUNTIME_DIR"):
        bases.append(os.path.join(os.environ["XDG_RUNTIME_DIR"], "feedwater"))
    bases += ["/run/feedwater", f"/tmp/feedwater-{os.getuid()}"]
    nodes = [node] if node == 0 else [node, 0]
    return [os.path.join(base, str(n)) for n in nodes for base in bases]


def _is_trusted(directory: str) -> bool:
    """Tell whether only this user or root can have put a daemon there: all may write to /tmp."""
    if not directory.startswith("/tmp/"):
        return True
    try:
        owners = {os.lstat(path).st_uid for path in (os.path.dirname(directory), directory)}
    except OSError:
        return False
    return owners <= {0, os.getuid()}


def no_permission(path: str) -> PermissionDenied:
    """Return the error of a process that may not reach a daemon's socket, with the cure."""
    for folder in (os.path.dirname(path), path):
        try:
            group = grp.getgrgid(os.stat(folder).st_gid).gr_name
            break
        except (OSError, KeyError):
            continue
    else:
        group = ""
    join = f"this user joins group '{group}'" if group else "this user joins a group that may"
    error = PermissionDenied(
        f"permission denied: user {os.getuid()} may not connect to {path}. Cure: the daemon's "
        f"configuration lets this user in (access: {{users: [...], groups: [...]}}), or {join} "
        "and logs in anew. A daemon that is starting lets others in only when it serves"
    )
    error.may_pass = True
    return error


def _listens(directory: str) -> bool:
    """Tell whether a daemon listens there, also one that does not let this user in."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            sock.connect(os.path.join(directory, DATA_SOCKET))
        except (BlockingIOError, PermissionError):  # the former: its queue is full
            return True
        except OSError:
            return False
        return True


def _has_socket(directory: str) -> bool:
    try:
        os.stat(os.path.join(directory, DATA_SOCKET))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def answering(directories: Iterable[str]) -> Optional[str]:
    """Return the first of these directories in which a daemon listens.

    Raises
    ------
    PermissionDenied
        There is a daemon, and it does not let this user in.
    """
    for directory in directories:
        if not _is_trusted(directory):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.setblocking(False)
            path = os.path.join(directory, DATA_SOCKET)
            try:
                sock.connect(path)
            except BlockingIOError:  # its queue is full
                return directory
            except PermissionError:
                if os.path.isdir(directory):  # else it cannot be seen whether there is one
                    raise no_permission(path) from None
                continue
            except OSError:
                continue
            return directory
    return None


def is_locked(path: str) -> bool:
    """Tell whether a process holds a lock file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_starting(directory: str) -> bool:
    """Tell whether a daemon has the directory and does not listen yet."""
    return _is_trusted(directory) and is_locked(os.path.join(directory, "feedwaterd.lock"))


def find(address: Optional[str], patience: float) -> str:
    """As `resolve`, but a daemon that is just being started may take so many seconds to appear."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return resolve(address)
        except DaemonLost:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_S)


def _working_directory(given: str) -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InvalidArgument(
            f"the address {given!r} is a relative path, and the working directory was removed: cd "
            "elsewhere, or give the whole path"
        ) from None


def resolve(address: Optional[str] = None) -> str:
    """Return the daemon's runtime directory.

    Parameters
    ----------
    address : str, optional
        That directory, or a socket in it. Default: ``$FEEDWATER_ADDRESS``, else the instance of
        this process's NUMA node, else node 0's: the first that listens, or that has a socket.

    Raises
    ------
    DaemonLost
        No address was given and no daemon is where one would be.
    PermissionDenied
        The same, and one of these places may not be looked into.
    InvalidArgument
        A relative path was given, and the working directory was removed.
    """
    given = os.fspath(address) if address else os.environ.get("FEEDWATER_ADDRESS")
    if given:
        folder, name = os.path.split(given)
        folder = folder if name in (DATA_SOCKET, CONTROL_SOCKET) else given
        # Absolute: the program may change its folder before a reconnect. `..` stays: behind a link
        # it is the parent of what the link names.
        base = "/" if os.path.isabs(folder) else _working_directory(given)
        return str(PurePosixPath(base, folder))
    tried = candidates(numa_node())
    closed, there = None, []
    for directory in tried:
        if not _is_trusted(directory):
            continue
        try:
            if _has_socket(directory):
                there.append(directory)
        except PermissionError:
            closed = closed or os.path.join(directory, DATA_SOCKET)
        except OSError:
            continue
    if there:  # what one that was killed has left must not hide another; else it may come back
        return next(filter(_listens, there), there[0]) if len(there) > 1 else there[0]
    if closed is not None:
        raise no_permission(closed)
    raise DaemonLost(
        f"no daemon found: no {DATA_SOCKET} in {', '.join(tried)}. Start one with "
        "'feedwaterd --config feedwater.yaml', or say where it is (its runtime_dir) with "
        "address=... or $FEEDWATER_ADDRESS"
    )
