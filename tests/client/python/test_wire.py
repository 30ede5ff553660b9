"""The messages against proto/shm/wire.h, and against what a broken daemon may send."""

import re
import struct
from pathlib import Path

import pytest
from fake_daemon import Packets

from feedwater import wire

HEADER = Path(__file__).resolve().parents[3] / "proto/shm/wire.h"
LAYOUTS = {
    "Hello": wire._HELLO,
    "Welcome": wire._WELCOME,
    "Arena": wire._ARENA,
    "Ready": wire._READY,
    "Failed": wire._FAILED,
    "FailedWithReason": wire._FAILED_WITH_REASON,
    "Closing": wire._CLOSING,
    "Release": wire._RELEASE,
    "Seek": wire._SEEK,
    "Region": wire._REGION,
    "Ask": wire._ASK,
    "Answer": wire._ANSWER,
    "Entry": wire.ENTRY,
    "TensorHead": wire.TENSOR_HEAD,
}
C_FORMATS = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q", "int64_t": "q"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_format_of_a_message_is_that_of_the_c_struct(name):
    body = re.search(rf"struct {name} {{(.*?)}};", HEADER.read_text(), re.S).group(1)
    expected = "<"
    for line in re.sub(r"//.*", "", body).split(";"):
        declaration = line.strip()
        if not declaration:
            continue
        kind, names = declaration.split(" ", 1)
        for one in names.split(","):
            count = re.search(r"\[(\w+)\]", one)
            if kind == "Header":
                expected += "HHI"
            elif kind in LAYOUTS:
                expected += LAYOUTS[kind].format[1:]
            else:
                length = count.group(1) if count else "1"
                if not length.isdigit():
                    length = re.search(rf"\b{length} = (\d+);", HEADER.read_text()).group(1)
                length = int(length)
                is_text = count and kind in ("char", "uint8_t")
                expected += f"{length}s" if is_text else C_FORMATS[kind] * length
    assert LAYOUTS[name].format == expected
    size = re.search(rf"sizeof\({name}\) == (\d+)", HEADER.read_text()).group(1)
    assert LAYOUTS[name].size == int(size)


def test_constants_are_those_of_the_header():
    text = HEADER.read_text()
    for name, value in [
        ("kMagic", wire.MAGIC),
        ("kMajor", wire.MAJOR),
        ("kMinor", wire.MINOR),
        ("kMaxSlots", wire.MAX_SLOTS),
        ("kReadyLastInEpoch", wire.LAST_IN_EPOCH),
        ("kReadyHasCrc", wire.HAS_CRC),
        ("kHello", wire.HELLO),
        ("kWelcome", wire.WELCOME),
        ("kArena", wire.ARENA),
        ("kReady", wire.READY),
        ("kFailed", wire.FAILED),
        ("kBadRecord", wire.BAD_RECORD),
        ("kTooManyBad", wire.TOO_MANY_BAD),
        ("kClosing", wire.CLOSING),
        ("kRelease", wire.RELEASE),
        ("kSeek", wire.SEEK),
        ("kRegion", wire.REGION),
        ("kAsk", wire.ASK),
        ("kAnswer", wire.ANSWER),
        ("kWordsBytes", wire.WORDS_BYTES),
        ("kWindowUnit", wire.WINDOW_UNIT),
        ("kPayloadUnit", wire.PAYLOAD_UNIT),
        ("kMaxWindows", wire.MAX_WINDOWS),
        ("kMaxEntries", wire.MAX_ENTRIES),
        ("kMaxTensors", wire.MAX_TENSORS),
        ("kMaxAxes", wire.MAX_AXES),
    ]:
        assert int(re.search(rf"\b{name} = (\w+)[,;]", text).group(1), 0) == value, name
    codes = re.search(r"enum class EntryCode.*?};", text, re.S).group(0)
    named = {name: int(value) for name, value in re.findall(r"k(\w+) = (\d),", codes)}
    assert named == {"Made": wire.MADE, "Failed": wire.ENTRY_FAILED, "TooLarge": wire.TOO_LARGE}


def ready_packet(**changes):
    ready = wire.Ready(3, 1, 9, 2, 5, 24, 4, 3, 1, 3, 0xABCD, 10**15)._replace(**changes)
    return ready, Packets.pack(wire.READY, Packets.ready, *ready[:11], 0, ready.published_ns)


def test_ready_and_failed_and_closing_are_read_as_they_were_written():
    ready, packet = ready_packet()
    assert wire.parse(packet) == ready
    assert ready.last_in_epoch
    failed = wire.Failed(1, 15, 2, 5, 24, 17, "a/ü.jpg", "truncated", wire.TOO_MANY_BAD)
    raw = (*failed[:6], failed.path.encode(), failed.message.encode())
    packet = Packets.pack(wire.FAILED, Packets.failed, *raw, failed.reason, 0)
    assert wire.parse(packet) == failed
    of_1_0 = Packets.pack(wire.FAILED, Packets.failed_of_1_0, *raw)
    assert wire.parse(of_1_0) == failed._replace(reason=0)
    closing = Packets.pack(wire.CLOSING, Packets.closing, 3, 0, b"why")
    assert wire.parse(closing) == wire.Closing(3, "why")


def test_a_longer_message_of_a_later_minor_version_is_read():
    ready, packet = ready_packet()
    longer = struct.pack("<HHI", wire.READY, len(packet) + 8, 0) + packet[8:] + bytes(8)
    assert wire.parse(longer) == ready


def test_an_unknown_type_is_passed_over():
    assert wire.parse(struct.pack("<HHI", 99, 8, 0)) is None


@pytest.mark.parametrize("size", [0, 1, 7, 8, 79])
def test_a_short_message_is_a_breach(size):
    _, packet = ready_packet()
    short = packet[:size]
    if size >= 8:
        short = struct.pack("<HHI", wire.READY, size, 0) + packet[8:size]
    with pytest.raises(wire.ProtocolError):
        wire.parse(short)


def test_a_message_that_lies_about_its_size_is_a_breach():
    _, packet = ready_packet()
    with pytest.raises(wire.ProtocolError):
        wire.parse(packet + b"\0")


def test_text_that_is_not_utf8_is_read_anyway():
    packet = Packets.pack(wire.CLOSING, Packets.closing, 3, 0, b"\xff\xfe" * 256)
    assert isinstance(wire.parse(packet).message, str)
