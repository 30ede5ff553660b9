"""Datasets in every kind of file, made of records of one size, for benchmarks of reading."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

BLOCK = 512  # of tar

_CRC_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _CRC_TABLE.append(_byte)


def _masked_crc(data: bytes) -> int:
    """Return TFRecord's checksum."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _parts(records: int, shards: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, first record, records) of each shard."""
    for shard in range(shards):
        first, end = records * shard // shards, records * (shard + 1) // shards
        yield shard, first, end - first


def _tar(path: Path, first: int, count: int, size: int) -> None:
    """Write members NUMBER.bin, with headers made all at once."""
    header = np.zeros((count, BLOCK), np.uint8)

    def put(at: int, text: bytes) -> None:
        header[:, at : at + len(text)] = np.frombuffer(text, np.uint8)

    numbers = first + np.arange(count)
    for digit in range(9):
        header[:, digit] = ord("0") + numbers // 10 ** (8 - digit) % 10
    put(9, b".bin")
    put(100, b"0000644\00000000\00000000\0" + b"%011o\0" % size + b"00000000000\0")
    put(148, b" " * 8)
    put(156, b"0")
    put(257, b"ustar\000")
    sums = header.sum(axis=1, dtype=np.int64)
    for digit in range(6):
        header[:, 148 + digit] = ord("0") + sums // 8 ** (5 - digit) % 8
    header[:, 154] = 0
    padded = -(-size // BLOCK) * BLOCK
    with open(path, "wb") as file:
        for begin in range(0, count, 4096):
            part = header[begin : begin + 4096]
            block = np.zeros((len(part), BLOCK + padded), np.uint8)
            block[:, :BLOCK] = part
            block[:, BLOCK : BLOCK + size] = 7
            file.write(block.tobytes())
        file.write(bytes(2 * BLOCK))


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def webdataset(folder: Path, records: int, size: int, shards: int) -> str:
    for shard, first, count in _parts(records, shards):
        _tar(folder / f"part-{shard:05}.tar", first, count, size)
    return "{format: webdataset, root: data, fields: {data: bin}}"


def tfrecord(folder: Path, records: int, size: int, shards: int) -> str:
    feature = _field(1, b"data") + _field(2, _field(1, _field(1, b"\7" * size)))
    example = _field(1, _field(1, feature))
    length = struct.pack("<Q", len(example))
    record = length + struct.pack("<I", _masked_crc(length)) + example
    record += struct.pack("<I", _masked_crc(example))
    for shard, _, count in _parts(records, shards):
        (folder / f"part-{shard:05}.tfrecord").write_bytes(record * count)
    return "{format: tfrecord, root: data}"


def _zeros(folder: Path, records: int, size: int, shards: int) -> None:
    """Write files of nothing but records."""
    for shard, _, count in _parts(records, shards):
        with open(folder / f"part-{shard:05}.bin", "wb") as file:
            file.truncate(count * size)


def raw(folder: Path, records: int, size: int, shards: int) -> str:
    _zeros(folder, records, size, shards)
    return f"{{format: raw, root: data, record_bytes: {size}}}"


def npy(folder: Path, records: int, size: int, _shards: int) -> str:
    np.lib.format.open_memmap(folder / "data.npy", "w+", np.uint8, (records, size)).flush()
    return "{format: npy, root: data, fields: {data: data.npy}}"


def tokens(folder: Path, records: int, size: int, shards: int) -> str:
    _zeros(folder, records, size, shards)
    return f"{{format: tokens, root: data, length: {size // 2}, dtype: uint16}}"


def mds(folder: Path, records: int, size: int, shards: int) -> str:
    config = {
        "version": 2, "format": "mds", "column_encodings": ["bytes"], "column_names": ["data"],
        "column_sizes": [None], "compression": None, "hashes": [], "size_limit": None,
    }  # fmt: skip
    index = []
    sample = struct.pack("<I", size) + b"\7" * size
    text = json.dumps(config, sort_keys=True).encode()
    for shard, _, count in _parts(records, shards):
        begin = 4 + 4 * (count + 1) + len(text)
        offsets = (begin + len(sample) * np.arange(count + 1)).astype("<u4")
        name = f"shard.{shard:05}.mds"
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<I", count) + offsets.tobytes() + text)
            file.write(sample * count)
        data = {"basename": name, "bytes": int(offsets[-1]), "hashes": {}}
        index.append({**config, "samples": count, "raw_data": data, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": index, "version": 2}))
    return "{format: mds, root: data}"


def jsonl(folder: Path, records: int, size: int, shards: int) -> str:
    line = json.dumps({"text": "x" * (size - 13)}).encode() + b"\n"
    for shard, _, count in _parts(records, shards):
        (folder / f"part-{shard:05}.jsonl").write_bytes(line * count)
    return "{format: jsonl, root: data}"


def images(folder: Path, records: int, size: int, _shards: int) -> str:
    """Write files of their own: PNMs of a row of gray pixels, or nothing where size is 0."""
    head = b"P5 %d 1 255\n" % max(size - 20, 1)
    data = (head + bytes(size))[:size]
    for first in range(0, records, 10000):
        part = folder / f"{first // 10000:05}"
        part.mkdir()
        directory = os.open(part, os.O_RDONLY)
        for number in range(first, min(first + 10000, records)):
            file = os.open(f"{number}.pgm", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=directory)
            if size > 0:
                os.write(file, data)
            os.close(file)
        os.close(directory)
    return "{format: image_folder, root: data}"


# Each makes a dataset in an empty folder, and returns the section that reads it.
KINDS: dict[str, Callable[[Path, int, int, int], str]] = {
    "image_folder": images, "webdataset": webdataset, "tfrecord": tfrecord, "mds": mds,
    "jsonl": jsonl, "raw": raw, "npy": npy, "tokens": tokens,
}  # fmt: skip
FIXED = ("raw", "npy", "tokens")
