"""Messages and descriptors between a program and its own processes."""

from __future__ import annotations

import os
import threading

import pytest

from feedwater.descriptors import close, forget, no_fork
from feedwater.passing import pipe, receive_with, send_with


@pytest.fixture
def ends():
    """Both ends of a connection."""
    both = pipe()
    yield both
    for end in both:
        forget(end)


def test_a_descriptor_comes_with_its_message(ends):
    mine, its = ends
    file = os.memfd_create("words")
    os.write(file, b"last")
    its.send(("ready", [1] * 40_000))
    send_with(its, ("region", None), file)
    os.close(file)
    its.send(("answered", None))
    assert receive_with(mine, 5) == (("ready", [1] * 40_000), None)
    message, fd = receive_with(mine, 5)
    assert message == ("region", None) and os.pread(fd, 9, 0) == b"last"
    close(fd)
    assert receive_with(mine, 5) == (("answered", None), None)
    forget(its)
    with pytest.raises(EOFError):
        receive_with(mine, 5)


def test_whoever_stops_in_the_midst_of_a_message_keeps_nobody_from_forking(ends):
    mine, its = ends
    os.write(its.fileno(), b"\0\0")
    failed = []

    def receive():
        try:
            receive_with(mine, 1.0)
        except OSError as error:
            failed.append(str(error))

    receiver = threading.Thread(target=receive)
    receiver.start()
    assert no_fork.acquire(timeout=0.5)
    no_fork.release()
    receiver.join()
    assert failed == ["the rest of a message did not come"]
