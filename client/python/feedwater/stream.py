"""One rank's endless sequence of batches, which survives the daemon.

A stream always knows from where its next batch comes (`next_at`). When the connection is lost it
opens a new one there, so whoever reads the stream sees only a pause.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from . import errors, wire
from .address import APPEARS_S
from .arena import Lease
from .control import messages
from .cursor import Cursor, Skips
from .layout import check_same
from .outage import Outage, Silence
from .pipeline_file import show_line
from .session import Session, SessionLost
from .units import count_of

_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.05, 1.0
_STARTING_S = 5.0  # how long a daemon that accepts connections may take to serve
_STALL_DEFAULT_S = 10.0
_STALL_FIRST_LOOK_S, _STALL_LOOK_S = 0.2, 1.0
# What a reconnect waits for to pass.
_PASSING = ("UNAVAILABLE", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")


@dataclass(frozen=True)
class StreamOptions:
    """What a loader asks the daemon for. None: the daemon decides."""

    address: str
    client: str
    pipeline_name: str
    pipeline_text: Optional[str]
    file_name: str
    job: str
    rank: int
    world_size: int
    batch_size: Optional[int]
    seed: Optional[int]
    slots: Optional[int]
    verify: bool
    writable: bool
    reconnect_timeout: float
    debug_protect: bool = False
    ensure: Optional[Callable[[], None]] = None  # starts a private daemon that is gone


class Batch(NamedTuple):
    """A batch that was lent."""

    ready: wire.Ready
    lease: Lease


class Failure(NamedTuple):
    """What came in a batch's place."""

    failed: wire.Failed


def stall_seconds() -> float:
    """How long a program may wait while it holds all slots itself."""
    try:
        return max(0.0, float(os.environ.get("FEEDWATER_STALL_TIMEOUT", "")))
    except ValueError:
        return _STALL_DEFAULT_S


# (name, the numbers that a request can carry, what makes sense of them). Those that can be carried
# are the daemon's to judge.
_NUMBERS = (
    ("rank", -(1 << 63), (1 << 63) - 1, "0 to world_size - 1"),
    ("world_size", -(1 << 63), (1 << 63) - 1, "1 to 1048576"),
    ("batch_size", -(1 << 63), (1 << 63) - 1, "at least 1"),
    ("seed", 0, (1 << 64) - 1, f"0 to {(1 << 64) - 1}"),
    ("slots", 0, (1 << 32) - 1, f"1 to {wire.MAX_SLOTS}"),
)


def _no_fit(options: StreamOptions, error: str) -> str:
    """Say which number a request cannot carry."""
    for name, least, most, sense in _NUMBERS:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            return f"{name} is {value}; it must be {sense}"
    return f"the request cannot be made: {error}"


