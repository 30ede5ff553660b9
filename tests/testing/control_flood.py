"""Floods a daemon's control.sock with HTTP/2 for some seconds, as another user.

    python control_flood.py ADDRESS UID KIND SECONDS

Bytes are written by hand: no client of gRPC would send them. It prints the bytes it got rid of.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import os
import socket
import struct
import sys
import time

SERVICE = "/feedwater.v1.Control/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
KINDS = (
    "continuation", "ping", "settings", "reset", "unread", "endless_messages", "endless_calls",
    "texts", "half_closed", "given_up", "large_answers", "gzip",
)  # fmt: skip


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of RFC 9113."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: str, value: str) -> bytes:
    """Return a header field of RFC 7541, a literal without indexing."""

    def text(value: str) -> bytes:
        size = len(value)
        if size < 127:
            return bytes([size]) + value.encode()
        size, prefix = size - 127, [127]
        while size >= 128:
            prefix.append(size & 127 | 128)
            size >>= 7
        return bytes([*prefix, size]) + value.encode()

    return b"\0" + text(name) + text(value)


def headers(path: str) -> bytes:
    """Return the fields of a call."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(field(name, value) for name, value in fields.items())


def call(stream: int, path: str, body: bytes = b"") -> bytes:
    """Return a whole call, its message in frames of 16 KiB."""
    return _call(stream, headers(path), b"\0" + struct.pack(">I", len(body)) + body)


def _call(stream: int, fields: bytes, message: bytes) -> bytes:
    parts = [message[i : i + 16384] for i in range(0, len(message), 16384)]
    frames = [frame(DATA, 0, stream, part) for part in parts[:-1]]
    end = frame(DATA, END_STREAM, stream, parts[-1])
    return frame(HEADERS, END_HEADERS, stream, fields) + b"".join(frames) + end


@functools.lru_cache(maxsize=1)
def zeroes(size: int) -> bytes:
    """Return `size` zeroes, compressed."""
    return gzip.compress(bytes(size), 9)


def compressed_call(stream: int, path: str, size: int) -> bytes:
    """Return a whole call with a compressed message of `size` zeroes."""
    body = zeroes(size)
    fields = headers(path) + field("grpc-encoding", "gzip")
    return _call(stream, fields, b"\1" + struct.pack(">I", len(body)) + body)


def large_text(number: int) -> str:
    """Return the text of a pipeline that no other request has."""
    return f"version: 1\n# {number}\ngraph:\n" + "  - a: [1, 2, 3]\n" * (240_000 // 17)


def slow_text(number: int) -> str:
    """Return another one, over a dataset that takes long to list, where there is one."""
    return (
        f"version: 1\n# {number}\ndataset: {{format: image_folder, root: data, path: links}}\n"
        "graph:\n  - decode\n  - center_crop: {size: 8}\nbatch: {size: 1}\noutputs: [image]\n"
    )


def text_request(yaml: str) -> bytes:
    """Return a DescribePipelineRequest with a text."""

    def nested(tag: int, value: bytes) -> bytes:
        size, prefix = len(value), []
        while size >= 128:
            prefix.append(size & 127 | 128)
            size >>= 7
        return bytes([tag << 3 | 2, *prefix, size]) + value

    return nested(1, nested(2, nested(1, b"t.yaml") + nested(2, yaml.encode())))


def blobs(kind: str):
    """Yield what to send, for ever."""
    for k in itertools.count():
        stream = 1 + 2 * k
        if kind == "continuation":
            if k == 0:
                yield frame(HEADERS, 0, 1, headers(SERVICE + "ListPipelines"))
            yield frame(CONTINUATION, 0, 1, field("x-a", "b" * 4000) * 3)
        elif kind == "ping":
            yield frame(PING, 0, 0, b"abcdefgh") * 64
        elif kind == "settings":
            yield frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100)) * 64
        elif kind == "reset":
            start = frame(HEADERS, END_HEADERS, stream, headers(SERVICE + "ListPipelines"))
            yield start + frame(RESET, 0, stream, struct.pack(">I", 8))
        elif kind == "unread":
            yield call(stream, SERVICE + "GetStatus")
        elif kind == "endless_messages":
            body = b"\0" + struct.pack(">I", 250_000) + b"z" * 16000
            start = frame(HEADERS, END_HEADERS, stream, headers(SERVICE + "DescribePipeline"))
            yield start + frame(DATA, 0, stream, body) + frame(DATA, 0, stream, b"z" * 16000) * 3
        elif kind == "endless_calls":
            yield frame(HEADERS, END_HEADERS, stream, headers(REFLECTION))
        elif kind == "texts":
            yield call(
                stream, SERVICE + "DescribePipeline", text_request(large_text(k + os.getpid()))
            )
        elif kind == "given_up":
            text = text_request(slow_text(k + os.getpid()))
            yield call(stream, SERVICE + "DescribePipeline", text)
            if k >= 4:
                yield frame(RESET, 0, stream - 8, struct.pack(">I", 8))
        elif kind == "large_answers":  # of a job `wide`, 584 KB each
            yield call(stream, SERVICE + "GetLedger", b"\x0a\x04wide\x20\x00")
        elif kind == "gzip":  # 100 MB of zeroes in 97 KB
            yield compressed_call(stream, SERVICE + "DescribePipeline", 100_000_000)
        elif kind == "half_closed":
            yield call(stream, SERVICE + "GetStatus") + b"shut"
        else:
            raise SystemExit(f"no flood {kind}")


class Flood:
    """One connection, made again whenever it is closed."""

    def __init__(self, address: str, kind: str) -> None:
        self.address, self.kind = address, kind
        self.socket: socket.socket | None = None

    def step(self) -> int:
        """Send and, unless the flood is one that does not read, read. Return the bytes sent."""
        try:
            if self.socket is None:
                self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.socket.setblocking(False)
                self.socket.connect(self.address + "/control.sock")
                self.blobs = blobs(self.kind)
                window = frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1 - 65535))
                widest = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1))
                self.left = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + widest + window
            if not self.left:
                self.left = next(self.blobs)
            shut = self.left.endswith(b"shut")
            sent = self.socket.send(self.left[:-4] if shut else self.left)
            self.left = self.left[sent:]
            if self.left == b"shut":
                self.left = b""
                self.socket.shutdown(socket.SHUT_WR)
            if self.kind not in ("unread", "half_closed", "large_answers"):
                with contextlib.suppress(BlockingIOError):
                    while self.socket.recv(65536):
                        pass
            return sent
        except BlockingIOError:
            return 0
        except OSError:
            if self.socket is not None:
                self.socket.close()
            self.socket = None
            return 0


def main() -> None:
    """Flood from eight connections."""
    address, uid, kind, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    floods = [Flood(address, kind) for _ in range(8)]
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        sent = sum(flood.step() for flood in floods)
        total += sent
        if sent == 0:
            time.sleep(0.002)
    print(total)


if __name__ == "__main__":
    main()
