"""Connections and sockets between this program and its own processes."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Optional

from .descriptors import close, keep, kept, no_fork

_MSG_CMSG_CLOEXEC = 0x40000000


def pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """Return both ends of a pipe, of which no child has a copy. `forget` them."""
    with no_fork:
        one, other = Pipe(duplex)
        return keep(one), keep(other)


def send_socket(control: Connection, fd: int) -> None:
    """Give a socket, or the end of a pipe, to the process at the other end."""
    channel = socket.socket(fileno=control.fileno())  # no copy: there may be no room for one
    try:
        socket.send_fds(channel, [b"f"], [fd])
    finally:
        channel.detach()


def receive_socket(control: Connection) -> int:
    """Return the descriptor that `send_socket` gave."""
    channel = socket.socket(fileno=control.fileno())
    try:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1, _MSG_CMSG_CLOEXEC)
    finally:
        channel.detach()
    if len(fds) != 1:
        raise EOFError("no descriptor came")
    return fds[0]


# --- both at once ---------------------------------------------------------------------------------

_LENGTH = struct.Struct("!i")  # of what a Connection sends


def send_with(control: Connection, message: Any, fd: int) -> None:
    """Send what `Connection.send` would, and a descriptor with it."""
    content = pickle.dumps(message)
    channel = socket.socket(fileno=control.fileno())
    try:
        socket.send_fds(channel, [_LENGTH.pack(len(content)) + content], [fd])
    finally:
        channel.detach()


def receive_with(control: Connection, limit: float) -> tuple[Any, Optional[int]]:
    """Return what `Connection.send` or `send_with` sent, and the descriptor, which is kept: `close`
    it.

    Raises
    ------
    EOFError, OSError
        The other end is gone, or did not send the rest within `limit` seconds.
    """
    until = time.monotonic() + limit
    channel = socket.socket(fileno=control.fileno())
    fds: list[int] = []
    try:
        (length,) = _LENGTH.unpack(_receive(channel, _LENGTH.size, until, fds))
        if length < 0:
            raise OSError("the message is too long")
        return pickle.loads(_receive(channel, length, until, fds)), fds.pop() if fds else None
    finally:
        channel.detach()
        for fd in fds:
            close(fd)


def _receive(channel: socket.socket, size: int, until: float, fds: list[int]) -> bytes:
    data = bytearray()
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while len(data) < size:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise OSError("the rest of a message did not come")
        with no_fork:
            flags = _MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
            part, came, _, _ = socket.recv_fds(channel, size - len(data), 1, flags)
            fds += [kept(fd) for fd in came]
        if not part:
            raise EOFError("the other end is gone")
        data += part
    return bytes(data)
