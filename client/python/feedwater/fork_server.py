"""`ForkServer`: a process that imports what a user's code needs, once, and forks the processes that
run it.

It is started afresh, so nothing of the program is in it: no threads, no GPU, no locks. It runs none
of the user's code but the imports. Whatever ends the program ends it, and with it the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from multiprocessing import process, spawn
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, Optional, Union

from . import errors
from .descriptors import forget
from .own_code import failure_text
from .own_files import MAINS
from .passing import pipe, receive_socket, send_socket
from .pickled import Pickled
from .provider_process import run

_START_S = 300.0  # in which the user's modules are imported
_ANSWER_S = 30.0
_END_S = 5.0
_LOOK_S = 0.005
_PR_SET_PDEATHSIG = 1
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PROGRAM = (
    "import sys; sys.path.insert(0, {!r}); from feedwater.fork_server import main; main({}, {})"
)
# The processes are what runs in parallel; and sets of texts have the same order in all of them.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}

is_here = False  # this process is one: its main module is imported, not run


class Gone(Exception):
    """The fork server has ended, or does not answer."""


class Forked:
    """A process that was forked, as the program sees it."""

    def __init__(self, pid: int, control: Connection) -> None:
        self.pid = pid
        self.control = control


class ForkServer:
    """See the module.

    Parameters
    ----------
    own : Pickled
        What the processes get.
    limit : float
        Seconds in which a process unpickles it.

    Attributes
    ----------
    imported : set of str
        Files of the user's code that every process has as it was imported here, once `wait` has
        returned.

    Raises
    ------
    OSError
        There is no room for another process, or for its connection.
    """

    def __init__(self, own: Pickled, limit: float) -> None:
        preparation = _preparation(own)
        self.imported: set[str] = set()
        mine, its = pipe()
        self.control = mine
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    "-c",
                    _PROGRAM.format(_PACKAGES, its.fileno(), os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **os.environ},
                pass_fds=(its.fileno(), own.fd),
                start_new_session=True,  # what the user's code starts ends with it
            )
        except BaseException:
            forget(mine)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            forget(its)
        try:
            # The path of modules comes first: what follows may need it.
            self.control.send(preparation)
            self.control.send((own.fd, own.pieces, limit))
        except OSError:
            pass  # it has ended, which `wait` tells

    def wait(self, over: Connection) -> bool:
        """Wait until it has imported everything; False: `over` said first that nobody wants it.

        Raises
        ------
        InvalidArgument
            It cannot; the text says why.
        """
        ready = wait([self.control, over], _START_S)
        if over in ready:
            return False
        if not ready:
            raise errors.FailedPrecondition(
                f"a process for the user's own code did not start within {_START_S:g} s"
            )
        try:
            trouble, self.imported = self.control.recv()
        except (EOFError, OSError):
            status = self._process.wait(_END_S)
            raise errors.FailedPrecondition(
                f"a process for the user's own code ended as it started ({ending(status)}): see "
                "what it wrote on stderr"
            ) from None
        if trouble is not None:
            raise errors.InvalidArgument(trouble)
        return True

    def fork(self) -> Forked:
        """Fork a process.

        Raises
        ------
        Gone
            This server has ended.
        OSError
            There is no room for another process, or for its connection.
        """
        mine, its = pipe()
        try:
            pid = self._ask("fork", its.fileno())
            if isinstance(pid, str):
                raise OSError(pid)
        except BaseException:
            forget(mine)
            raise
        finally:
            forget(its)
        return Forked(pid, mine)

    def end_of(self, forked: Forked) -> int:
        """Return the exit status of a process that has ended, or that is ended here; a signal is
        negative.

        Raises
        ------
        Gone
            This server has ended.
        """
        forget(forked.control)
        status: int = self._ask(forked.pid)
        return status

    def _ask(self, wish: Union[str, int], fd: Optional[int] = None) -> Any:
        try:
            self.control.send(wish)
            if fd is not None:
                send_socket(self.control, fd)
            if not self.control.poll(_ANSWER_S):
                self._process.kill()
                raise Gone
            return self.control.recv()
        except (EOFError, OSError):
            raise Gone from None

    def close(self) -> None:
        """End it and all that was started below it. Returns when they are gone."""
        forget(self.control)
        deadline = time.monotonic() + _END_S
        pid, ended = self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(ChildProcessError):  # the program waits for all its children
            while os.waitid(os.P_PID, pid, ended) is None and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # it is not waited for: the number is still its own
        self._process.wait()


def ending(status: Optional[int]) -> str:
    """Return an exit status for people."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _preparation(own: Pickled) -> dict[str, Any]:
    """Return what makes another process import as this one does."""
    # multiprocessing's own would settle the program's start method.
    start: Optional[str] = process.ORIGINAL_DIR  # type: ignore[attr-defined]
    made: dict[str, Any] = {
        "name": "feedwater",
        "sys_path": [path or start or "" for path in sys.path],
        "sys_argv": sys.argv,
        "orig_dir": start,
        "modules": [name for name in own.modules if name not in MAINS],
        "files": list(own.files),
    }
    with contextlib.suppress(FileNotFoundError):  # it was removed; a process begins where this is
        made["dir"] = os.getcwd()
    method = multiprocessing.get_start_method(allow_none=True)
    if method is not None:
        made["start_method"] = method
    if own.needs_main:  # else the program need not guard its main module
        main_module = sys.modules["__main__"]
        name = getattr(main_module.__spec__, "name", None)
        path = getattr(main_module, "__file__", None)
        if name is not None:
            made["init_main_from_name"] = name
        elif path is not None:
            made["init_main_from_path"] = os.path.normpath(os.path.join(start or "", path))
    return made