class Stream:
    """See the module. Use it from one thread at a time.

    Attributes
    ----------
    facts : OpenStreamResponse
        What the daemon said when the stream was first opened.
    next_at : tuple of int or None
        Epoch and global position of the next batch to come; None when that is not known, then
        `seek` must be next.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.facts: Any = None
        self.next_at: Optional[tuple[int, int]] = None
        self.reconnects = 0
        self.waited_ns: Optional[int] = None  # of the last receive; None: the batch was there
        self._serial = 0
        self._session: Optional[Session] = None
        self._closed = False
        self._open_first()

    def _request(self) -> Any:
        o = self.options
        try:
            request = messages.OpenStreamRequest(
                client=o.client,
                job=o.job,
                rank=o.rank,
                world_size=o.world_size,
                checksum=o.verify,
                takes_ragged=True,
            )
            if o.pipeline_text is not None:
                request.pipeline.text.file_name = o.file_name
                request.pipeline.text.yaml = o.pipeline_text
            elif self.facts is not None and self.facts.HasField("pipeline_text"):
                request.pipeline.text.CopyFrom(self.facts.pipeline_text)  # whatever the file is now
            else:
                request.pipeline.name = o.pipeline_name
            batch_size, seed = o.batch_size, o.seed
            if self.facts is not None:
                batch_size, seed = self.facts.batch_size, self.facts.seed
                request.files.CopyFrom(self.facts.files)
            if batch_size is not None:
                request.batch_size = batch_size
            if seed is not None:
                request.seed = seed
            if o.slots is not None:
                request.slots = o.slots
        except (ValueError, TypeError) as error:
            raise errors.InvalidArgument(_no_fit(o, str(error))) from None
        if self.facts is not None and self.next_at is not None:
            request.cursor = self.cursor(*self.next_at, 0).to_json()
        return request

    def _open_first(self) -> None:
        began = None  # when it first failed: this program may have paused before that
        while True:
            try:
                self._session, self.facts = self._connect()
                break
            except errors.DaemonLost as error:
                # It may be starting: not listening yet, or greeting and not serving yet.
                patience = _STARTING_S if error.greeted else APPEARS_S
                began = began or time.monotonic()
                if time.monotonic() - began >= min(patience, self.options.reconnect_timeout):
                    raise
                time.sleep(_BACKOFF_FIRST_S)
            except errors.Error as error:
                if self.options.pipeline_text is not None:
                    show_line(error, self.options.file_name, self.options.pipeline_text)
                raise
        self.next_at = (self.facts.epoch, self.facts.position)

    def _connect(self, timeout: float = math.inf) -> tuple[Session, Any]:
        o = self.options
        if o.ensure is not None:
            o.ensure()
        return Session.open(
            o.address, self._request(), o.writable, timeout, o.debug_protect, self._check
        )

    def _check(self, answer: Any) -> None:
        """Refuse what would not be this stream."""
        if min(answer.batch_size, answer.world_size) <= 0:
            raise errors.Error(
                f"the daemon describes batches of {answer.batch_size} for {answer.world_size} ranks"
            )
        if self.facts is not None:
            check_same(answer, self.facts)

    def _reconnect(self, reason: str) -> None:
        """Open a new session where the stream stands, within `reconnect_timeout`."""
        with Outage(self.options.address, reason, self.options.reconnect_timeout):
            self._connect_again(reason)

    def _connect_again(self, reason: str) -> None:
        deadline = time.monotonic() + self.options.reconnect_timeout
        pause = _BACKOFF_FIRST_S
        # The text and the kind: an error kept here would keep this frame, and the old session.
        last, kind = "", errors.DaemonLost
        while True:
            if self._closed:
                raise errors.FailedPrecondition("the loader is closed")
            if self.options.reconnect_timeout > 0:
                try:
                    left = max(1.0, deadline - time.monotonic())
                    self._session, now = self._connect(left)
                    if self._closed:  # by another thread, which found no session
                        self._drop_session()
                        raise errors.FailedPrecondition("the loader is closed")
                    if not self.facts.files.as_of_ns:  # the daemon was upgraded meanwhile
                        self.facts.files.CopyFrom(now.files)
                    self.facts.own_identity = self.facts.own_identity or now.own_identity
                    self._serial = 0
                    self.reconnects += 1
                    return
                except errors.Error as error:
                    shut = isinstance(error, errors.PermissionDenied) and error.may_pass
                    if error.code not in _PASSING and not shut:
                        raise
                    last = f" ({error})"
                    is_there = isinstance(error, errors.NotServed)
                    kind = errors.NotServed if is_there else errors.DaemonLost
            left = deadline - time.monotonic()
            if left <= 0:
                raise kind(
                    f"{reason}, and did not serve again within "
                    f"{self.options.reconnect_timeout:g} s{last}. "
                    "The error's .state has the position: load it into a new loader to continue"
                )
            time.sleep(min(pause, left))
            pause = min(2 * pause, _BACKOFF_LAST_S)

    def cursor(self, epoch: int, position: int, substituted: int, skip: Skips = ()) -> Cursor:
        """Return a cursor of this stream."""
        f = self.facts
        return Cursor(
            f.dataset_digest,
            f.pipeline_digest,
            f.seed,
            epoch,
            position,
            f.world_size,
            f.batch_size,
            substituted,
            skip,
        )

    def seek(self, epoch: int, position: int) -> None:
        """Let the next batch come from there. Nothing happens if it does so already."""
        if self.next_at == (epoch, position):
            return
        self.next_at = None  # interrupted before the end, it will be tried again
        if self._session is not None:  # else the reconnect goes there
            self._serial += 1
            try:
                self._session.seek(self._serial, epoch, position)
            except SessionLost:
                self._drop_session()
        self.next_at = (epoch, position)

    def forget_place(self) -> None:
        """Say that it is not certain what was received last: the reader will seek."""
        self.next_at = None

    def receive(self) -> Union[Batch, Failure]:
        """Wait for the next batch.

        Raises
        ------
        Stalled
            The program holds all slots itself.
        DaemonLost
            The daemon went away and did not come back in time.
        """
        self.waited_ns = None
        while True:
            if self._closed:
                raise errors.FailedPrecondition("the loader is closed")
            if self._session is None:
                self._reconnect("the connection to the daemon was lost")
            got, lost = self._receive()
            if got is not None:
                return got
            if lost is None or self._closed:
                continue
            code, reason = lost
            if code != "UNAVAILABLE":
                raise errors.from_code(code, f"the daemon ended the session: {reason}")
            self._reconnect(reason)

    def _receive(self) -> tuple[Union[Batch, Failure, None], Optional[tuple[str, str]]]:
        """Wait for the session's next message. Return what it brings, if that is for the reader,
        and why the session ended, if it did.

        The latter as two texts: an error, and this frame, would keep the old session, and with it
        the memory that it has mapped, for as long as the error of a reconnect lives.
        """
        session = self._session
        if session is None:
            return None, None  # closed in another thread meanwhile
        try:
            return self._take(session, self._wait(session)), None
        except SessionLost as ended:
            self._drop_session()
            return None, (ended.code, ended.reason)

    def receive_ready(self) -> Union[Batch, Failure, None]:
        """Return the next batch if it is there already. None also where the session has ended:
        `receive` finds that again, and deals with it.
        """
        session = self._session
        if session is None:
            return None
        self.waited_ns = None
        try:
            message = session.receive(0)
            return None if message is None else self._take(session, message)
        except SessionLost:
            return None

    def _take(
        self, session: Session, message: Union[wire.Ready, wire.Failed]
    ) -> Union[Batch, Failure, None]:
        """Return what a message brings; None for one from before a seek."""
        if isinstance(message, wire.Ready):
            lease = session.lease(message)
            if message.serial != self._serial:
                return None
            self.next_at = (
                (message.epoch + 1, 0)
                if message.last_in_epoch
                else (message.epoch, message.next_position)
            )
            return Batch(message, lease)
        if message.serial != self._serial:
            return None
        self.next_at = None  # the stream stands still until a seek
        return Failure(message)

    def _wait(self, session: Session) -> Union[wire.Ready, wire.Failed]:
        message = session.receive(0)
        if message is not None:
            return message
        began = time.monotonic_ns()
        limit = stall_seconds()
        stalled_since: Optional[float] = None
        silence: Optional[Silence] = None
        collected = False
        while True:
            timeout = max(limit, _STALL_LOOK_S)
            if session.held >= session.arena.slots:
                now = time.monotonic()
                stalled_since = now if stalled_since is None else stalled_since
                if now - stalled_since >= limit:
                    raise errors.Stalled(_stall_text(session, limit))
                timeout = stalled_since + limit - now
                # Another thread may give a batch back meanwhile; no message wakes this one then.
                timeout = min(timeout, _STALL_LOOK_S if collected else _STALL_FIRST_LOOK_S)
            else:
                stalled_since = None
            message = session.receive(timeout)
            if message is not None:
                self.waited_ns = time.monotonic_ns() - began
                if silence is not None:
                    silence.end()
                return message
            if stalled_since is None:
                silence = silence or Silence(self.options.address)
                silence.look()
            elif not collected:
                collected = True
                gc.collect()  # batches in reference cycles, such as those of a traceback

    def held(self) -> int:
        """Return how many batches of the present session the program holds."""
        return 0 if self._session is None else self._session.held

    @property
    def slots(self) -> int:
        """Batches that fit into the shared memory."""
        return self.facts.slots if self._session is None else self._session.arena.slots

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.abandon()

    def close(self, politely: bool = True) -> None:
        """End the stream; politely: wait until the daemon has forgotten it."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            if politely:
                session.close()
            else:
                session.abandon()


def _stall_text(session: Session, limit: float) -> str:
    return (
        f"waited {limit:g} s for a batch while the program holds "
        f"{count_of(session.held, 'batch')}, which is all "
        f"{count_of(session.arena.slots, 'slot')} of shared memory: nothing is left to fill. A "
        "batch is given back when its last tensor or view is gone. Copy what you keep "
        "(tensor.clone(), numpy.array(x)), or ask for more with slots=N"
    )


def check_timeout(seconds: Optional[float]) -> float:
    """Return `reconnect_timeout` as a number; None means without end."""
    if seconds is None:
        return math.inf
    try:
        value = float(seconds)
    except (TypeError, ValueError):
        value = math.nan
    if not value >= 0:
        raise errors.InvalidArgument(f"reconnect_timeout is {seconds!r}: give seconds, 0 or more")
    return value
