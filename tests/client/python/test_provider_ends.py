"""Processes of a user's own that end, or cannot start, and what is left of them: against a fake
daemon.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import own_datasets as own
import pytest
from fake_asker import MADE
from own_processes import PATIENCE_S, is_alive, processes_of, wait_for
from own_programs import MINE, run

import feedwater
from feedwater import descriptors, errors, fork_server, pickled, provider, serving_process
from feedwater.descriptors import no_fork
from feedwater.session import Session

GUARDED = MINE + "if __name__ == '__main__': main()\n"


@pytest.fixture
def hurried(monkeypatch):
    """Make pauses short."""
    monkeypatch.setattr(serving_process, "_PAUSE_S", 0.001)
    for module in (serving_process, provider):
        monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.02)


def end(asker, record: int = 7) -> None:
    with pytest.raises((EOFError, ConnectionError)):
        asker.get(record)


def is_answered(asker) -> bool:
    try:
        return asker.get(2)[0].code == MADE
    except (EOFError, ConnectionError):
        return False


def kill_workers() -> None:
    for pid in processes_of(os.getpid())[1:]:
        os.kill(pid, signal.SIGKILL)


def test_a_daemon_has_its_time_to_start_after_the_imports(serve, monkeypatch):
    real, attempts = Session.provide, []

    def provide(*arguments):
        attempts.append(arguments)
        if len(attempts) == 1:
            raise errors.DaemonLost("not yet")
        return real(*arguments)

    monkeypatch.setattr(Session, "provide", provide)
    monkeypatch.setattr(provider, "_SERVES_S", 0.02)  # less than it takes to start a process
    assert serve(own.Numbers()).get(1)[0].code == MADE


# --- one process among others ---------------------------------------------------------------------


def test_where_others_work_a_process_that_ends_is_replaced_again_and_again(
    serve, daemon, tmp_path, hurried
):
    serve(own.Wicked(str(tmp_path), r7="leave"), workers=2)
    wait_for(lambda: len(daemon.askers) == 2)
    assert daemon.askers[0].get(1)[0].code == MADE
    for number in range(1, 10):
        wait_for(lambda: len(daemon.askers) > number)  # noqa: B023
        end(daemon.askers[number])
    assert serve.served[0].is_open
    assert daemon.askers[0].get(2)[0].code == MADE


def test_a_process_that_has_made_something_may_end_as_often_as_it_likes(
    serve, daemon, tmp_path, hurried
):
    serve(own.Wicked(str(tmp_path), r7="leave"))
    for number in range(8):
        wait_for(lambda: len(daemon.askers) > number)  # noqa: B023
        daemon.askers[number].get(1)
        end(daemon.askers[number])
    assert serve.served[0].is_open


def test_a_replacement_that_cannot_be_unpickled_is_tried_again(
    serve, daemon, tmp_path, hurried, monkeypatch, caplog
):
    monkeypatch.setattr(provider, "_DEATHS", 1 << 30)
    serve(own.Opened(str(tmp_path))).get(1)
    (tmp_path / "gone").touch()
    kill_workers()
    wait_for(lambda: "OSError: the archive is gone" in caplog.text)
    (tmp_path / "gone").unlink()
    wait_for(lambda: len(daemon.askers) == 2)
    assert daemon.askers[1].get(2)[0].code == MADE


def test_unpickling_has_a_limit(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(provider, "_UNPICKLES_S", 0.5)
    (tmp_path / "slow").touch()
    text = r"ended \(exit status 1\) while it unpickled it, which took longer than 0.5 s"
    with pytest.raises(errors.InvalidArgument, match=text):
        serve(own.Opened(str(tmp_path)))


def test_a_process_that_does_not_notice_the_end_of_its_connection_is_replaced(
    serve, daemon, tmp_path, monkeypatch
):
    monkeypatch.setattr(provider, "_NOTICES_S", 0.2)
    asker = serve(own.Wicked(str(tmp_path), r7="once unwatched"), timeout=1)
    asker.ask(7)
    wait_for((tmp_path / "7").exists)
    asker.hang_up()
    wait_for(lambda: len(daemon.askers) == 2)
    assert daemon.askers[1].get(7)[0].code == MADE


def test_a_loader_whose_own_dataset_is_served_no_longer_says_why(daemon, open_loader):
    class Ended:
        def check(self) -> None:
            raise errors.FailedPrecondition("6 processes ended")

        def close(self) -> None:
            pass

    loader = open_loader(daemon, reconnect_timeout=0.1)
    next(iter(loader))
    loader._served = Ended()
    daemon.stop()
    with pytest.raises(errors.FailedPrecondition, match="6 processes ended"):
        for _ in loader:
            pass


def test_the_end_of_a_connection_and_the_word_of_it_may_come_at_once(serve, daemon, monkeypatch):
    real = provider.Supervisor._wait

    def late(supervisor, until):
        time.sleep(0.1)  # both are there
        return real(supervisor, until)

    monkeypatch.setattr(provider.Supervisor, "_wait", late)
    serve(own.Numbers())
    for number in range(3):
        wait_for(lambda: len(daemon.askers) > number)  # noqa: B023
        assert daemon.askers[number].get(1)[0].code == MADE
        daemon.askers[number].hang_up()


# --- code that changes while it is served ---------------------------------------------------------


@pytest.fixture
def written(folder, monkeypatch):
    """Write modules of an op's; return how."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def write(factor: int) -> None:
        (folder / "edited_factor.py").write_text(f"FACTOR = {factor}\n")
        (folder / "edited_op.py").write_text(
            "from edited_factor import FACTOR\ndef scale(image): return image * FACTOR\n"
        )

    yield write
    for name in ("edited_op", "edited_factor"):
        sys.modules.pop(name, None)


