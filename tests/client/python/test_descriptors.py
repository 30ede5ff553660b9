"""What is this process's alone: a fork closes it in the child, and nothing else."""

from __future__ import annotations

import subprocess
import sys

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