# --- the process ----------------------------------------------------------------------------------


def main(fd: int, program: int) -> NoReturn:
    """Be the fork server of the program at the other end of a connection."""
    global is_here
    _die_with(program)  # while it imports, it does not look at the connection
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    is_here = True
    control = Connection(fd)
    os.set_inheritable(fd, False)
    try:
        about = control.recv()
        files = about.pop("files")
        trouble = _prepare(about)
        memory, pieces, limit = control.recv()
        os.set_inheritable(memory, False)
        control.send((trouble, _imported(files)))
    except (EOFError, OSError):
        _end()
    _set_death_signal(0)
    gc.collect()
    gc.freeze()  # collections would copy the pages that the processes share
    _serve(control, memory, pieces, limit)


def _set_death_signal(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _die_with(parent: int) -> None:
    """Let this process end with the one that started it, which may have ended already."""
    _set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end() -> NoReturn:
    """End this server, and what the user's code has started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _prepare(about: dict[str, Any]) -> Optional[str]:
    """Import; return what is wrong."""
    modules = about.pop("modules")
    try:
        spawn.prepare(about)
    except BaseException as error:  # of the user's main module
        if isinstance(error, errors.Error) and error.code == _Unguarded.code:
            return str(error)
        return "another process cannot import the program's main module: " + failure_text(error)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # unpickling tells
            continue
    return None


def _imported(files: list[str]) -> set[str]:
    """Return which of these files are those of modules that are imported."""
    found = set()
    for module in list(sys.modules.values()):
        with contextlib.suppress(Exception):  # what the user's code has put there
            found.add(os.path.abspath(module.__file__ or ""))
    return {file for file in files if os.path.abspath(file) in found}


def _serve(
    control: Connection, memory: int, pieces: list[tuple[int, int]], limit: float
) -> NoReturn:
    children: set[int] = set()
    try:
        while True:
            wish = control.recv()
            if wish == "fork":
                its = receive_socket(control)
                try:
                    pid = _fork(control, its, memory, pieces, limit)
                except OSError as error:
                    control.send(str(error))
                else:
                    children.add(pid)
                    control.send(pid)
                finally:
                    os.close(its)
            else:
                children.discard(wish)
                control.send(_reap(wish))
    except (EOFError, OSError):
        pass
    for child in children:
        _reap(child, 0)
    _end()


def _fork(
    control: Connection, its: int, memory: int, pieces: list[tuple[int, int]], limit: float
) -> int:
    server = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: NumPy's stand still
        pid = os.fork()
    if pid == 0:
        try:
            _die_with(server)
            control.close()
            run(Connection(its), memory, pieces, limit)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _reap(pid: int, patience: float = _END_S) -> int:
    """Return a child's exit status; one that does not end is killed."""
    deadline = time.monotonic() + patience
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(_LOOK_S)


class _Unguarded(errors.FailedPrecondition):
    """Another process imports the main module, and that serves again."""

    code = "UNGUARDED"


def check_guarded() -> None:
    """Refuse to serve where the main module is imported by a fork server."""
    if is_here:
        raise _Unguarded(
            "the program serves its own code whenever its main module is imported, and the "
            "processes that run that code import it. Cure: put what the program does below\n\n"
            "    if __name__ == '__main__':\n\n"
            "and leave classes and functions above"
        )