def kill_fork_server() -> None:
    os.kill(processes_of(os.getpid())[0], signal.SIGKILL)


def test_code_that_was_edited_is_not_taken_for_the_old_code(serve, daemon, hurried, written):
    written(2)
    serve(importlib.import_module("edited_op").scale)
    served = serve.served[0]
    written(3)
    kill_workers()  # forked again from what was imported at first
    wait_for(lambda: len(daemon.askers) == 2)
    assert served.is_open
    kill_fork_server()
    wait_for(lambda: not served.is_open)
    text = r"^op 'mine': \S*/edited_factor\.py changed since it was given .*start the program again"
    with pytest.raises(errors.FailedPrecondition, match=text):
        served.check()
    assert len(daemon.askers) == 2


@pytest.fixture
def lazy(written, folder):
    """Write an op that imports its factor when it is called; return how."""

    def write(factor: int) -> None:
        written(factor)
        (folder / "edited_op.py").write_text(
            "def scale(image):\n    from edited_factor import FACTOR\n    return image * FACTOR\n"
        )

    return write


def test_code_that_a_new_process_would_import_is_not_taken_for_the_old(
    serve, daemon, hurried, lazy
):
    lazy(2)
    serve(importlib.import_module("edited_op").scale)
    served = serve.served[0]
    kill_workers()
    wait_for(lambda: len(daemon.askers) == 2)
    assert served.is_open
    lazy(3)
    kill_workers()
    wait_for(lambda: not served.is_open)
    with pytest.raises(errors.FailedPrecondition, match=r"\S*/edited_factor\.py changed since it"):
        served.check()
    assert len(daemon.askers) == 2


def test_a_version_answers_once_for_code_that_new_processes_import(
    serve, daemon, hurried, lazy, caplog
):
    lazy(2)
    serve(importlib.import_module("edited_op").scale, version="1")
    lazy(3)
    for count in (2, 3):
        kill_workers()
        wait_for(lambda: len(daemon.askers) == count)  # noqa: B023
    assert serve.served[0].is_open
    assert caplog.text.count("run the code as it is now: version='1' says") == 1


def test_whoever_says_a_version_answers_for_an_edit(serve, daemon, hurried, written, caplog):
    written(2)
    serve(importlib.import_module("edited_op").scale, version="1")
    written(3)
    kill_fork_server()
    wait_for(lambda: len(daemon.askers) == 2)
    assert serve.served[0].is_open
    assert "run the code as it is now: version='1' says that it makes the same" in caplog.text


def test_code_that_is_as_it_was_is_served_again(serve, daemon, hurried, written):
    written(2)
    serve(importlib.import_module("edited_op").scale)
    written(3)
    written(2)
    kill_fork_server()
    wait_for(lambda: len(daemon.askers) == 2)
    assert serve.served[0].is_open


def test_code_that_is_edited_while_its_processes_start_is_refused(serve, written, monkeypatch):
    written(2)
    real = fork_server.ForkServer.wait

    def edit(server, over):
        written(3)
        return real(server, over)

    monkeypatch.setattr(fork_server.ForkServer, "wait", edit)
    with pytest.raises(errors.FailedPrecondition, match=r"edited_factor\.py changed since"):
        serve(importlib.import_module("edited_op").scale)


# --- no room --------------------------------------------------------------------------------------


class Fails:
    """Fails a few times before it does what it does."""

    def __init__(self, real, times: int) -> None:
        self.real, self.left = real, times

    def __call__(self, *arguments):
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.real(*arguments)


@pytest.mark.parametrize(
    "module, name", [(fork_server, "pipe"), (provider, "send_socket"), (fork_server, "send_socket")]
)
def test_what_fails_for_want_of_room_is_tried_again(
    serve, daemon, hurried, monkeypatch, module, name
):
    serve(own.Numbers()).get(1)
    times = 1 if module is fork_server and name == "send_socket" else 3
    fails = Fails(getattr(module, name), times)
    monkeypatch.setattr(module, name, fails)
    kill_workers()
    wait_for(lambda: len(daemon.askers) >= 2 and fails.left == 0)
    wait_for(lambda: is_answered(daemon.askers[-1]))
    assert serve.served[0].is_open


