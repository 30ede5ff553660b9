"""Formats whose files hold many records, each with its own length."""

from __future__ import annotations

import io
import itertools
import json
import struct
import sys
import tarfile
from pathlib import Path

from daemon_process import ROOT

sys.path.insert(0, str(ROOT / "tests/testing"))

import mindrecord_files
import riegeli_files

from .kind import Kind, numbers
from .pictures import ImageFolder


class Webdataset(Kind):
    format = "webdataset"
    extra = (
        ", fields: {image: {from: bin, dtype: uint8, shape: [20]}, "
        "label: {from: cls, dtype: int64}}"
    )
    pair = ("a-0.tar", "a-1.tar")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for shard in (0, 1):
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for i in range(3 + longer):
                    member = tarfile.TarInfo(f"{shard}{i}.bin")
                    member.size = 20
                    tar.addfile(member, io.BytesIO(numbers(version * 100 + shard * 10 + i, 20)))
                    member = tarfile.TarInfo(f"{shard}{i}.cls")
                    member.size = 1
                    tar.addfile(member, io.BytesIO(b"%d" % (version % 10)))
            files[f"a-{shard}.tar"] = archive.getvalue()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path) as tar:
                contents = [tar.extractfile(member).read() for member in tar]
            held += [(image, int(label)) for image, label in zip(contents[::2], contents[1::2])]
        return held


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


class Tfrecord(Kind):
    """Examples of a PPM picture and a label, which is the last byte of the message."""

    format = "tfrecord"
    graph = ImageFolder.graph
    pair = ("0.tfrecord", "2.tfrecord")

    @staticmethod
    def field(number: int, data: bytes) -> bytes:
        length = len(data)  # below 2^14, in two bytes
        return bytes([number << 3 | 2, length & 0x7F | 0x80, length >> 7]) + data

    @classmethod
    def feature(cls, name: bytes, kind: int, value: bytes) -> bytes:
        data = cls.field(2, cls.field(kind, cls.field(1, value)))
        return cls.field(1, cls.field(1, name) + data)

    @staticmethod
    def record(data: bytes) -> bytes:
        def masked(data: bytes) -> bytes:
            crc = crc32c(data)
            return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

        length = struct.pack("<Q", len(data))
        return length + masked(length) + data + masked(data)

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part in range(3):
            records = []
            for i in range(3 + longer):
                seed = version * 100 + part * 10 + i
                picture = b"P6\n8 8\n255\n" + numbers(seed, 8, 8, 3).tobytes()
                image = cls.feature(b"data", 1, picture)
                label = cls.feature(b"label", 3, bytes([seed % 10]))
                records.append(cls.record(cls.field(1, image + label)))
            files[f"{part}.tfrecord"] = b"".join(records)
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.tfrecord")):
            data, at = path.read_bytes(), 0
            while at < len(data):
                (length,) = struct.unpack_from("<Q", data, at)
                record = data[at + 12 : at + 12 + length]
                pixels = record.index(b"255\n", record.index(b"P6\n")) + 4
                held.append((record[pixels : pixels + 8 * 8 * 3], record[-1]))
                at += length + 16
        return held


class Mds(Kind):
    """Shards of MosaicML Streaming with a picture and a label; index.json is written last."""

    format = "mds"
    graph = ImageFolder.graph
    pair = ("shard.0.mds", "shard.2.mds")
    columns = {
        "column_names": ["data", "label"],
        "column_encodings": ["png", "int"],
        "column_sizes": [None, 8],
    }

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        files, shards = {}, []
        for part in range(3):
            samples = []
            for i in range(3 + longer):
                seed = version * 100 + part * 10 + i
                picture = b"P6\n8 8\n255\n" + numbers(seed, 8, 8, 3).tobytes()
                samples.append(struct.pack("<I", len(picture)) + picture + struct.pack("<q", seed))
            at = 4 * (len(samples) + 2)
            offsets = [at + sum(map(len, samples[:i])) for i in range(len(samples) + 1)]
            data = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + b"".join(samples)
            name = f"shard.{part}.mds"
            files[name] = data
            raw = {"basename": name, "bytes": len(data), "hashes": {}}
            shard = {"format": "mds", "version": 2, "samples": len(samples), "raw_data": raw}
            shards.append({**cls.columns, **shard, "compression": None, "zip_data": None})
        files["index.json"] = json.dumps({"version": 2, "shards": shards}).encode()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.mds")):
            data = path.read_bytes()
            (count,) = struct.unpack_from("<I", data)
            for begin, end in itertools.pairwise(struct.unpack_from(f"<{count + 1}I", data, 4)):
                pixels = data.index(b"255\n", begin) + 4
                (label,) = struct.unpack_from("<q", data, end - 8)
                held.append((data[pixels : pixels + 8 * 8 * 3], label))
        return held


