"""`PrivateDaemon`: a feedwaterd that loaders of one job start for themselves.

Whichever rank of the job comes first on the host starts it, the others join it, and it ends with
its last client (`lifeline`). One that died is started again by whoever notices first; the loaders
go on where they are, as with any daemon that comes back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from . import errors
from .control import Control, messages
from .descriptors import close, open_kept
from .lifeline import FIFO, lifeline_of, open_end, own_lifeline
from .machine import cpu_list, usable_cpus, usable_memory
from .placement import RankPlacement, local_ranks, process_key
from .private_folder import (
    LOG,
    StartLock,
    StateSlot,
    all_private,
    explain,
    has_daemon,
    listens,
    name_of,
    pid_of,
    put_aside,
    read_config,
    remove,
    write_config,
)
from .units import bytes_of, count_of

_log = logging.getLogger("feedwater")

_PROGRAM = "feedwaterd"
_START_S = 60.0
_END_S = 15.0  # in which a daemon that ends is gone
_LOOK_S = 0.01
_ANSWER_S = 5.0
_BAD_CONFIG = 2  # exit status of feedwaterd
_GONE_S = 2.0  # in which the process of a daemon that has left its folder ends
_MEMORY_SHARE = 0.8  # of all private daemons together
_LEAST_SHARE = 1 / 32  # of that, for one beside neighbours that have it all
_SHOWN_LOG = 4000
_RESTARTS, _RESTARTS_S = 5, 600.0  # of a daemon that dies again and again
# What feedwaterd says of a line that stands for an argument.
_REFUSED = re.compile(r"feedwater\.yaml:\d+:\d+: (cpus|memory): (.*?)(?: \| |$)")
# What a service manager told this program is not meant for its daemon.
_NOT_PASSED_ON = (
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
    "RUNTIME_DIRECTORY", "STATE_DIRECTORY",
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What a private daemon is started with."""

    cpus: Optional[str]  # None: less what trainers need
    memory: Optional[str]  # None: auto
    local_ranks: int = 1


def find_program() -> str:
    """Return the path of feedwaterd.

    Raises
    ------
    DaemonLost
        It is nowhere; the text says where it was looked for.
    """
    given = os.environ.get("FEEDWATERD")
    package = Path(__file__).resolve().parent
    tried = []
    if given:
        tried = [given]
    else:
        tried = [str(package / "bin" / _PROGRAM)]
        found = shutil.which(_PROGRAM)
        tried.append(found or f"$PATH ({os.environ.get('PATH', '')})")
        # Of a source checkout; a package may also lie just below `/`.
        root = package.parents[2] if len(package.parents) > 2 else None
        if root is not None and (root / "CMakePresets.json").exists():
            tried.append(str(root / "build" / "release" / "bin" / _PROGRAM))
    for path in tried:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            # `..` stays: behind a link it is the parent of what the link names.
            return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    raise errors.DaemonLost(
        f"no daemon runs, and there is no program {_PROGRAM} to start one: looked for "
        f"{'$FEEDWATERD = ' if given else ''}{', '.join(tried)}. Cure: install the daemon (the "
        "wheel of scripts/package --wheel has it; or scripts/build in the sources), say where it "
        "is with $FEEDWATERD, or name a daemon that runs with address=... or $FEEDWATER_ADDRESS"
    )


def check_wanted(cpus: Union[int, str, None], memory: Union[int, str, None]) -> Wanted:
    """Check the arguments ``cpus`` and ``memory`` of a loader."""
    for name, value in (("cpus", cpus), ("memory", memory)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, str))):
            raise errors.InvalidArgument(f"{name} is {value!r}: give a number or a text")
    text = None if cpus in (None, "auto") else str(cpus).strip()
    if text is not None and not re.fullmatch(r"[1-9]\d*|\d+( *[-,] *\d+)+", text):
        raise errors.InvalidArgument(f"cpus is {cpus!r}: give a count, or a list such as '0-3,8'")
    size = None if memory in (None, "auto") else str(memory).strip()
    if size is not None and bytes_of(size, -1) < 0:
        raise errors.InvalidArgument(
            f"memory is {memory!r}: give a size such as '8GiB', or a number of bytes"
        )
    return Wanted(text, size)


