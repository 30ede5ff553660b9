"""Tells a person that a program stands still because its daemon is away or does not answer, and
when that is over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from types import TracebackType
from typing import Optional

from . import errors
from .control import Control, messages

_log = logging.getLogger("feedwater")
_TELL_AFTER_S = 1.0  # a restart that is quicker is nobody's business
_ANSWER_S = 2.0  # in which a daemon that runs says how it is


class Outage:
    """The time without a daemon; use it as a context manager around the waiting.

    What lasts for a second is told once, with the logger ``feedwater``: without any set-up, Python
    prints warnings on stderr. A thread of its own tells it, since the one that waits may stand
    still in a system call, such as while the daemon is stopped or lists a dataset's files.

    Parameters
    ----------
    address : str
        The daemon's runtime directory.
    reason : str
        How the connection ended.
    timeout : float
        How long the program will wait, in seconds.
    """

    def __init__(self, address: str, reason: str, timeout: float) -> None:
        self._address, self._reason, self._timeout = address, reason, timeout
        self._began = time.monotonic()
        self._told = False
        self._timer: Optional[threading.Timer] = None

    def __enter__(self) -> Outage:
        if self._timeout > _TELL_AFTER_S:
            timer = threading.Timer(_TELL_AFTER_S, self._tell)
            timer.daemon = True
            timer.name = "feedwater-outage"
            try:
                timer.start()
                self._timer = timer
            except RuntimeError:  # no thread to be had, or the interpreter is ending
                pass
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()  # what it has begun to say comes first
        if self._told and error is None:
            away = time.monotonic() - self._began
            _log.warning(
                "the daemon at %s serves again after %.1f s; going on with the next batch",
                self._address,
                away,
            )

    def _tell(self) -> None:
        self._told = True
        wait = (
            "without end (reconnect_timeout)"
            if math.isinf(self._timeout)
            else f"up to {self._timeout:g} s (reconnect_timeout)"
        )
        _log.warning(
            "the daemon at %s cannot be reached (%s): waiting %s until it serves again; no batch "
            "is lost",
            self._address,
            self._reason,
            wait,
        )


class Silence:
    """A wait for a batch from a daemon whose connection stands: is it only slow, or stopped?

    A stopped daemon (SIGSTOP, a frozen container, a debugger) hangs up on nobody. So a wait that
    lasts asks it for its status, and tells once, with the logger ``feedwater``, if there is no
    answer.

    Parameters
    ----------
    address : str
        The daemon's runtime directory.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._began = time.monotonic()
        self._told = False

    def look(self) -> None:
        """Ask the daemon; takes two seconds if it does not answer."""
        try:
            with Control(self._address) as control:
                control.call("GetStatus", messages.GetStatusRequest(), _ANSWER_S)
        except errors.DaemonLost:
            return  # the data socket tells of that
        except errors.Error as error:
            if error.code == "DEADLINE_EXCEEDED" and not self._told:
                self._told = True
                _log.warning(
                    "no batch, and no answer from the daemon at %s: it is stopped or frozen "
                    "(kill -CONT its process), or has no CPU; waiting until it continues, nothing "
                    "is lost",
                    self._address,
                )
        else:
            self.end()

    def end(self) -> None:
        """Say that the daemon goes on, if somebody was told."""
        if self._told:
            self._told = False
            away = time.monotonic() - self._began
            _log.warning("the daemon at %s continues after %.1f s", self._address, away)
