"""`ServingProcess`: what the supervisor knows of one of the processes that serve a user's code."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Optional

from .descriptors import close, forget
from .fork_server import Forked
from .wire import WORDS_BYTES

_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0  # before the next attempt


def pause_before(attempts: int) -> float:
    """Return the seconds before the next attempt."""
    return float(min(LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(attempts, 10)))


@dataclass
class ServingProcess:
    """One process, and where it is: `state` says what is to be heard from it next."""

    forked: Forked
    number: int  # the lowest that no other process has
    state: str = "starting"  # describing, idle, serving
    since: float = field(default_factory=time.monotonic)  # of `starting`, and of a `step`
    step: str = "the first samples"  # what it makes while `describing`
    has_answered: bool = False  # on this connection
    has_made: bool = False  # on any
    region: Optional[int] = None  # the memory that it shares with the daemon
    data: Optional[socket.socket] = None  # a copy: its end tells that the daemon has given it up
    leave_by: Optional[float] = None  # since it has
    again_at: float = 0.0
    attempts: int = 0  # to serve, one after the other, in which nothing was made
    control: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.control = self.forked.control

    def pause(self) -> None:
        """Let it wait before it is connected again."""
        self.again_at = time.monotonic() + pause_before(self.attempts)
        self.attempts += 1

    def share(self, region: Optional[int]) -> None:
        """Take the descriptor of the memory that it shares with the daemon."""
        if self.region is not None:
            close(self.region)
        self.region = region

    def last_words(self) -> str:
        """Return what it left when it was killed, or had taken too long."""
        if self.region is None:
            return ""
        with contextlib.suppress(OSError):
            size = os.fstat(self.region).st_size
            words = os.pread(self.region, WORDS_BYTES, size - WORDS_BYTES)
            return words.partition(b"\0")[0].decode("utf-8", "replace").strip()
        return ""

    def disconnect(self) -> None:
        """Close the copy of its connection: the daemon waits for the last copy's end."""
        if self.data is not None:
            forget(self.data)
            self.data = None

    def let_go(self) -> None:
        """Close all that is held of it."""
        self.disconnect()
        self.share(None)
        forget(self.control)
