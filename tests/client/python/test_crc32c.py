"""CRC32C against its published values and against the definition, bit by bit."""

import random

import numpy as np
import pytest

from feedwater import crc32c as module
from feedwater.crc32c import crc32c


def by_definition(data: bytes, value: int = 0) -> int:
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


# RFC 3720, appendix B.4, and the check value of the algorithm's catalogue.
VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_published_values_come_out(data, expected):
    assert crc32c(data) == expected
    assert module._numpy_crc(data, 0) == expected


@pytest.mark.parametrize("size", [1, 3, 4, 15, 16, 17, 63, 64, 255, 1000, 4097, 131072 + 5, 300001])
def test_the_numpy_way_agrees_with_the_definition_at_every_size(size):
    data = random.Random(size).randbytes(size)
    assert module._numpy_crc(data, 0) == by_definition(data)
    assert module._numpy_crc(data, 0x12345678) == by_definition(data, 0x12345678)


def test_a_value_continues_where_the_last_one_ended():
    data = random.Random(1).randbytes(50000)
    whole = by_definition(data)
    for cut in (0, 1, 2047, 2048, 30000, 50000):
        assert crc32c(data[cut:], crc32c(data[:cut])) == whole
        assert module._numpy_crc(data[cut:], module._numpy_crc(data[:cut], 0)) == whole


def test_read_only_and_writable_arrays_are_taken_without_a_copy():
    array = np.arange(10000, dtype=np.uint8)
    expected = by_definition(array.tobytes())
    assert crc32c(memoryview(array)) == expected
    array.flags.writeable = False
    assert crc32c(memoryview(array)) == expected
