"""A process that makes a user's own records, or runs the user's own op, for the daemon.

It gets its connection to the daemon from the program (`provider`), which has connected for it, and
then talks with the daemon alone: ASK says what is to be made, the samples go into memory that both
share, ANSWER gives them. proto/shm/README.md has the messages.

What a user's code does cannot harm anything but its own sample: an exception, or `sys.exit`, is the
sample's failure; a crash or a hang leaves the stack in the shared memory, where the daemon finds
it, and ends the process.
"""

from __future__ import annotations

import array
import contextlib
import faulthandler
import os
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn, Optional, Union

import numpy as np

from . import wire
from .descriptors import forget, keep, no_fork
from .own_code import Op, Source, describe, failure_text
from .own_stream import NOT_WANTED, Share, Stream, describe_stream
from .passing import receive_socket, send_with
from .payload import MAX_PAYLOAD, Region, TooLarge, align
from .pickled import unpickled
from .samples import FieldNames, Plan
from .seeding import Seeding, seed_apart

_ENTRY = wire.ENTRY.size
_ANSWER_AT = wire.ENTRY_ASKED.size


class Service(NamedTuple):
    """What a process is to do.

    Attributes
    ----------
    plan : Plan or None
        Of a source; None for an op.
    timeout : float
        Seconds that one record or call may take.
    seeded : bool
        Seed the common generators before each.
    share : Share or None
        Of an iterable dataset.
    """

    plan: Optional[Plan]
    timeout: float
    seeded: bool
    share: Optional[Share] = None


class Lost(Exception):
    """The connection to the daemon is over."""


# --- the connection -------------------------------------------------------------------------------


