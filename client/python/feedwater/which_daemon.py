"""Which daemon a loader uses: one that is there, or a private one of its job."""

from __future__ import annotations

import logging
import os
import time
from typing import Optional, Union

from . import errors
from .address import answering, candidates, find, is_starting, numa_node
from .placement import RankPlacement
from .private import PrivateDaemon, check_wanted, running, start_or_join
from .private_folder import is_private

_log = logging.getLogger("feedwater")
_CHOICES = ("auto", "shared", "private")
_LOOK_S = 0.05
_PRIVATE_HINT = (
    ". (A loader starts a private daemon where it is given the path of a .yaml file; a name is of "
    "a shared daemon's pipelines)"
)


def choose_daemon(
    address: Optional[str],
    daemon: str,
    cpus: Union[int, str, None],
    memory: Union[int, str, None],
    place: RankPlacement,
    job: Optional[str],
    *,
    is_name: bool,
    patience: float,
) -> tuple[str, Optional[PrivateDaemon]]:
    """Return the runtime directory of the daemon, and what holds on to it if it is a private one.

    Parameters
    ----------
    address, daemon, cpus, memory
        As `Loader` takes them.
    place, job
        Whose daemon a private one is.
    is_name : bool
        The pipeline is known to the daemon, not a file.
    patience : float
        Seconds that a shared daemon which is just being started may take to listen.
    """
    if daemon not in _CHOICES:
        raise errors.InvalidArgument(f"daemon is {daemon!r}: it is one of {', '.join(_CHOICES)}")
    wanted = check_wanted(cpus, memory)
    is_wanted = wanted.cpus is not None or wanted.memory is not None
    if daemon == "private":
        if address:
            raise errors.InvalidArgument(
                f"address is {os.fspath(address)!r}, the place of a daemon that runs, and "
                'daemon="private" starts one: give one of the two'
            )
        if is_name:
            raise errors.InvalidArgument(
                "a private daemon knows no pipelines by name: give the path of a .yaml file"
            )
    elif daemon == "shared" and is_wanted:
        raise errors.InvalidArgument(
            'cpus= and memory= belong to a private daemon (daemon="private"); those of a shared '
            "one stand in its feedwater.yaml"
        )
    is_named = bool(address or os.environ.get("FEEDWATER_ADDRESS"))
    found: Optional[str] = None
    if daemon == "shared" or is_named or is_name:
        if daemon != "private":
            try:
                found = find(address, patience)
            except errors.DaemonLost as error:
                if daemon == "auto" and not is_named:
                    raise errors.DaemonLost(f"{error}{_PRIVATE_HINT}") from None
                raise
    elif daemon == "auto" and running(place, job) is None:
        found = _answering(patience)
    if found is None:
        private = start_or_join(place, job, wanted)
        return private.address, private
    if is_wanted:
        _log.warning("cpus= and memory= have no effect: the daemon at %s is not this job's", found)
    if is_private(found):
        return found, PrivateDaemon(found, None)
    return found, None


def _answering(patience: float) -> Optional[str]:
    """Return where a shared daemon answers; one that is just being started is waited for."""
    places = candidates(numa_node())
    deadline = time.monotonic() + patience
    while True:
        try:
            found = answering(places)
        except errors.PermissionDenied as error:
            raise errors.PermissionDenied(
                f'{error}. Or start one for this job alone: daemon="private"'
            ) from None
        if found is not None or not any(map(is_starting, places)):
            return found
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_S)
