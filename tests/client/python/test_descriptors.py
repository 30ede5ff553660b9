"""What is this process's alone: a fork closes it in the child, and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from feedwater import descriptors

BEGIN = """
import gc, os, socket, tempfile
from feedwater import descriptors

def in_child(action):
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def run(program: str) -> None:
    """Run a program whose children say what is wrong on its output."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_number_that_somebody_else_closed_is_another_files_in_a_child():
    """It was closed there as if it were still ours: once it was gRPC's, and the child aborted."""
    run(
        """
sock = descriptors.keep(socket.socket())
raw = descriptors.open_kept(os.devnull, os.O_RDONLY)
for number in (sock.detach(), raw):
    os.close(number)
files = [tempfile.TemporaryFile() for _ in range(2)]
assert {file.fileno() for file in files} == set(descriptors._kept)
in_child(lambda: [os.fstat(file.fileno()) for file in files])
descriptors.close(raw)
os.fstat(raw)
"""
    )


def test_an_object_that_a_child_throws_away_closes_no_file_of_the_childs():
    run(
        """
sock, other = socket.socketpair()
descriptors.keep(sock)

def child():
    global sock
    mine = [tempfile.TemporaryFile() for _ in range(20)]
    del sock
    gc.collect()
    for file in mine:
        os.fstat(file.fileno())

in_child(child)
sock.send(b"x")
"""
    )


def test_a_child_has_nothing_of_what_is_kept():
    run(
        """
sock, other = socket.socketpair()
descriptors.keep(sock)
raw = descriptors.memory_kept("words")

def child():
    try:
        os.fstat(raw)
        raise AssertionError("the file is there")
    except OSError:
        pass
    try:
        sock.send(b"x")
        raise AssertionError("the socket is there")
    except OSError:
        pass

in_child(child)
descriptors.forget(sock)
assert other.recv(1) == b""
descriptors.close(raw)
descriptors.close(raw)
assert not descriptors._kept
"""
    )


def test_a_child_at_its_limit_of_descriptors_closes_no_file_of_its_own_either():
    run(
        """
import resource
sock, other = socket.socketpair()
descriptors.keep(sock)
spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
limit = max(spare) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

def child():
    global sock
    for fd in spare[1:]:
        os.close(fd)
    mine = [os.open(os.devnull, os.O_RDONLY) for _ in spare[1:]]
    del sock
    gc.collect()
    for fd in mine:
        os.fstat(fd)
    os.fstat(os.open(os.devnull, os.O_RDONLY))  # the copy's number

in_child(child)
sock.send(b"x")
"""
    )


def test_an_interrupt_of_a_child_comes_behind_its_fork():
    """It left the lock taken for ever, and everything open."""
    run(
        """
import signal, threading
raw = descriptors.open_kept(os.devnull, os.O_RDONLY)
real, came = os.close, []

def close(fd):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGUSR1)
    real(fd)

def interrupt(*_):
    came.append(1)
    raise KeyboardInterrupt

def child():
    os.close = real
    if not came:
        raise AssertionError("no interrupt")
    taken = []
    other = threading.Thread(target=lambda: taken.append(descriptors.no_fork.acquire(timeout=5)))
    other.start()
    other.join()
    assert taken == [True] and not descriptors._kept

signal.signal(signal.SIGUSR1, interrupt)
parent, os.close = os.getpid(), close
in_child(child)
"""
    )


def test_storage_that_fails_to_say_what_a_file_is_does_not_keep_it_open(monkeypatch):
    fd = descriptors.open_kept(os.devnull, os.O_RDONLY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", stale)
        descriptors.close(fd)
        with pytest.raises(OSError, match="stale"):
            descriptors.open_kept(os.devnull, os.O_RDONLY)
    assert os.open(os.devnull, os.O_RDONLY) == fd, "the numbers are free"
    os.close(fd)


def stale(fd: int) -> os.stat_result:
    """Fail as a file does that its server has removed."""
    raise OSError(errno.ESTALE, "stale")
