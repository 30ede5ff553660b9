"""`Supervisor`: what a user's own program provides, as long as it does.

The processes that serve it, their connections to the daemon, and what happens when one of either
ends.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Optional

from . import errors
from .control import messages
from .descriptors import close, forget
from .fork_server import ForkServer, Gone, ending
from .offer import Offer
from .own_code import Described
from .own_stream import Share
from .passing import pipe, receive_with, send_socket
from .pickled import Pickled
from .provider_process import Service
from .sample_values import DTYPES
from .serving_process import LONGEST_PAUSE_S, ServingProcess, pause_before
from .session import Session
from .version import __version__

_log = logging.getLogger("feedwater")

_CALL_S = 10.0
_SERVES_S = 5.0  # in which a daemon that is just being started serves
_UNPICKLES_S = 300.0  # in which a process unpickles what it is to serve
_NOTICES_S = 5.0  # in which a process notices that the daemon has given its connection up
_DEATHS = 5  # of processes, one after the other, in which nothing was made
_MESSAGE_S = 10.0  # in which the rest of a process's message comes
_WORDS = 2000  # of last words that an error has
_FILES = 5  # of changed ones that an error names


class Supervisor:
    """See the module. Its thread does everything.

    Parameters
    ----------
    offer : Offer
    own : Pickled
        The dataset or the function. It is closed in the end.
    address : str
        The daemon's runtime directory.
    ensure : callable
        Starts the daemon where it is to be started; called before each connection.
    """

    def __init__(
        self, offer: Offer, own: Pickled, address: str, ensure: Callable[[], object]
    ) -> None:
        self.offer = offer
        self.address = address
        self.described: Optional[Described] = None
        self._own = own
        self._ensure = ensure
        self._server: Optional[ForkServer] = None
        self._processes: list[ServingProcess] = []
        # One after the other; of an iterable dataset by the worker's number, which no other one's
        # process can stand in for.
        self._deaths: dict[Optional[int], int] = {}
        self._connected: set[int] = set()  # numbers of processes
        self._fork_at = 0.0
        self._is_short = False  # of descriptors or processes
        self._is_told = False  # that the daemon is away
        self._told: list[str] = []  # files that changed, and whose version answers for that
        self._refusal: Optional[str] = None  # why the last process could not connect
        self._began: Optional[float] = None  # to connect
        self._pid = os.getpid()
        self._serves = threading.Event()  # or never will
        self._error: Optional[errors.Error] = None
        self._woken, self._waker = pipe(duplex=False)
        self._waker_use = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="feedwater-provider", daemon=True)

    def start(self) -> None:
        """Return when the first process serves; of an iterable dataset, when each one has.

        Raises
        ------
        Error
            None ever will.
        """
        try:
            self._start_thread()
            self._serves.wait()
            if self._error is not None:
                raise copy.copy(self._error)
        except BaseException:
            self.close()
            raise

    def _start_thread(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            forget(self._woken)  # as the thread would in its end
            close(self._own.fd)
            raise errors.ResourceExhausted(f"{self.offer.what}: {error}") from None

    def close(self) -> None:
        """End the processes. Returns when they are gone. May be called again."""
        if os.getpid() != self._pid:
            return  # a forked child's copy
        self._forget_waker()
        if self._thread.ident is not None:
            self._thread.join()

    def end_soon(self) -> None:
        """Let the thread end the processes. Waits for nothing: a finalizer may run in any thread,
        and below any lock that the thread needs.
        """
        if os.getpid() != self._pid or not self._waker_use.acquire(blocking=False):
            return
        try:
            if not self._waker.closed:
                os.write(self._waker.fileno(), b"e")
        finally:
            self._waker_use.release()

    def _forget_waker(self) -> None:
        with self._waker_use:
            forget(self._waker)

    @property
    def error(self) -> Optional[errors.Error]:
        """Why nothing is provided any more, in a copy of the caller's own; None: it is, or was
        closed.
        """
        return copy.copy(self._error)

    @property
    def refusal(self) -> Optional[str]:
        """Why the daemon did not let a process serve just now; None: it did."""
        return self._refusal

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            is_wanted = self._begin()
            self._check_code()
            while is_wanted:
                try:
                    is_wanted = self._step()
                except Gone:
                    is_wanted = self._renew()
        except errors.Error as error:
            self._give_up(error)
        except Exception as error:
            _log.exception("providing %s failed", self.offer.what)
            self._give_up(errors.Error(f"{type(error).__name__}: {error}"))
        finally:
            self._end_all()
            forget(self._woken)
            self._forget_waker()
            close(self._own.fd)
            self._serves.set()

    def _give_up(self, error: errors.Error) -> None:
        if self._serves.is_set():
            _log.error("%s is provided no longer: %s", self.offer.what, str(error))
        # One that is kept and raised keeps the frames of whoever it was raised to, and what they
        # hold: this one never is.
        self._error = copy.copy(error)

    def _step(self) -> bool:
        """Do what is due, and wait for what comes next; False: it is over."""
        now = time.monotonic()
        assert self._server is not None
        wanted = 1 if self.described is None and not self.offer.is_op else self.offer.workers
        while len(self._processes) < wanted and now >= self._fork_at:
            self._fork()
        for process in [one for one in self._processes if one.state == "idle"]:
            if now >= process.again_at:
                self._connect(process)
        for process in [one for one in self._processes if one.leave_by is not None]:
            self._hurry(process, now)
        due = [one.again_at for one in self._processes if one.state == "idle"]
        due += [one.leave_by for one in self._processes if one.leave_by is not None]
        if len(self._processes) < wanted:
            due.append(self._fork_at)
        return self._wait(min(due) if due else None)

    def _fork(self) -> None:
        assert self._server is not None
        self._check_code(self._server.imported)  # a process imports the rest when it comes to it
        try:
            taken = {process.number for process in self._processes}
            number = next(one for one in range(self.offer.workers) if one not in taken)
            self._processes.append(ServingProcess(self._server.fork(), number))
            self._is_short = False
        except OSError as error:
            text = f"{self.offer.what}: a process cannot be started: {error}"
            if not self._serves.is_set():
                raise errors.ResourceExhausted(text) from None
            if not self._is_short:
                _log.warning("%s; it is tried again", text)
            self._is_short = True
            self._fork_at = time.monotonic() + LONGEST_PAUSE_S

    def _wait(self, until: Optional[float]) -> bool:
        """Wait for what comes, and do what it asks for; False: it is over."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        by_fd = {}
        for process in self._processes:
            by_fd[process.control.fileno()] = process
            poll.register(process.control, select.POLLIN)
            if process.data is not None:
                by_fd[process.data.fileno()] = process
                poll.register(process.data, 0)  # its end, and nothing that comes
        left = None if until is None else max(0.0, until - time.monotonic()) * 1000
        for fd, _ in poll.poll(left):
            if fd not in by_fd:
                return False
            process = by_fd[fd]
            if process not in self._processes:
                continue
            if fd == process.control.fileno():
                self._hear(process)
            elif process.data is not None:  # else the process has said so, just now
                process.disconnect()
                process.leave_by = time.monotonic() + _NOTICES_S
        return True

    def _hurry(self, process: ServingProcess, now: float) -> None:
        """End a process that does not notice that its connection has ended."""
        assert process.leave_by is not None
        if now >= process.leave_by:
            process.leave_by = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.forked.pid, signal.SIGKILL)  # its end is heard next

    def _hear(self, process: ServingProcess) -> None:
        try:
            (word, content), fd = receive_with(process.control, _MESSAGE_S)
        except EOFError:
            self._bury(process)
            return
        except OSError:  # it is broken, or stopped
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.forked.pid, signal.SIGKILL)
            self._bury(process)
            return
        if word == "failed":
            if not self._serves.is_set():
                raise errors.InvalidArgument(f"{self._cannot_be_served}: {content}")
            _log.warning("a process of %s cannot take its place: %s", self.offer.what, content)
        elif word == "ready" and not self.offer.is_op and self.described is None:
            process.state, process.since = "describing", time.monotonic()
            share = self.offer.share_of(process.number)
            self._tell(process, ("describe", (self.offer.fields, self.offer.timeout, share)))
        elif word == "step":
            process.step, process.since = content, time.monotonic()
        elif word in ("ready", "described"):
            if content is not None:
                self.described = content
                if content.warning:
                    _log.warning("%s: %s", self.offer.what, content.warning)
            process.state = "idle"
        elif word == "answered":
            process.has_answered = process.has_made = True
            process.attempts = 0
            self._deaths.pop(self._worker_of(process), None)
            self._deaths.pop(None, None)
        elif word == "region":
            process.share(fd)  # None: there was no room for it
        elif word == "told":
            _log.warning("%s: %s", self.offer.what, content)
        elif word == "lost":
            process.share(None)
            _log.debug("%s: process %d: %s", self.offer.what, process.forked.pid, content)
            process.disconnect()
            process.state, process.leave_by = "idle", None
            if not process.has_answered:
                process.pause()
            process.has_answered = False

    def _tell(self, process: ServingProcess, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended, which is heard next
            process.control.send(message)

    # --- connections ------------------------------------------------------------------------------

    def _connect(self, process: ServingProcess) -> None:
        if self._began is None:
            self._began = time.monotonic()
        try:
            self._ensure()
            share = self.offer.share_of(process.number)
            sock = self._provide(share)
        except (errors.Error, OSError) as error:
            is_away = isinstance(error, errors.DaemonLost)
            is_new = not self._serves.is_set()
            if is_new and (not is_away or time.monotonic() - self._began > _SERVES_S):
                raise
            process.pause()
            self._refusal = str(error)
            if not is_new and not self._is_told and process.attempts > 4:
                self._is_told = True
                _log.warning(
                    "%s is not served at the moment, and will be as soon as the daemon takes it: "
                    "%s",
                    self.offer.what,
                    self._refusal,
                )
            return
        process.data = sock
        described = self.described
        plan = None if described is None else described.plan
        try:
            service = Service(plan, self.offer.timeout, self.offer.seeded, share)
            process.control.send(("serve", service))
            send_socket(process.control, sock.fileno())
        except OSError:
            self._bury(process)
            return
        process.state = "serving"
        if self._is_told:
            self._is_told = False
            _log.warning("%s is served again", self.offer.what)
        self._began = self._refusal = None
        self._connected.add(process.number)
        if share is None or len(self._connected) == self.offer.workers:
            self._serves.set()

    def _provide(self, share: Optional[Share]) -> socket.socket:
        request = self._request()
        if share is not None:
            request.source.workers, request.source.worker = share.workers, share.worker
        sock, response = Session.provide(self.address, request, _CALL_S)
        if share is not None and response.workers != share.workers:
            forget(sock)
            raise errors.FailedPrecondition(
                f"{self.offer.what} is an iterable dataset, of which the daemon at {self.address} "
                f"knows nothing: it is feedwaterd {response.daemon_version}. Cure: start one as "
                f"new as this package, {__version__}"
            )
        return sock

    def _request(self) -> Any:
        offer = self.offer
        request = messages.ProvideRequest(
            client=f"python {__version__}",
            name=offer.name,
            version=offer.version,
            timeout_s=offer.timeout,
            contents=self._own.digest,
        )
        if offer.is_op:
            request.op.SetInParent()
            return request
        described = self.described
        assert described is not None
        request.source.records = described.records
        request.source.classes.extend(described.classes)
        for one in described.plan.fields:
            request.source.fields.add(
                name=one.name, dtype=DTYPES[one.dtype], shape=one.shape, layout=one.layout
            )
        return request

    # --- ends -------------------------------------------------------------------------------------

    def _bury(self, process: ServingProcess) -> None:
        """Let another process take the place of one that ended, unless all end."""
        assert self._server is not None
        process.disconnect()  # first: the daemon waits for the last copy's end
        status = self._server.end_of(process.forked)  # Gone: all of them are let go
        self._processes.remove(process)
        how = ending(status)
        words = process.last_words()
        process.share(None)
        if words.startswith("Timeout ("):
            how += f": it took longer than timeout={self.offer.timeout:g}"
        words = f"; it left: {words[:_WORDS]}" if words else ""
        offer = self.offer
        if not self._serves.is_set() and process.state in ("starting", "describing"):
            raise errors.InvalidArgument(self._why_none(process, status))
        worker = self._worker_of(process)
        others_work = worker is None and any(one.has_made for one in self._processes)
        deaths = self._deaths.get(worker, 0)
        if not process.has_made:
            deaths = self._deaths[worker] = deaths + 1
            self._fork_at = time.monotonic() + pause_before(deaths)
        if deaths > _DEATHS and not others_work:
            share = offer.share_of(process.number)
            of = "" if share is None else f"of worker {share.worker} "
            raise errors.FailedPrecondition(
                f"{offer.what}: {deaths} processes {of}ended one after the other, and made "
                f"nothing; the last one: {how}{words or '. What it wrote on stderr says why'}"
            )
        tell = _log.warning if process.has_made or deaths == 1 else _log.debug
        tell(
            "process %d of %s ended (%s); another one takes its place, and what it was at is tried "
            "once more",
            process.forked.pid,
            offer.what,
            how,
        )

    def _worker_of(self, process: ServingProcess) -> Optional[int]:
        return None if self.offer.length is None else process.number

    @property
    def _cannot_be_served(self) -> str:
        kind = "function" if self.offer.is_op else "dataset"
        return f"{self.offer.what}: the {kind} cannot be served"

    def _why_none(self, process: ServingProcess, status: int) -> str:
        """Return why nothing is served: a process ended before one served."""
        what, limit = "unpickled it", f"{_UNPICKLES_S:g} s"
        seconds = _UNPICKLES_S
        if process.state == "describing":
            seconds = self.offer.timeout
            what = f"made {process.step}"
            limit = f"timeout={seconds:g}. Cure: a larger timeout=, or find out where it waits"
        # It ends itself with status 1 then, by its own clock; code that does the same is quicker.
        is_late = status == 1 and time.monotonic() - process.since >= seconds / 2
        return f"{self._cannot_be_served}: a process ended ({ending(status)}) while it {what}" + (
            f", which took longer than {limit}" if is_late else ""
        )

    def _begin(self) -> bool:
        self._server = ForkServer(self._own, _UNPICKLES_S)
        return self._server.wait(self._woken)

    def _check_code(self, imported: Collection[str] = ()) -> None:
        """Refuse to run other code than the daemon was told of: what has just been imported from
        its files, or will be, may have been edited since they were looked at.
        """
        changed = self._own.changed_files(imported)
        if not changed or changed == self._told:
            return
        files = ", ".join(changed[:_FILES]) + (", ..." if len(changed) > _FILES else "")
        if not self.offer.version:
            raise errors.FailedPrecondition(
                f"{self.offer.what}: {files} changed since it was given to be served, and "
                "processes that had to be started after that would run the new code in the midst "
                "of an epoch. Cure: start the program again; where such an edit changes no sample, "
                "say version=, which answers for the code"
            )
        self._told = changed
        _log.warning(
            "%s: %s changed, and processes that had to be started again run the code as it is now: "
            "version=%r says that it makes the same",
            self.offer.what,
            files,
            self.offer.version,
        )

    def _end_all(self) -> None:
        for process in self._processes:
            process.let_go()
        self._processes.clear()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _renew(self) -> bool:
        """Begin anew: the fork server has ended, and all processes with it."""
        why, is_short = "it was ended", False  # the error's text: itself would keep this frame
        while True:
            self._end_all()
            if not is_short:  # else there will be room again
                self._deaths[None] = self._deaths.get(None, 0) + 1
            if self._deaths.get(None, 0) > _DEATHS:
                raise errors.FailedPrecondition(
                    f"the process that starts processes cannot be kept: {why}"
                )
            if self._woken.poll(pause_before(self._deaths.get(None, 0))):
                return False
            try:
                is_wanted = self._begin()
            except (OSError, errors.Error) as error:
                if not self._serves.is_set():
                    raise
                why, is_short = str(error), isinstance(error, OSError)
                _log.warning("%s: a process cannot be started: %s", self.offer.what, why)
            else:
                self._check_code()
                return is_wanted
