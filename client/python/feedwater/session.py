"""One connection to the daemon: the data socket, its arena, and the messages between."""

from __future__ import annotations

import array
import contextlib
import math
import os
import random
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from itertools import compress
from typing import Any, Optional, Union

from . import errors, wire
from .address import DATA_SOCKET, no_permission
from .arena import Arena, Lease, Returns
from .control import Control, messages
from .descriptors import forget, keep, no_fork

_HANDSHAKE_S = 5.0
_ARENA_S = 60.0
_OPEN_S = 3600.0
_CLOSE_S = 5.0
_LONGEST_WAIT_S = 3600.0  # at a time
_RETRY_S = 0.01  # between attempts to send or connect where a queue had no room
_MSG_CMSG_CLOEXEC = 0x40000000


class SessionLost(Exception):
    """The connection ended. `code` and `reason` are the daemon's last word, if it had one; `said`
    tells whether it had.
    """

    def __init__(self, reason: str, code: str = "UNAVAILABLE", said: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.said = said


class Session:
    """A connection with an arena. `open` makes one."""

    def __init__(self, address: str, is_kept: bool = False) -> None:
        self.address = address
        self._pid = os.getpid()
        self._socket = _connect(address, is_kept)
        self._poll = select.poll()
        self._packets: deque[bytes] = deque()  # received and not taken over; one at most
        self._poll.register(self._socket, select.POLLIN)
        self._over = False
        self.ticket = b""
        self.arena: Arena
        self.returns: Optional[Returns] = None

    @classmethod
    def open(
        cls,
        address: str,
        request: Any,
        writable: bool,
        timeout: float = math.inf,
        debug_protect: bool = False,
        check: Callable[[Any], object] = bool,
    ) -> tuple[Session, Any]:
        """Connect, open the stream that `request` (an OpenStreamRequest) describes, and map its
        arena.

        `timeout` in seconds is for the daemon's answer to the request. The first open of a large
        dataset lists all its files. `check` may refuse that answer, before anything is mapped.

        Returns
        -------
        tuple
            The session and the daemon's OpenStreamResponse.

        Raises
        ------
        Error
            As the daemon says; `DaemonLost` when there is none.
        """
        self = cls(address)
        try:
            self._greet()
            request.ticket = self.ticket
            with Control(address) as control:
                response = control.call("OpenStream", request, min(timeout, _OPEN_S))
            check(response)
            self._map(response.slot_bytes, writable, debug_protect)
        except SessionLost as lost:
            self.abandon()
            raise self._why(lost) from None
        except errors.DaemonLost as error:
            self.abandon()
            error.greeted = bool(self.ticket)
            raise
        except wire.ProtocolError as error:
            self.abandon()
            raise errors.Error(f"the daemon at {address} broke the protocol: {error}") from None
        except BaseException:
            self.abandon()
            raise
        return self, response

    @classmethod
    def provide(cls, address: str, request: Any, timeout: float) -> tuple[socket.socket, Any]:
        """Connect, and let the connection be one that gives what `request` (a ProvideRequest)
        describes.

        Returns
        -------
        tuple
            The connection's socket, in which the region lies unread, and the daemon's
            ProvideResponse. No child has the socket; `forget` it.

        Raises
        ------
        Error
            As the daemon says; `DaemonLost` when there is none.
        """
        self = cls(address, is_kept=True)
        try:
            self._greet()
            request.ticket = self.ticket
            with no_fork, Control(address) as control:  # gRPC and a fork do not go together
                response = control.call("Provide", request, timeout)
        except SessionLost as lost:
            self.abandon()
            raise self._why(lost) from None
        except wire.ProtocolError as error:
            self.abandon()
            raise errors.Error(f"the daemon at {address} broke the protocol: {error}") from None
        except BaseException:
            self.abandon()
            raise
        return self._socket, response

    # An error in a variable of the frame that raises it would keep that frame, and through it those
    # of the loader with their batch, until a garbage collection.
    def _why(self, lost: SessionLost) -> errors.Error:
        error = errors.from_code(lost.code, lost.reason)
        if isinstance(error, errors.DaemonLost):
            error.greeted = bool(self.ticket) or lost.said
        return error

    def _greet(self) -> None:
        self._send(wire.hello())
        packet, _ = self._packet(_HANDSHAKE_S)
        message = wire.parse(packet)
        if isinstance(message, wire.Closing):
            raise _closing_reason(message)
        if not isinstance(message, wire.Welcome) or message.magic != wire.MAGIC:
            raise wire.ProtocolError("no WELCOME")
        if message.major != wire.MAJOR:
            raise errors.FailedPrecondition(
                f"the daemon at {self.address} speaks hand-over protocol "
                f"{message.major}.{message.minor}, this client "
                f"{wire.MAJOR}.{wire.MINOR}: install a client of the daemon's version"
            )
        self.ticket = message.ticket

    def _map(self, slot_bytes: int, writable: bool, debug_protect: bool) -> None:
        packet, fds = self._packet(_ARENA_S)
        try:
            message = wire.parse(packet)
            if isinstance(message, wire.Closing):
                raise _closing_reason(message)
            if not isinstance(message, wire.Arena) or len(fds) != 1:
                raise wire.ProtocolError(
                    f"{message!r} with {len(fds)} descriptors in the arena's place"
                )
            if message.slots > wire.MAX_SLOTS:
                raise wire.ProtocolError(f"an arena of {message.slots} slots")
            if message.slot_bytes != slot_bytes:
                raise wire.ProtocolError(
                    f"slots of {message.slot_bytes} bytes, {slot_bytes} were described"
                )
            self.arena = Arena(
                fds[0],
                message.arena_bytes,
                message.slot_bytes,
                message.slots,
                writable,
                debug_protect,
            )
            self.returns = Returns(self._release, self.arena, self._pid)
        finally:
            for fd in fds:
                os.close(fd)

    def _packet(self, timeout: Optional[float]) -> tuple[bytes, list[int]]:
        """Return the next packet and the descriptors that came with it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                packet, ancillary, _, _ = _read(
                    self._socket.recvmsg,
                    wire.MAX_MESSAGE,
                    socket.CMSG_SPACE(4 * 8),
                    _MSG_CMSG_CLOEXEC,
                )
            except BlockingIOError:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    text = f"the daemon at {self.address} did not answer within {timeout:g} s"
                    raise SessionLost(text) from None
                self._poll.poll(_milliseconds(left))
                continue
            except OSError as error:
                raise SessionLost(f"the data socket failed: {error}") from None
            fds = array.array("i")
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            if not packet:
                raise SessionLost(f"the daemon at {self.address} closed the connection")
            return packet, list(fds)

    def receive(self, timeout: Optional[float]) -> Union[wire.Ready, wire.Failed, None]:
        """Return the next batch's message, or None when none came within `timeout` seconds (None:
        wait for ever).

        Raises
        ------
        SessionLost
            The daemon went away or ended the session.
        """
        while True:
            if not self._packets:
                # An interrupt (Ctrl-C) may strike between any two steps of Python code, and a slot
                # that was lent must not be lost: so reading and keeping are one step, and a lease
                # takes its packet away.
                try:
                    _read(self._fetch)
                except BlockingIOError:
                    if not self._wait(timeout):
                        return None
                    continue
                except OSError as error:
                    raise SessionLost(f"the data socket failed: {error}") from None
            packet = self._packets[0]
            if not packet:
                raise SessionLost(f"the daemon at {self.address} went away")
            try:
                message = wire.parse(packet)
            except wire.ProtocolError as error:
                raise SessionLost(f"the daemon broke the protocol: {error}", "INTERNAL") from None
            if isinstance(message, wire.Closing):
                raise _closing_reason(message)
            if isinstance(message, wire.Ready):
                return message
            self._packets.popleft()
            if isinstance(message, wire.Failed):
                return message

    def _fetch(self) -> None:
        self._packets.extend(map(self._socket.recv, [wire.MAX_MESSAGE]))

    def _wait(self, timeout: Optional[float]) -> bool:
        """Wait for a packet, or the end of the connection; also for room to send where releases
        wait.
        """
        assert self.returns is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.returns.flush()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self.returns.waiting:
                left = _RETRY_S if left is None else min(left, _RETRY_S)
            if self._poll.poll(_milliseconds(left)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def lease(self, ready: wire.Ready) -> Lease:
        """Take over the slot that the message which was just received lends."""
        assert self.returns is not None
        if ready.slot >= self.arena.slots:
            raise SessionLost(
                f"the daemon lent slot {ready.slot} of {self.arena.slots}", "INTERNAL"
            )
        return Lease(self.arena, self.returns, ready.slot, ready.generation, self._packets.popleft)

    def seek(self, serial: int, epoch: int, position: int) -> None:
        """Ask for production to start over elsewhere."""
        self._send(wire.seek(serial, epoch, position))

    def _send(self, packet: bytes) -> None:
        deadline = time.monotonic() + _HANDSHAKE_S
        while True:
            try:
                self._socket.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SessionLost("the daemon does not read its data socket") from None
                select.select([], [self._socket], [], 0.1)
            except ConnectionError:
                return  # it hung up: the reader finds its last word
            except OSError as error:
                raise SessionLost(f"the data socket failed: {error}") from None

    def _release(self, slot: int, generation: int, sent: dict[int, int]) -> bool:
        """Send RELEASE without ever waiting, and note it in `sent`; False when there is no room.

        An interrupt (Ctrl-C) may strike between any two steps of Python code, and a release must be
        neither lost nor sent twice: so sending and noting are one step, inside `dict.update`.
        """
        if self._over:
            return True  # the slots went with the session
        packet, flags = wire.release(slot, generation), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            sent.update(compress([(slot, generation)], map(self._socket.send, [packet], [flags])))
        except BlockingIOError:
            return False
        except OSError:
            pass  # the daemon is gone; the reader will notice
        return True

    @property
    def held(self) -> int:
        """Batches that this program has not given back."""
        return 0 if self.returns is None else len(self.returns.held)

    def abandon(self) -> None:
        """End the connection without a word. Batches that are still held stay readable."""
        if self._over:
            return
        self._over = True
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if self.returns is None:
            forget(self._socket)
        else:
            self.returns.finish(self._socket.close)  # not while another thread is sending

    def close(self) -> None:
        """End the stream, and return when the daemon has forgotten it."""
        try:
            if not self._over and os.getpid() == self._pid:
                with contextlib.suppress(errors.Error):
                    self._close_stream()
        finally:
            self.abandon()

    def _close_stream(self) -> None:
        with Control(self.address) as control:
            control.call("CloseStream", messages.CloseStreamRequest(ticket=self.ticket), _CLOSE_S)


def _milliseconds(left: Optional[float]) -> Optional[float]:
    """Return what poll can wait for at a time; None is for ever."""
    return None if left is None else min(left, _LONGEST_WAIT_S) * 1000


def _closing_reason(closing: wire.Closing) -> SessionLost:
    return SessionLost(closing.message, errors.code_name(closing.code), said=True)


def _read(receive: Callable[..., Any], *arguments: Any) -> Any:
    """Call recv or recvmsg. Where the daemon hung up without reading all that was sent to it, the
    kernel says so once, ahead of the packets that came before: look again for the last word.
    """
    try:
        return receive(*arguments)
    except ConnectionResetError:
        return receive(*arguments)


def _connect(address: str, is_kept: bool = False) -> socket.socket:
    path = os.path.join(address, DATA_SOCKET)
    with no_fork:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if is_kept:
            keep(sock)
    try:
        sock.settimeout(_HANDSHAKE_S)
        deadline = time.monotonic() + _HANDSHAKE_S
        while True:
            try:
                sock.connect(path)
                break
            except BlockingIOError:  # the daemon's queue is full at the moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S * random.random())
        sock.setblocking(False)
    except PermissionError:
        forget(sock)
        raise no_permission(path) from None
    except OSError as error:
        forget(sock)
        if isinstance(error, (FileNotFoundError, ConnectionError, NotADirectoryError)):
            cure = (
                "is the daemon running? Start it with 'feedwaterd --config feedwater.yaml', or "
                "give its runtime_dir as address"
            )
        else:
            cure = "the address is the daemon's runtime_dir"
        raise errors.DaemonLost(f"cannot connect to {path}: {error}; {cure}") from None
    except BaseException:
        forget(sock)
        raise
    return sock