class Server:
    """Answers the daemon on one connection.

    Parameters
    ----------
    sock : socket
        The connection, for which `Provide` was called.
    own : object
        The dataset or the function.
    fresh : callable
        Returns another copy of it.
    service : Service
    control : Connection
        Of the program, which is told when the first answer is sent, and given each region, where
        last words come to stand.
    """

    def __init__(
        self,
        sock: socket.socket,
        own: Any,
        fresh: Callable[[], Any],
        service: Service,
        control: Connection,
    ) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self._service = service
        self._maker = self._made_for(own, fresh)
        # An op may have changed its input when it draws. An epoch is seeded as a whole.
        is_each_seeded = service.seeded and service.share is None
        self._seeding = Seeding(at_once=service.plan is None) if is_each_seeded else None
        self._control = control
        self._has_answered = False
        self._region: Optional[Region] = None
        # Records that are too large for the window, and their bytes: by number and seeds, until
        # they are asked for again.
        self._kept: dict[tuple[int, int, int], tuple[Any, int]] = {}
        self._entry_at = 0  # in the region, of what is being made
        self._pid = os.getpid()
        self._armed_at: Optional[float] = None

    def _made_for(self, own: Any, fresh: Callable[[], Any]) -> Union[Op, Source, Stream]:
        plan, share = self._service.plan, self._service.share
        if plan is None:
            return Op(own)
        if share is None:
            return Source(own, plan)
        return Stream(
            fresh, plan, share, self._service.seeded, self._arm, self._tell, self._is_wanted
        )

    def _is_wanted(self) -> bool:
        """Tell whether the daemon waits for the entry that is being made still."""
        assert self._region is not None
        return not wire.ENTRY_WANTED.unpack_from(self._region.memory, self._entry_at)[0]

    def _tell(self, text: str) -> None:
        self._control.send(("told", text))

    def run(self) -> NoReturn:
        """Answer until the connection is over.

        Raises
        ------
        Lost
            It is.
        """
        try:
            while True:
                packet, fds = self._packet()
                message = wire.parse(packet)
                if isinstance(message, wire.Ask):
                    self._obey(message)
                elif isinstance(message, wire.Region):
                    self._take_region(message, fds)
                elif isinstance(message, wire.Closing):
                    raise Lost(message.message)
        except wire.ProtocolError as error:
            raise Lost(f"the daemon broke the protocol: {error}") from None
        except OSError as error:
            raise Lost(f"the connection failed: {error}") from None
        finally:
            self._disarm()
            forget(self._sock)
            if self._region is not None:
                faulthandler.enable(file=sys.__stderr__ or 2)
                self._region.close()
            del self._maker  # a stream calls this object: each would keep the other, and the region

    def _packet(self) -> tuple[bytes, list[int]]:
        try:
            packet, ancillary, _, _ = self._received(socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._disarm()
            packet, ancillary, _, _ = self._received(0)
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not packet:
            raise Lost("the daemon closed the connection")
        return packet, list(fds)

    def _received(self, flags: int) -> Any:
        return self._sock.recvmsg(
            wire.MAX_MESSAGE, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC | flags
        )

    def _take_region(self, message: wire.Region, fds: list[int]) -> None:
        try:
            if len(fds) != 1:
                raise wire.ProtocolError(f"{len(fds)} descriptors with a region")
            region = Region(fds[0], message)
            send_with(self._control, ("region", None), fds[0])
        finally:
            for fd in fds:
                os.close(fd)
        self._disarm()
        # Whatever kills this process from now on leaves its stack there.
        faulthandler.enable(file=region.words())
        if self._region is not None:
            self._region.close()
        self._region = region

    def _obey(self, ask: wire.Ask) -> None:
        region = self._region
        if region is None or ask.entries > region.about.entries:
            raise wire.ProtocolError(f"ASK of {ask.entries} entries")
        begin = region.begin(ask.window)
        end = begin + region.about.window_bytes
        asked = [
            wire.ENTRY_ASKED.unpack_from(region.memory, begin + _ENTRY * number)
            for number in range(ask.entries)
        ]
        at = begin + region.first_payload
        for _, _, _, offset, size in asked:
            if size:
                at = max(at, align(begin + offset + size))
        for number, (record, first, second, offset, size) in enumerate(asked):
            self._entry_at = begin + _ENTRY * number
            code, taken = self._answer(
                region, record, first, second, (begin + offset, size), at, end
            )
            wire.ENTRY_ANSWER.pack_into(
                region.memory, begin + _ENTRY * number + _ANSWER_AT, at - begin, taken, code, 0
            )
            if code != wire.TOO_LARGE:
                at = align(at + taken)
        self._sock.send(wire.answer(ask), socket.MSG_NOSIGNAL)
        if not self._has_answered:
            self._has_answered = True
            self._control.send(("answered", None))

    def _arm(self) -> None:
        """Let this process end if the next sample takes too long.

        To arm and to disarm takes 25 us, so neither is done for each sample.
        """
        timeout, now, region = self._service.timeout, time.monotonic(), self._region
        assert region is not None
        if self._armed_at is None or now - self._armed_at > timeout / 64:
            self._armed_at = now
            faulthandler.dump_traceback_later(timeout, exit=True, file=region.words())

    def _disarm(self) -> None:
        if self._armed_at is not None:
            self._armed_at = None
            faulthandler.cancel_dump_traceback_later()

    def _answer(
        self, region: Region, record: int, first: int, second: int, given: tuple[int, int],
        at: int, end: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Make one entry, at `at`; return its code and its bytes."""
        key = (record, first, second)
        made, _ = self._kept.pop(key, (None, 0)) if self._kept else (None, 0)
        if made is None:
            made = self._make(key, region, given)
        try:
            return self._write(region, made, at, end)
        except TooLarge as error:
            # An op is not known by its record: it has inputs. What was not made may yet be wanted.
            if self._service.plan is not None and made != NOT_WANTED:
                self._keep(key, made, error.size)
            return wire.TOO_LARGE, error.size

    def _write(self, region: Region, made: Any, at: int, end: int) -> tuple[int, int]:
        if not isinstance(made, str):
            try:
                layout, codes, values = made
                return wire.MADE, region.write(layout, codes, values, at, end)
            except TooLarge as error:
                if error.size <= MAX_PAYLOAD:
                    raise
                made = (
                    f"it takes {error.size / (1 << 20):.0f} MiB, and the most that a sample of "
                    f"one's own may take is {MAX_PAYLOAD >> 20} MiB"
                )
            except (TypeError, ValueError, OverflowError) as error:
                made = failure_text(error)
        region.forget()  # the text covers what the views have written
        data = made.encode("utf-8", "backslashreplace")
        if at + len(data) > end:
            raise TooLarge(len(data))
        region.memory[at : at + len(data)] = data
        return wire.ENTRY_FAILED, len(data)

    def _make(self, key: tuple[int, int, int], region: Region, given: tuple[int, int]) -> Any:
        """Run the user's code; return what it made, or the text that says why it did not."""
        made: Any
        self._arm()
        inputs = region.read(*given) if given[1] else []
        while True:
            if self._seeding is not None:
                self._seeding.seed(key[1], key[2])
            try:
                made = self._maker.make(*key, inputs)
            except BaseException as error:  # SystemExit and KeyboardInterrupt, too
                made = failure_text(error)
            if os.getpid() != self._pid:
                os._exit(0)  # the user's code has forked, and the child has come back here
            if self._seeding is None or self._seeding.is_complete():
                return made

    def _keep(self, key: tuple[int, int, int], made: Any, size: int) -> None:
        """Keep a record, and of others no more than the largest record may take."""
        if not isinstance(made, str):
            layout, codes, values = made
            made = layout, codes, [np.array(value) for value in values]
        self._kept[key] = made, size
        while sum(size for _, size in self._kept.values()) > MAX_PAYLOAD:
            del self._kept[next(iter(self._kept))]


# --- the process ----------------------------------------------------------------------------------


def run(control: Connection, memory: int, pieces: list[tuple[int, int]], limit: float) -> NoReturn:
    """Be such a process: do what the program says on `control`, until that is closed.

    `limit` is in seconds, for unpickling.
    """
    keep(control)
    faulthandler.enable(file=sys.__stderr__ or 2)
    with contextlib.suppress(EOFError, OSError):
        _obey_program(control, memory, pieces, limit)
    _leave(0)


def _obey_program(
    control: Connection, memory: int, pieces: list[tuple[int, int]], limit: float
) -> None:
    _one_thread()

    def fresh() -> Any:
        return unpickled(memory, pieces)

    faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__ or 2)
    try:
        own = fresh()
    except BaseException as error:
        control.send(
            ("failed", "it cannot be unpickled in another process: " + failure_text(error))
        )
        _leave(1)
    faulthandler.cancel_dump_traceback_later()
    control.send(("ready", None))
    while True:
        word, content = control.recv()
        if word == "describe":
            _describe(control, own, fresh, *content)
        elif word == "serve":
            if content.share is not None:
                own = None  # each epoch has a copy of its own
            if not content.seeded:
                seed_apart()
            with no_fork:
                sock = keep(socket.socket(fileno=receive_socket(control)))
            try:
                Server(sock, own, fresh, content, control).run()
            except Lost as lost:
                control.send(("lost", str(lost)))


def _describe(
    control: Connection,
    own: Any,
    fresh: Callable[[], Any],
    names: Optional[FieldNames],
    timeout: float,
    share: Optional[Share],
) -> None:
    """Tell the program what the dataset has; `timeout` is for each step of that."""
    pid = os.getpid()

    def begin(step: str) -> None:
        control.send(("step", step))
        faulthandler.dump_traceback_later(timeout, exit=True, file=sys.__stderr__ or 2)

    try:
        found = (
            describe(own, names, begin)
            if share is None
            else describe_stream(fresh, names, share, begin)
        )
        said: tuple[str, Any] = ("described", found)
    except BaseException as error:  # SystemExit, too
        said = "failed", failure_text(error)
    if os.getpid() != pid:
        os._exit(0)  # as in `_make`
    faulthandler.cancel_dump_traceback_later()
    control.send(said)


def _one_thread() -> None:
    """Compute in one thread: the processes are what runs in parallel."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)
