"""CRC32C (Castagnoli), used for cursors and for batches on request.

`crc32c` takes the quickest way there is: the packages ``crc32c`` or ``google-crc32c`` when they are
installed (several GB/s), else NumPy. The NumPy way cuts the data into many equal lanes, runs all
lanes side by side through 16-bit tables, and then joins the lanes' values in pairs; it reaches some
100 MB/s, which is enough for checking, but not for free.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Callable, Optional

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANES = 8192
_CHUNK = 1 << 20


def _byte_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _byte_table()
_TABLE_LIST = [int(x) for x in _TABLE]


@lru_cache(maxsize=1)
def _wide_tables() -> tuple[np.ndarray, np.ndarray]:
    """Tables that take a state 4 bytes further: for its low and its high 16 bits."""
    value = np.arange(65536, dtype=np.uint32)

    def one_byte(state: np.ndarray) -> np.ndarray:
        return (state >> 8) ^ _TABLE[state & 0xFF]

    high = one_byte(one_byte(value))
    low = one_byte(one_byte(high))
    return low, high


@lru_cache(maxsize=64)
def _shift_tables(length: int) -> np.ndarray:
    """Four tables of 256 that move a state over `length` zero bytes, a byte of the state each."""

    def apply(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
        out = np.zeros_like(vector)
        for bit in range(32):
            out ^= np.where((vector >> np.uint32(bit)) & 1, matrix[bit], np.uint32(0)).astype(
                np.uint32
            )
        return out

    unit = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32)).astype(np.uint32)
    result = unit.copy()
    power = ((unit >> 8) ^ _TABLE[unit & 0xFF]).astype(np.uint32)
    while length:
        if length & 1:
            result = apply(power, result)
        power = apply(power, power)
        length >>= 1
    values = np.arange(256, dtype=np.uint32)
    return np.stack([apply(result, np.left_shift(values, np.uint32(8 * i))) for i in range(4)])


def _shift(state: np.ndarray, length: int) -> np.ndarray:
    tables = _shift_tables(length)
    return (
        tables[0][state & 0xFF]
        ^ tables[1][(state >> 8) & 0xFF]
        ^ tables[2][(state >> 16) & 0xFF]
        ^ tables[3][state >> 24]
    )


def _bytes_crc(data: bytes, state: int) -> int:
    for byte in data:
        state = (state >> 8) ^ _TABLE_LIST[(state ^ byte) & 0xFF]
    return state


def _numpy_crc(data: Any, value: int) -> int:
    view = memoryview(data).cast("B")
    state = value ^ 0xFFFFFFFF
    lanes = _LANES
    while lanes > 1 and len(view) < lanes * 16:
        lanes >>= 1
    words = len(view) // (4 * lanes)
    if words == 0:
        return _bytes_crc(bytes(view), state) ^ 0xFFFFFFFF
    bulk = 4 * lanes * words
    low, high = _wide_tables()
    # Lane i is the i-th stretch of the data; a row of the transposed table is one word of every
    # lane.
    table = np.frombuffer(view[:bulk], dtype="<u4").reshape(lanes, words)
    crc = np.zeros(lanes, dtype=np.uint32)
    crc[0] = state
    block = 64
    for begin in range(0, words, block):
        for row in np.ascontiguousarray(table[:, begin : begin + block].T):
            crc ^= row
            crc = low[crc & 0xFFFF] ^ high[crc >> 16]
    length = 4 * words
    while len(crc) > 1:
        crc = _shift(crc[0::2], length) ^ crc[1::2]
        length *= 2
    return _bytes_crc(bytes(view[bulk:]), int(crc[0])) ^ 0xFFFFFFFF


def _find_fast() -> Optional[Callable[[Any, int], int]]:
    try:
        module = importlib.import_module("crc32c")
        if module.crc32c(b"123456789") == 0xE3069283:
            return lambda data, value: int(module.crc32c(data, value))
    except Exception:  # absent, or another module of that name
        pass
    try:
        google = importlib.import_module("google_crc32c")
        if google.implementation == "c" and google.value(b"123456789") == 0xE3069283:

            def chunked(data: Any, value: int) -> int:
                view = memoryview(data).cast("B")
                for begin in range(0, len(view), _CHUNK):
                    value = google.extend(value, bytes(view[begin : begin + _CHUNK]))
                return int(value)

            return chunked
    except Exception:
        pass
    return None


@lru_cache(maxsize=1)
def _implementation() -> Callable[[Any, int], int]:
    return _find_fast() or _numpy_crc


def crc32c(data: Any, value: int = 0) -> int:
    """CRC32C of `value`'s data followed by `data`.

    Parameters
    ----------
    data : bytes-like
        C-contiguous.
    value : int
        The result for what came before; 0 to start.

    Returns
    -------
    int
        ``crc32c(b"123456789") == 0xE3069283``.
    """
    if memoryview(data).nbytes < 2048:
        return _bytes_crc(bytes(data), value ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return _implementation()(data, value)
