"""The messages on data.sock. ``proto/shm/wire.h`` is the contract; this is the same in ``struct``
formats.

One packet is one message. A message may be longer than known here (a later minor version adds at
the end), never shorter.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Union

MAGIC = 0x52545746
MAJOR = 1
MINOR = 2
MAX_SLOTS = 64
MAX_MESSAGE = 4096  # more than any message of ours: later versions may be longer

HELLO, WELCOME, ARENA, READY, FAILED, CLOSING, RELEASE, SEEK = range(1, 9)
REGION, ASK, ANSWER = range(9, 12)  # of a provider's connection, since 1.2

LAST_IN_EPOCH = 1
HAS_CRC = 2
SKIPPED = 4

BAD_RECORD, TOO_MANY_BAD, NOT_SERVED = 1, 2, 3  # of Failed.reason

WORDS_BYTES = 8192  # of a region, for a provider's last words
WINDOW_UNIT, PAYLOAD_UNIT = 4096, 64
MAX_WINDOWS, MAX_ENTRIES, MAX_TENSORS, MAX_AXES = 8, 64, 64, 6
MADE, ENTRY_FAILED, TOO_LARGE = range(3)  # codes of an entry

_HEADER = struct.Struct("<HHI")
_HELLO = struct.Struct("<HHIIHHII")
_WELCOME = struct.Struct("<HHIIHHII16s")
_ARENA = struct.Struct("<HHIQQII")
_READY = struct.Struct("<HHIIIQQqqIIIIIIq")
_FAILED = struct.Struct("<HHIIIQqqq256s512s")
_FAILED_WITH_REASON = struct.Struct(_FAILED.format + "II")  # since 1.1
_CLOSING = struct.Struct("<HHIII512s")
_RELEASE = struct.Struct("<HHIIIQ")
_SEEK = struct.Struct("<HHIIIQq")
_REGION = struct.Struct("<HHIQQII")
_ASK = struct.Struct("<HHIIIQ")
_ANSWER = struct.Struct("<HHIIIQ")

# In a window. Of an entry the first part is the daemon's, the second the provider's.
ENTRY = struct.Struct("<qQQQQQQII")
ENTRY_ASKED = struct.Struct("<qQQQQ")
ENTRY_WANTED = struct.Struct("<24xQ")  # of a source's: not 0 when nobody waits for it any more
ENTRY_ANSWER = struct.Struct("<QQII")
TENSOR_HEAD = struct.Struct("<BBHIQqqqqqq")


class ProtocolError(Exception):
    """The daemon sent something that is not in the contract."""


class Welcome(NamedTuple):
    """Answer to HELLO."""

    magic: int
    major: int
    minor: int
    features: int
    daemon_pid: int
    ticket: bytes


class Arena(NamedTuple):
    """Comes once, with the arena's file descriptor."""

    arena_bytes: int
    slot_bytes: int
    slots: int


class Ready(NamedTuple):
    """A slot is lent."""

    slot: int
    serial: int
    generation: int
    epoch: int
    step: int
    next_position: int
    samples: int
    real_samples: int
    substituted: int
    flags: int
    crc32c: int
    published_ns: int

    @property
    def last_in_epoch(self) -> bool:
        """No batch of this epoch follows."""
        return bool(self.flags & LAST_IN_EPOCH)

    @property
    def skipped(self) -> int:
        """Of the substituted samples those that are not real."""
        return self.substituted if self.flags & SKIPPED else 0


class Failed(NamedTuple):
    """Stands in a batch's place."""

    serial: int
    code: int
    epoch: int
    step: int
    next_position: int
    record: int
    path: str
    message: str
    reason: int = 0  # 0: any other, or a daemon of version 1.0


class Closing(NamedTuple):
    """The daemon's last word."""

    code: int
    message: str


class Region(NamedTuple):
    """Comes with the descriptor of the memory that a provider and the daemon share."""

    region_bytes: int
    window_bytes: int
    windows: int
    entries: int


class Ask(NamedTuple):
    """The first entries of a window are to be made."""

    window: int
    entries: int
    serial: int


Message = Union[Welcome, Arena, Ready, Failed, Closing, Region, Ask, None]


def hello() -> bytes:
    """Return the client's first message."""
    return _HELLO.pack(HELLO, _HELLO.size, 0, MAGIC, MAJOR, MINOR, 0, 0)


def release(slot: int, generation: int) -> bytes:
    """Return the message that gives a slot back."""
    return _RELEASE.pack(RELEASE, _RELEASE.size, 0, slot, 0, generation)


def seek(serial: int, epoch: int, position: int) -> bytes:
    """Return the message that moves production elsewhere."""
    return _SEEK.pack(SEEK, _SEEK.size, 0, serial, 0, epoch, position)


def answer(ask: Ask) -> bytes:
    """Return the message that gives a window back with what was asked."""
    return _ANSWER.pack(ANSWER, _ANSWER.size, 0, *ask)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _fields(layout: struct.Struct, packet: bytes, name: str) -> tuple:
    if len(packet) < layout.size:
        raise ProtocolError(f"{name} has {len(packet)} bytes, expected {layout.size}")
    return layout.unpack_from(packet)[3:]


def parse(packet: bytes) -> Message:
    """Decode a message of the daemon; None for a type that this version does not know."""
    if len(packet) < _HEADER.size:
        raise ProtocolError(f"a message of {len(packet)} bytes")
    kind, size, _ = _HEADER.unpack_from(packet)
    if size != len(packet):
        raise ProtocolError(f"a message of type {kind} says {size} bytes and has {len(packet)}")
    if kind == ASK:
        return Ask(*_fields(_ASK, packet, "ASK"))
    if kind == READY:
        f = _fields(_READY, packet, "READY")
        return Ready(*(*f[:11], f[12]))
    if kind == FAILED:
        has_reason = len(packet) >= _FAILED_WITH_REASON.size
        f = _fields(_FAILED_WITH_REASON if has_reason else _FAILED, packet, "FAILED")
        return Failed(*(*f[:6], _text(f[6]), _text(f[7]), f[8] if has_reason else 0))
    if kind == CLOSING:
        code, _, message = _fields(_CLOSING, packet, "CLOSING")
        return Closing(code, _text(message))
    if kind == WELCOME:
        return Welcome(*_fields(_WELCOME, packet, "WELCOME"))
    if kind == ARENA:
        return Arena(*_fields(_ARENA, packet, "ARENA")[:3])
    if kind == REGION:
        return Region(*_fields(_REGION, packet, "REGION"))
    return None
