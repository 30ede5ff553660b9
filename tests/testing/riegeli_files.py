"""ArrayRecord files written in Python, for tests: Riegeli chunks that fit into one block each.

After riegeli/doc/riegeli_records_file_format.md and array_record/cpp/layout.proto. HighwayHash is
written after its paper (https://arxiv.org/abs/1612.06257), lane by lane.
"""

from __future__ import annotations

import functools
import struct

BLOCK = 65536
_ALL = 2**64 - 1
_KEY = struct.unpack("<4Q", b"Riegeli/records\n" * 2)
_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
# Which bytes of a pair of lanes go where when they are added to another pair.
_ZIPPER = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)


def _swap(lane: int) -> int:
    return (lane >> 32) | (lane << 32) & _ALL


def _rotate(half: int, count: int) -> int:
    return (half << count | half >> (32 - count)) & 0xFFFFFFFF


class _State:
    def __init__(self) -> None:
        self.mul0, self.mul1 = list(_MUL0), list(_MUL1)
        self.v0 = [lane ^ key for lane, key in zip(_MUL0, _KEY)]
        self.v1 = [lane ^ _swap(key) for lane, key in zip(_MUL1, _KEY)]

    def update(self, lanes: tuple) -> None:
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for i in range(4):
            v1[i] = (v1[i] + mul0[i] + lanes[i]) & _ALL
            mul0[i] ^= (v1[i] & 0xFFFFFFFF) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & _ALL
            mul1[i] ^= (v0[i] & 0xFFFFFFFF) * (v1[i] >> 32)
        for source, target in ((v1, v0), (v0, v1)):
            data = struct.pack("<4Q", *source)
            for pair in (0, 2):
                part = data[8 * pair : 8 * pair + 16]
                mixed = struct.unpack("<2Q", bytes(part[i] for i in _ZIPPER))
                for i in range(2):
                    target[pair + i] = (target[pair + i] + mixed[i]) & _ALL

    def update_rest(self, rest: bytes) -> None:
        size = len(rest)
        self.v0 = [(lane + (size << 32) + size) & _ALL for lane in self.v0]
        halves = [divmod(lane, 2**32) for lane in self.v1]
        self.v1 = [_rotate(high, size) << 32 | _rotate(low, size) for high, low in halves]
        packet = bytearray(32)
        whole = size & ~3
        packet[:whole] = rest[:whole]
        if size & 16:
            packet[28:] = rest[size - 4 :]
        elif size & 3:
            tail = rest[whole:]
            packet[16:19] = bytes((tail[0], tail[len(tail) >> 1], tail[-1]))
        self.update(struct.unpack("<4Q", packet))


@functools.lru_cache(maxsize=1024)
def highway_hash(data: bytes) -> bytes:
    """Return the 64-bit HighwayHash with Riegeli's key."""
    state = _State()
    whole = len(data) & ~31
    for at in range(0, whole, 32):
        state.update(struct.unpack_from("<4Q", data, at))
    if len(data) > whole:
        state.update_rest(data[whole:])
    for _ in range(4):
        v0 = state.v0
        state.update(tuple(map(_swap, (v0[2], v0[3], v0[0], v0[1]))))
    return struct.pack("<Q", (state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]) & _ALL)


def _varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def _chunk(kind: bytes, data: bytes, records: int, decoded: int) -> bytes:
    rest = struct.pack("<Q", len(data)) + highway_hash(data) + kind
    rest += struct.pack("<Q", records)[:7] + struct.pack("<Q", decoded)
    return highway_hash(rest) + rest + data


def _group(records: list[bytes]) -> bytes:
    sizes = b"".join(_varint(len(record)) for record in records)
    data = b"\0" + _varint(len(sizes)) + sizes + b"".join(records)
    return _chunk(b"r", data, len(records), sum(map(len, records)))


def _at_block(chunk: bytes) -> bytes:
    """Return a chunk that begins where a block does, with the block's header."""
    header = struct.pack("<2Q", 0, 24 + len(chunk))
    return highway_hash(header) + header + chunk


def array_record(records: list[bytes]) -> bytes:
    """Return a file with a group for each record; all of them fit into a block."""
    file = _at_block(_chunk(b"s", b"", 0, 0))
    count = _varint(len(records))
    about = b"\x08\1\x10" + count + b"\x18" + count
    entries = [b"\x0a" + _varint(len(about)) + about]
    for record in records:
        entries.append(b"\x08" + _varint(len(file)) + b"\x18\1")
        file += _group([record])
    footer = len(file)
    file += _group(entries)
    assert len(file) < BLOCK - 40
    file += _chunk(b"p", bytes(BLOCK - 40 - len(file)), 0, 0)
    postscript = b"\x08" + _varint(footer) + b"\x10" + _varint(0x71930E704FDAE05E)
    last = _at_block(_group([postscript] * 3))
    return file + last + _chunk(b"p", bytes(BLOCK - 40 - len(last)), 0, 0)