def key_of(place: RankPlacement, job: Optional[str]) -> str:
    """Name what processes have in common that share a private daemon: the launch (also where the
    loader was given another rank), the job that the program names, or the process.
    """
    launched = (place.launch or place).job
    if launched is not None:
        # torchrun's name of a group that it started again ends so; that of a first one does not.
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        is_restarted = restarts != "0" and bool(os.environ.get("TORCHELASTIC_RUN_ID"))
        return launched.removesuffix(f".{restarts}") if is_restarted else launched
    return job or process_key()


def split_cpus(usable: int, ranks: int, neighbours: int) -> int:
    """Return how many workers a daemon gets: one CPU is left to each local rank, but never more
    than half of them; beside other private daemons it takes an equal share of that.
    """
    count = max(1, usable - ranks, (usable + 1) // 2)
    return max(1, count // (neighbours + 1))


def split_memory(usable: int, neighbours: list[str]) -> int:
    """Return how many bytes a daemon gets: half of what its neighbours leave of what private
    daemons may have together, so that their sum stays below the machine.

    Parameters
    ----------
    usable : int
        What the machine has.
    neighbours : list of str
        `memory` of the others, as their configurations say.
    """
    together = usable * _MEMORY_SHARE
    left = together - sum(bytes_of(text, together) for text in neighbours)
    return int(max(left / 2, together * _LEAST_SHARE))


class _History:
    """What this process knows of the daemon in a folder, over its loaders and over crashes."""

    def __init__(self) -> None:
        self.slot: Optional[str] = None  # its state folder
        self.is_lost = False  # it died, and is to be started again
        self.restarts: list[float] = []  # when
        self.told: set[str] = set()  # the others that the program knows of


_histories: dict[str, _History] = {}


class PrivateDaemon:
    """The private daemon of a job, as one loader uses it.

    Parameters
    ----------
    folder : str
        Its runtime directory.
    wanted : Wanted, optional
        What it is started with; None: it is not this program's to start, as the program named it.
    about : str
        The job, for others to read.
    """

    def __init__(self, folder: str, wanted: Optional[Wanted], about: str = "") -> None:
        self.address = folder
        self._wanted = wanted
        self._about = about
        self._lifeline = lifeline_of(folder)
        self._history = _histories.setdefault(folder, _History())
        self._hold = self._lifeline.hold()
        runs_already = self._lifeline.is_joined()
        self.ensure()
        if runs_already and wanted is not None:
            self._check_same(wanted)

    def release(self) -> None:
        """Let the daemon end, if this was its last loader. May be called again."""
        self._hold.release()

    def ensure(self) -> None:
        """Join the daemon where this process does not hold on to one that is there; start it where
        there is none.

        Raises
        ------
        Error
            It cannot be started.
        """
        if self._lifeline.is_joined():
            return
        if self._wanted is None:
            end = open_end(self.address)
            if end is not None:
                self._lifeline.take(end)
            return
        history = self._history
        history.is_lost = history.is_lost or self._lifeline.is_lost()
        try:
            there = False
            while not there:
                with StartLock(os.path.dirname(self.address)) as lock:
                    there = self._join_or_start(lock, self._wanted, history.is_lost)
        except errors.Error:  # some of which are OSErrors, too
            raise
        except OSError as error:
            raise explain(error, self.address) from None
        self._lifeline.is_own = True
        history.is_lost = False
        history.slot = read_config(self.address)[1].get("state_dir")

    def _join_or_start(self, lock: StartLock, wanted: Wanted, again: bool) -> bool:
        deadline = time.monotonic() + _END_S
        ending: Optional[int] = None
        while True:
            end = open_end(self.address)
            if end is not None:
                self._lifeline.take(end)
                self._check_same(wanted)
                return True
            if not has_daemon(self.address) or put_aside(self.address):
                break
            ending = pid_of(self.address) or ending
            if time.monotonic() > deadline:
                raise errors.DaemonLost(
                    f"the private daemon in {self.address} (pid {pid_of(self.address)}) has been "
                    f"ending for {_END_S:g} s"
                )
            time.sleep(_LOOK_S)  # it ends
        _wait_for_end(ending)  # so that its state folder is free
        if again:
            self._count_restart()
        remove(self.address)
        program = find_program()
        others = lock.others(self.address)
        if not lock.make(self.address):
            return False
        try:
            slot = StateSlot(self._history.slot if again else None)
            try:
                self._start(program, slot, wanted, others, again)
            finally:
                slot.close()
        except BaseException:
            self._give_up()
            raise
        self._tell(slot, others, again)
        return True

    def _count_restart(self) -> None:
        now, history = time.monotonic(), self._history
        history.restarts = [at for at in history.restarts if now - at < _RESTARTS_S]
        if len(history.restarts) >= _RESTARTS:
            log = os.path.join(history.slot or "", LOG)
            raise errors.DaemonLost(
                f"the private daemon of this job ended {_RESTARTS} times within {_RESTARTS_S:g} s, "
                f"and is not started again so soon; its log, {log}, says why"
            )
        history.restarts.append(now)

    def _start(
        self, program: str, slot: StateSlot, wanted: Wanted, others: list[str], again: bool
    ) -> None:
        fifo = os.path.join(self.address, FIFO)
        config, config_fd = write_config(
            self.address,
            {"job": self._about, "program": sys.argv[0], "pid": os.getpid()},
            self._config(slot, wanted, others),
        )
        reader = -1
        end: Optional[int] = None
        try:
            reader = open_kept(fifo, os.O_RDONLY | os.O_NONBLOCK)
            end = open_end(self.address)
            assert end is not None
            environment = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED_ON}
            with open(slot.log, "ab" if again else "wb") as log:
                process = subprocess.Popen(
                    [program, "--config", config, "--lifeline", fifo, "--background"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=environment,
                    pass_fds=(slot.fd, config_fd),
                    start_new_session=True,
                )
            self._wait(process, slot.log, wanted)
            # Not before: other threads of this process wait for the start, too.
            self._lifeline.take(end)
            end = None
        finally:
            close(reader)
            close(config_fd)
            if end is not None:
                close(end)

    def _wait(self, process: subprocess.Popen, log: str, wanted: Wanted) -> None:
        """Wait until it serves."""
        try:
            status = process.wait(_START_S)
        except subprocess.TimeoutExpired:
            raise errors.DaemonLost(
                f"a private daemon did not serve within {_START_S:g} s; its log is {log}"
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        # Where the program ignores SIGCHLD, the status says nothing.
        if status != 0 or not listens(self.address):
            last = _last_lines(log)
            refused = _REFUSED.search(last)
            if refused is not None:
                about = _in_words_of_arguments(refused[1], refused[2], wanted)
                raise errors.InvalidArgument(f"a private daemon did not start: {about}")
            kind = errors.InvalidArgument if status == _BAD_CONFIG else errors.DaemonLost
            raise kind(f"a private daemon did not start: {last or 'it said nothing'} (log: {log})")

    def _give_up(self) -> None:
        """Leave nothing of a daemon that did not start, or not in time."""
        self._lifeline.drop()
        deadline = time.monotonic() + _END_S
        while has_daemon(self.address) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if not has_daemon(self.address):
            remove(self.address)

    def _config(self, slot: StateSlot, wanted: Wanted, others: list[str]) -> dict[str, Any]:
        cpus = wanted.cpus or str(split_cpus(usable_cpus(), wanted.local_ranks, len(others)))
        memory = wanted.memory
        if memory is None:
            taken = [str(read_config(other)[1].get("memory", "auto")) for other in others]
            memory = str(split_memory(usable_memory(), taken))
        return {
            "version": 1,
            "runtime_dir": self.address,
            "state_dir": slot.path,
            "pipelines": [],
            "roots": {},
            "absolute_roots": True,
            "cpus": cpus,
            # Trainers and other daemons use the same CPUs: the kernel chooses.
            "pin_cpus": "-" in cpus or "," in cpus,
            "memory": memory,
            "numa_node": "none",
        }

    def _check_same(self, wanted: Wanted) -> None:
        """Tell once of an argument that comes too late."""
        config = read_config(self.address)[1]
        for name, value in (("cpus", wanted.cpus), ("memory", wanted.memory)):
            argument = f"{name}={value}"
            is_same = value is None or _plain(value) == _plain(str(config.get(name, value)))
            if is_same or argument in self._history.told:
                continue
            self._history.told.add(argument)
            _log.warning(
                "%s has no effect: this job's private daemon (pid %s) runs already, with %s=%s, "
                "as the first loader of the job has it. Cure: say it there, or close all loaders "
                "of the job before",
                argument,
                pid_of(self.address),
                name,
                config[name],
            )

    # --- what a person is told --------------------------------------------------------------------

    def _tell(self, slot: StateSlot, others: list[str], again: bool) -> None:
        pid = pid_of(self.address)
        if again:
            _log.warning(
                "the private daemon of this job was gone: started again (pid %s); its log, with "
                "the reason, is %s",
                pid,
                slot.log,
            )
            return
        usable = usable_cpus()
        cpus, memory = usable, 0
        with contextlib.suppress(errors.Error), Control(self.address) as control:
            status = control.call("GetStatus", messages.GetStatusRequest(), _ANSWER_S)
            cpus, memory = len(status.cpus), status.memory_limit_bytes
        self._history.told.update(others)
        _log.warning(
            "started a private feedwaterd (pid %s, log %s): it takes %d of %s and up to %.1f GiB "
            "of memory; cpus=, memory=, daemon= change that: help(feedwater.Loader)%s",
            pid,
            slot.log,
            cpus,
            count_of(usable, "CPU"),
            memory / (1 << 30),
            "".join(f". Beside it runs {_describe(other)}" for other in others),
        )

    def look_around(self) -> None:
        """Tell of other private daemons of this user that were started meanwhile."""
        if self._wanted is None:
            return
        for other in all_private():
            if other != self.address and other not in self._history.told and has_daemon(other):
                self._history.told.add(other)
                _log.warning("beside this job's private daemon now runs %s", _describe(other))


def _describe(folder: str) -> str:
    """Describe another private daemon, and how to share it."""
    about, config = read_config(folder)
    return (
        f"another one of this user's, of job {about.get('job', '?')} (pid {pid_of(folder)}, cpus "
        f"{config.get('cpus', '?')}): whichever comes later takes a smaller share of the CPUs and "
        f"of the memory. To share that one, start this program with FEEDWATER_ADDRESS={folder}"
    )


def _wait_for_end(pid: Optional[int]) -> None:
    deadline = time.monotonic() + _GONE_S
    while pid is not None and time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except (OSError, IndexError):
            return
        time.sleep(_LOOK_S)


def _plain(text: str) -> str:
    """Return ``cpus`` or ``memory`` so that what means the same is the same."""
    size, words = bytes_of(text, -1), re.sub(r"\s", "", text)
    if size < 0 and re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", words):
        return str(sorted(cpu_list(words)))
    return words if size < 0 else str(size)


def _in_words_of_arguments(name: str, why: str, wanted: Wanted) -> str:
    """Return what is wrong with a line of the configuration, which the user has not written."""
    value = getattr(wanted, name)
    if value is None:
        return f"{name}: {why} (of a private daemon; {name}= says another one)"
    return f"{name}={value}: {why}. Cure: another {name}=, or leave it out"


def _last_lines(log: str) -> str:
    try:
        with open(log, "rb") as file:
            lines = file.read()[-_SHOWN_LOG:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " | ".join(lines[-3:])


def running(place: RankPlacement, job: Optional[str]) -> Optional[str]:
    """Return the folder of the private daemon that this process or another one of its job has."""
    held = own_lifeline()
    if held is not None:
        return held.folder
    name = name_of(key_of(place, job))
    return next(
        (path for path in all_private() if os.path.basename(path) == name and has_daemon(path)),
        None,
    )


def start_or_join(place: RankPlacement, job: Optional[str], wanted: Wanted) -> PrivateDaemon:
    """Return the private daemon of this process's job."""
    wanted = Wanted(wanted.cpus, wanted.memory, local_ranks(place))
    key = key_of(place, job)
    folder = running(place, job)
    if folder is None:
        with StartLock() as lock:
            folder = os.path.join(lock.private, name_of(key))
    return PrivateDaemon(folder, wanted, key)