def test_a_fork_server_that_cannot_be_started_again_is_tried_again(
    serve, daemon, hurried, monkeypatch
):
    serve(own.Numbers()).get(1)
    fails = Fails(fork_server.pipe, 20)
    monkeypatch.setattr(fork_server, "pipe", fails)
    os.kill(processes_of(os.getpid())[0], signal.SIGKILL)
    wait_for(lambda: len(daemon.askers) == 2)
    assert fails.left == 0 and daemon.askers[1].get(2)[0].code == MADE


def files_in_memory() -> int:
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum("feedwater-own-code" in os.readlink(one) for one in links if os.path.lexists(one))


@pytest.mark.parametrize(
    "module, name, error",
    [
        (threading.Thread, "start", RuntimeError("can't start new thread")),
        (provider, "pipe", OSError(errno.EMFILE, "Too many open files")),
        (pickled, "files_of", KeyboardInterrupt()),
    ],
)
def test_what_cannot_be_served_leaves_no_descriptor(daemon, monkeypatch, module, name, error):
    def fail(*unused, **options):
        raise error

    gc.collect()
    before = set(descriptors._kept), files_in_memory()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        with pytest.raises(type(error), match=None if name == "files_of" else error.args[-1]):
            feedwater.serve_source("mine", own.Numbers(), address=str(daemon.directory))
    assert (set(descriptors._kept), files_in_memory()) == before


def test_a_fork_as_a_process_is_given_its_socket_does_not_keep_it(serve, monkeypatch, tmp_path):
    forked = []
    real = provider.send_socket

    def send(control, fd):
        pid = os.fork()
        if pid == 0:
            time.sleep(PATIENCE_S)
            os._exit(0)
        forked.append(pid)
        real(control, fd)

    monkeypatch.setattr(provider, "send_socket", send)
    try:
        began = time.monotonic()
        end(serve(own.Wicked(str(tmp_path), r7="once die")))
        assert time.monotonic() - began < PATIENCE_S / 2
    finally:
        serve.served[0].close()
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_working_directory_that_was_removed_is_not_needed(serve, folder, monkeypatch):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    began = time.monotonic()
    assert serve(own.Numbers()).get(1)[0].code == MADE
    assert time.monotonic() - began < PATIENCE_S


# --- what is left ---------------------------------------------------------------------------------


def started(by: list[int]) -> list[int]:
    """Return the programs that the user's code has started."""
    return [pid for pid in by if "sleep" in Path(f"/proc/{pid}/comm").read_text()]


def test_what_is_dropped_below_a_lock_that_its_thread_needs_holds_nobody(daemon):
    """The collector may run anywhere, and end what a cycle of garbage still serves."""
    served = feedwater.serve_source("mine", own.Numbers(), address=str(daemon.directory))
    thread = served._supervisor._thread
    with no_fork:
        del served
        gc.collect()
        assert thread.is_alive()  # and this one goes on
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert processes_of(os.getpid()) == []


@pytest.mark.parametrize("ends", ["close", "fork server", "program"])
def test_programs_that_a_dataset_has_started_end_with_it(serve, daemon, folder, tmp_path, ends):
    if ends == "program":
        text = GUARDED.replace("Mine()", f"own.Wicked({str(tmp_path)!r}, r7='start')")
        program = run(text, str(daemon.directory), folder=folder)
        wait_for(lambda: len(daemon.askers) == 2)
        asker, pid = daemon.askers[0], program.pid
    else:
        asker, pid = serve(own.Wicked(str(tmp_path), r7="start")), os.getpid()
    assert asker.get(7)[0].code == MADE
    mine = processes_of(pid)
    assert len(started(mine)) == 1
    if ends == "close":
        serve.served[0].close()
    elif ends == "fork server":
        os.kill(mine[0], signal.SIGKILL)
    else:
        program.kill()
        program.communicate()
    wait_for(lambda: not any(map(is_alive, mine)))


def test_a_program_that_is_killed_while_its_modules_are_imported_leaves_nothing(daemon, folder):
    (folder / "slow_module.py").write_text(
        "import time\nfrom feedwater import fork_server\nfrom own_datasets import Numbers\n"
        "class Slow(Numbers): pass\nif fork_server.is_here: time.sleep(1000)\n"
    )
    text = GUARDED.replace("class Mine(own.Numbers):\n    pass", "from slow_module import Slow")
    program = run(text.replace("Mine()", "Slow()"), str(daemon.directory), folder=folder)
    (server,) = wait_for(lambda: processes_of(program.pid))
    time.sleep(0.5)  # it may also be before its imports
    program.kill()
    program.communicate()
    wait_for(lambda: not is_alive(server))


def test_the_start_method_of_the_program_remains_its_own_choice(daemon, folder):
    text = """
import multiprocessing
if __name__ == "__main__":
    with feedwater.serve_source("mine", own.Numbers(), address=sys.argv[1]):
        assert multiprocessing.get_start_method(allow_none=True) is None
        multiprocessing.set_start_method("spawn")
    feedwater.serve_source("mine", own.Numbers(), address=sys.argv[1]).close()
"""
    program = run(text, str(daemon.directory), folder=folder)
    _, told = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, told