class ArrayRecord(Kind):
    """Records of eight bytes, which are the picture and, as a number, the label."""

    format = "array_record"
    extra = (
        ", fields: {image: {from: data, dtype: uint8, shape: [8]}, "
        "label: {from: data, dtype: int64, shape: []}}"
    )
    pair = ("0.array_record", "2.array_record")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        return {
            f"{part}.array_record": riegeli_files.array_record(
                [numbers(version * 100 + part * 10 + i, 8).tobytes() for i in range(3 + longer)]
            )
            for part in range(3)
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.array_record")):
            data = path.read_bytes()
            at = 64  # of the first group: a chunk header, 3 bytes, and the record
            while data[at + 24] == ord("r") and data[at + 25] == 1:
                record = data[at + 43 : at + 51]
                held.append((record, struct.unpack("<q", record)[0]))
                at += 51
        return held


class Lmdb(Kind):
    format = "lmdb"
    extra = (
        ", fields: {image: {from: data, dtype: uint8, shape: [20]}, "
        "label: {from: key, dtype: int64}}"
    )
    pair = ("data.mdb", "others")

    @staticmethod
    def page(records: list[tuple[bytes, bytes]]) -> bytes:
        """Return a leaf page as LMDB 0.9 writes it, the third of its file."""
        places, nodes = b"", b""
        for key, value in records:
            nodes = struct.pack("<HHHH", len(value), 0, 0, len(key)) + key + value + nodes
            places += struct.pack("<H", 4096 - len(nodes))
        header = struct.pack("<QHHHH", 2, 0, 2, 16 + len(places), 4096 - len(nodes))
        return (header + places).ljust(4096 - len(nodes), b"\0") + nodes

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for seed, name in enumerate(cls.pair):
            images = numbers(version * 100 + seed, 7 + longer, 20)
            records = [(b"%08d" % i, image.tobytes()) for i, image in enumerate(images)]
            free = struct.pack("<IHHQQQQQ", 4096, 0, 0, 0, 0, 0, 0, 2**64 - 1)
            main = struct.pack("<IHHQQQQQ", 0, 0, 1, 0, 1, 0, len(records), 2)
            for page in (0, 1):
                start = struct.pack("<QHHIIIQQ", page, 0, 8, 0, 0xBEEFC0DE, 1, 0, 1 << 20)
                meta = start + free + main + struct.pack("<QQ", 2, page)
                files[name] = files.get(name, b"") + meta.ljust(4096, b"\0")
            files[name] += cls.page(records)
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        page = (folder / "data.mdb").read_bytes()[8192:]
        count = (struct.unpack_from("<H", page, 12)[0] - 16) // 2
        held = []
        for at in struct.unpack_from(f"<{count}H", page, 16):
            held.append((page[at + 16 : at + 36], int(page[at + 8 : at + 16])))
        return held


class MindRecord(Kind):
    """Two files of one set, whose headers say where rows and blobs lie."""

    format = "mindrecord"
    extra = ", fields: {image: {from: data, dtype: uint8, shape: [20]}, label: label}"
    pair = ("a.mindrecord0", "a.mindrecord1")
    schema = {"data": {"type": "bytes"}, "label": {"type": "int64"}}

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for shard, name in enumerate(cls.pair):
            images = numbers(version * 100 + shard, 5 + longer, 20)
            rows = [({"label": version * 10 + i}, [x.tobytes()]) for i, x in enumerate(images)]
            files[name] = mindrecord_files.mindrecord(cls.schema, rows, list(cls.pair), shard)
        return files

    @classmethod
    def held(cls, folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for name in cls.pair:
            data = (folder / name).read_bytes()
            header = json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])
            blobs, rows = (header["header_size"] + i * header["page_size"] for i in (0, 1))
            for i in range(header["page"][0]["end_row_id"]):
                (size,) = struct.unpack_from("<Q", data, rows)
                rows += 8 + size
                (label,) = struct.unpack_from(">q", data, rows - 8)
                held.append((data[blobs + 28 * i + 8 : blobs + 28 * i + 28], label))
        return held
