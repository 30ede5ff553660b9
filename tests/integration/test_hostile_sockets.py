"""What a user does to the two sockets is that user's to pay: descriptors, CPU, log, queue."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time

import pytest
from daemon_process import NO_OTHER_USERS, OTHER_USER, other_users

from feedwater import control, errors, session
from feedwater.control import Control, messages

_LISTED = 52003
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_SYMBOL = b"\x22\x14feedwater.v1.Control"  # file_containing_symbol


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _call(stream: int, path: str, body: bytes) -> bytes:
    """Return the HTTP/2 frames of a gRPC call, with headers that are spelled out."""
    fields = (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
        ("te", "trailers"), ("content-type", "application/grpc"),
    )  # fmt: skip
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields
    )
    message = b"\0" + struct.pack(">I", len(body)) + body
    return _frame(1, 4, stream, block) + _frame(0, 1, stream, message)


def _greeting() -> bytes:
    # A window that never fills: the answers pile up in the socket, not behind flow control.
    window = 2**31 - 1
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(4, 0, 0, struct.pack(">HI", 4, window))
        + _frame(8, 0, 0, struct.pack(">I", window - 65535))
    )


def _unread_and_half_closed(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(5)
    sock.connect(path)
    with contextlib.suppress(OSError):  # turned away: over connections_per_uid for the moment
        sock.sendall(_greeting())
        for call in range(60):
            sock.sendall(_call(1 + 2 * call, _REFLECTION, _SYMBOL))
        time.sleep(0.02)
        sock.shutdown(socket.SHUT_WR)
    return sock


def _descriptors(daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


def _cpu_seconds(daemon) -> float:
    with open(f"/proc/{daemon.process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _becomes(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _started(make_daemon, config: str):
    daemon = make_daemon(config="cpus: 1\nmemory: 256MiB\n" + config)
    for folder in (daemon.folder, daemon.folder.parent):
        folder.chmod(0o755)
    daemon.start()
    return daemon


def _status(daemon):
    with Control(daemon.address) as service:
        return service.call("GetStatus", messages.GetStatusRequest(), 20)


def test_half_closed_connections_are_given_back(make_daemon):
    """Answers that nobody reads kept gRPC's descriptor, and a CPU, for ever."""
    daemon = _started(make_daemon, "limits: {connections_per_uid: 8}\n")
    before = _descriptors(daemon)
    kept = [_unread_and_half_closed(daemon.address + "/control.sock") for _ in range(60)]
    assert _becomes(lambda: _descriptors(daemon) <= before), f"{_descriptors(daemon)}, {before}"
    begin = _cpu_seconds(daemon)
    time.sleep(1)
    assert _cpu_seconds(daemon) - begin < 0.5
    assert _status(daemon).counters["control_accepted"] > 0
    assert daemon.stop() == 0
    assert "holds the daemon up" not in daemon.tail(), "gRPC still waits for a write"
    for sock in kept:
        sock.close()


@pytest.mark.parametrize(
    "name, kind", [("control", socket.SOCK_STREAM), ("data", socket.SOCK_SEQPACKET)]
)
def test_a_stranger_cannot_fill_the_log(make_daemon, name, kind):
    """Three thousand refused connections are a few lines."""
    if not other_users():
        pytest.skip(NO_OTHER_USERS)
    daemon = _started(make_daemon, f"access: {{users: [{_LISTED}]}}\n")
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        for _ in range(3000):
            with contextlib.suppress(OSError):
                sock = socket.socket(socket.AF_UNIX, kind)
                sock.connect(f"{daemon.address}/{name}.sock")
                sock.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    counter = "control_refused_access" if name == "control" else "refused_access"
    # Who was gone before it was accepted is counted elsewhere.
    assert _becomes(lambda: _status(daemon).counters[counter] > 100)
    lines = daemon.log.read_text().splitlines()
    refused = [line for line in lines if str(OTHER_USER) in line]
    assert 1 <= len(refused) <= 10, refused[:20]


@pytest.fixture
def full_queue(tmp_path_factory):
    """A runtime folder whose sockets nobody accepts from, with their queues full."""
    folder = tmp_path_factory.mktemp("q")
    held = []

    def fill(name: str, kind: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(folder / name))
        listener.listen(0)
        held.append(listener)
        while True:
            sock = socket.socket(socket.AF_UNIX, kind)
            sock.setblocking(False)
            held.append(sock)
            try:
                sock.connect(str(folder / name))
            except BlockingIOError:
                return listener

    yield str(folder), fill
    for sock in held:
        sock.close()


def test_the_data_sockets_full_queue_is_waited_for(full_queue):
    folder, fill = full_queue
    listener = fill("data.sock", socket.SOCK_SEQPACKET)
    threading.Timer(0.3, listener.accept).start()
    session._connect(folder).close()


def test_a_data_socket_whose_queue_stays_full_is_an_error_in_time(full_queue, monkeypatch):
    folder, fill = full_queue
    fill("data.sock", socket.SOCK_SEQPACKET)
    monkeypatch.setattr(session, "_HANDSHAKE_S", 0.3)
    with pytest.raises(errors.DaemonLost, match="temporarily unavailable"):
        session._connect(folder)


def test_the_control_sockets_full_queue_is_waited_for(full_queue, monkeypatch):
    """gRPC takes a full queue for a connection that will come about, and fails at once."""
    folder, fill = full_queue
    fill("control.sock", socket.SOCK_STREAM)
    monkeypatch.setattr(control, "_QUEUE_S", 0.5)
    made = []
    connect = Control._connect
    monkeypatch.setattr(Control, "_connect", lambda self: made.append(1) or connect(self))
    with Control(folder) as service, pytest.raises(errors.DaemonLost, match="not connected"):
        service.call("GetStatus", messages.GetStatusRequest(), 20)
    assert len(made) > 2
