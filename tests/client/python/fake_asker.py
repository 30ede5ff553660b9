"""The daemon's side of a connection that provides a source or an op: it asks, and reads answers.

Written from proto/shm/README.md, apart from the package.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import threading
from dataclasses import dataclass

import numpy as np

WORDS = 8192
REGION, ASK, ANSWER = 9, 10, 11
MADE, FAILED, TOO_LARGE = 0, 1, 2
SEALS = 1 | 2 | 4  # SEAL, SHRINK, GROW
DTYPES = (
    "", "u1", "i1", "?", "i2", "u2", "i4", "i8", "f2", "u2", "f4", "f8"
)  # fmt: skip
PATIENCE_S = 30.0


@dataclass
class Answer:
    """What came of one entry."""

    code: int
    size: int = 0
    text: str = ""
    dtypes: tuple[int, ...] = ()
    tensors: tuple[np.ndarray, ...] = ()


def payload(arrays) -> bytes:
    """Return arrays as a payload."""
    at, heads, bodies = 64 * len(arrays), b"", b""
    for array in arrays:
        at += -at % 64
        bodies += bytes(at - 64 * len(arrays) - len(bodies)) + array.tobytes()
        shape = [*array.shape, 0, 0, 0, 0, 0, 0][:6]
        code = DTYPES.index(array.dtype.str[1:] if array.dtype != bool else "?")
        heads += struct.pack("<BBHIQ6q", code, array.ndim, 0, 0, at, *shape)
        at += array.nbytes
    return heads + bodies


class Asker:
    """See the module. It has a region from the beginning."""

    def __init__(self, sock: socket.socket, request, window_bytes: int = 1 << 16) -> None:
        self.sock, self.request = sock, request
        self.over = threading.Event()
        self.serial = 0
        self.asked: dict[int, int] = {}  # entries by window
        self.sock.settimeout(PATIENCE_S)
        self.give_region(window_bytes)

    def give_region(self, window_bytes: int, windows: int = 2, entries: int = 64, **faults) -> None:
        """Send another region."""
        self.window_bytes, self.entries = window_bytes, entries
        size = WORDS + windows * window_bytes
        fd = os.memfd_create("region-of-a-provider", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        self.memory = mmap.mmap(fd, size)
        fcntl.fcntl(fd, 1033, faults.get("seals", SEALS))
        packet = struct.pack(
            "<HHIQQII", REGION, 32, 0, faults.get("size", size), window_bytes, windows, entries
        )
        socket.send_fds(self.sock, [packet], [fd])
        os.close(fd)

    def ask(self, *records, seed=(1, 2), inputs=None, window: int = 0) -> None:
        """Ask for records; `inputs` are the payloads of an op."""
        begin = window * self.window_bytes
        at = 64 * self.entries
        for number, record in enumerate(records):
            given = inputs[number] if inputs else b""
            seeds = seed(record) if callable(seed) else seed
            entry = struct.pack("<qQQQQ", record, *seeds, at if given else 0, len(given))
            place = begin + 64 * number
            self.memory[place : place + 64] = entry + b"\xee" * 24
            self.memory[begin + at : begin + at + len(given)] = given
            at += len(given) + -len(given) % 64
        self.serial += 1
        self.asked[window] = len(records)
        self.sock.send(struct.pack("<HHIIIQ", ASK, 24, 0, window, len(records), self.serial))

    def mark_unwanted(self, number: int, window: int = 0) -> None:
        """Tell that nobody waits for an entry any more."""
        struct.pack_into("<Q", self.memory, window * self.window_bytes + 64 * number + 24, 1)

    def answers(self, window: int = 0) -> list[Answer]:
        """Wait for the next ANSWER, and read what it gives."""
        packet = self.sock.recv(4096)
        if not packet:
            raise EOFError
        kind, size, zero, of, entries, serial = struct.unpack("<HHIIIQ", packet)
        assert (kind, size, zero, of, entries) == (ANSWER, 24, 0, window, self.asked.pop(window))
        assert serial <= self.serial
        return [self._read(window * self.window_bytes, number) for number in range(entries)]

    def get(self, *records, **options) -> list[Answer]:
        """Ask, and wait."""
        self.ask(*records, **options)
        return self.answers(options.get("window", 0))

    def _read(self, begin: int, number: int) -> Answer:
        place = begin + 64 * number
        offset, size, code, zero = struct.unpack("<QQII", self.memory[place + 40 : place + 64])
        assert zero == 0
        if code == TOO_LARGE:
            return Answer(code, size)
        assert 64 * self.entries <= offset and offset + size <= self.window_bytes
        data = self.memory[begin + offset : begin + offset + size]
        if code == FAILED:
            return Answer(code, size, data.decode())
        assert offset % 64 == 0
        count = struct.unpack_from("<Q", data, 8)[0] // 64
        dtypes, tensors, at = [], [], 64 * count
        for one in range(count):
            dtype, axes, z1, z2, where, *shape = struct.unpack_from("<BBHIQ6q", data, 64 * one)
            at += -at % 64
            assert z1 == z2 == 0 and where == at and not any(shape[axes:])
            array = np.frombuffer(
                data, DTYPES[dtype], int(np.prod(shape[:axes], dtype=int)), where
            ).reshape(shape[:axes])
            at += array.nbytes
            dtypes.append(dtype)
            tensors.append(array)
        assert at == size
        return Answer(code, size, "", tuple(dtypes), tuple(tensors))

    def last_words(self) -> str:
        """Return what the process has left."""
        return self.memory[-WORDS:].split(b"\0", 1)[0].decode()

    def hang_up(self) -> None:
        """End the connection."""
        self.sock.shutdown(socket.SHUT_RDWR)
        self.over.set()
