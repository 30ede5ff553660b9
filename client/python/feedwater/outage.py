"""Tells a person that a program stands still because its daemon is away, and when that is over."""

from __future__ import annotations

import logging
import math
import threading
import time
from types import TracebackType
from typing import Optional

_log = logging.getLogger("feedwater")
_TELL_AFTER_S = 1.0  # a restart that is quicker is nobody's business


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
            "the daemon at %s is away (%s): waiting %s until it serves again; nothing is lost",
            self._address,
            self._reason,
            wait,
        )
