"""Datasets whose files change under a real daemon: what a loader gets is what the files held at
some moment after it was opened, whatever is cached where.

The formats are those of the reference, so that one that comes later fails here until DATASETS has
one of it. What the files hold is told by readers of a few lines each; what a JPEG holds, by a
daemon that keeps nothing and never sees a file change.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD, ROOT, DaemonProcess

sys.path.insert(0, str(ROOT / "tests/testing"))

import fuse_storage
import mindrecord_files
import riegeli_files

import feedwater

LOOK_S = 1.1  # a running job looks at its folders once a second
TICK_S = 0.03  # file times move in ticks of the kernel; a change within one does not show


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, shape, dtype=np.uint8)


class Kind:
    """A format's dataset of small files, with fields `image` and perhaps `label`."""

    extra = ""  # of `dataset:`, beside format, root and path; PATH stands for the latter
    graph = ""
    outputs = "image, label"
    # Whether every cache and decoder processes have a part in it. What lies between a file and a
    # record is the same for all formats with columns: two ways tell whether a format plays along.
    all_ways = False
    # Its files are unpacked, and records read from what was unpacked: a change is seen when a job
    # looks at its files, not when it reads.
    is_unpacked = False


class ImageFolder(Kind):
    format = "image_folder"
    all_ways = True
    graph = "graph: [{decode: {}}, {center_crop: {size: 8}}]\n"
    pair = ("cat/0.ppm", "dog/1.ppm")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        side = 10 + 2 * longer
        return {
            f"{name}/{i}.ppm": b"P6\n%d %d\n255\n" % (side, side)
            + numbers(version * 100 + c * 10 + i, side, side, 3).tobytes()
            for c, name in enumerate(("cat", "dog"))
            for i in range(4)
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for label, name in enumerate(("cat", "dog")):
            for path in sorted((folder / name).glob("*.ppm")):
                _, size, _, pixels = path.read_bytes().split(b"\n", 3)
                width, height = map(int, size.split())
                image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
                top, left = (height - 8) // 2, (width - 8) // 2
                held.append((image[top : top + 8, left : left + 8].tobytes(), label))
        return held


class Cifar10(Kind):
    format = "cifar10"
    all_ways = True
    pair = ("data_batch_1.bin", "data_batch_3.bin")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part in (1, 2, 3):
            records = numbers(version * 100 + part, 3 + longer, 3073)
            records[:, 0] %= 10
            files[f"data_batch_{part}.bin"] = records.tobytes()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("data_batch_*.bin")):
            for record in np.fromfile(path, np.uint8).reshape(-1, 3073):
                image = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
                held.append((image.tobytes(), int(record[0])))
        return held


class Mnist(Kind):
    format = "mnist"
    all_ways = True
    pair = ("train-images-idx3-ubyte", "others")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        count = 8 + longer
        header = struct.pack(">IIII", 0x803, count, 28, 28)
        labels = numbers(version * 100 + 2, count) % 10
        return {
            "train-images-idx3-ubyte": header + numbers(version * 100, count, 28, 28).tobytes(),
            "others": header + numbers(version * 100 + 1, count, 28, 28).tobytes(),
            "train-labels-idx1-ubyte": struct.pack(">II", 0x801, count) + labels.tobytes(),
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        images = np.fromfile(folder / "train-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 784)
        labels = np.fromfile(folder / "train-labels-idx1-ubyte", np.uint8)[8:]
        return [(image.tobytes(), int(label)) for image, label in zip(images, labels)]


class Photos(Kind):
    """JPEGs, so that seek indexes, stored coefficients and decoder processes have a part in it."""

    format = "image_folder"
    all_ways = True
    graph = "graph: [{decode: {}}, {center_crop: {size: 48}}]\n"
    pair = ("cat/0.jpg", "dog/1.jpg")
    count = 6
    drawn: list[bytes] = []  # JPEGs without any padding
    pixels: dict[bytes, bytes] = {}  # by the digest of a JPEG's scan

    @classmethod
    def draw(cls, folder: Path) -> None:
        command = [BUILD / "tools/make_photos", folder / "drawn", "--count", "64"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        paths = sorted((folder / "drawn").glob("*/*.jpg"), key=lambda path: path.stat().st_size)
        cls.drawn = [path.read_bytes() for path in paths[:48]]
        daemon = DaemonProcess(folder / "d", "cpus: 2\nmemory: 1GiB\ncache: {seek_indexes: 0}\n")
        for number, jpeg in enumerate(cls.drawn):
            write(daemon.data / "still", {f"all/{number:02}.jpg": jpeg})
        rest = "sampler: {last: partial}\nbatch: {size: 8}\ncache: {kind: none}\n"
        daemon.add_pipeline("still", pipeline("photos", "still", rest=rest))
        with daemon, opened(daemon, "still") as loader:
            for image, _, number in (sample for batch in loader for sample in zip(*batch)):
                cls.pixels[cls.scan(cls.drawn[int(number)])] = np.asarray(image).tobytes()
        assert len(cls.pixels) == len(set(cls.pixels.values())) == len(cls.drawn)

    @staticmethod
    def scan(jpeg: bytes) -> bytes:
        return hashlib.sha256(jpeg[jpeg.index(b"\xff\xda") :]).digest()

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        size = max(map(len, cls.drawn)) + 100 + 10 * longer
        files = {}
        for number in range(cls.count):
            jpeg = cls.drawn[(version * cls.count + number) % len(cls.drawn)]
            comments, left = b"", size - len(jpeg)
            while left > 0:  # of at least 4 bytes each
                part = min(left, 60_000 if left - 60_000 >= 4 or left <= 60_000 else left - 4)
                comments += struct.pack(">HH", 0xFFFE, part - 2) + bytes(part - 4)
                left -= part
            name = ("cat", "dog")[number // (cls.count // 2)]
            files[f"{name}/{number % (cls.count // 2)}.jpg"] = jpeg[:2] + comments + jpeg[2:]
        return files

    @classmethod
    def held(cls, folder: Path) -> list[tuple[bytes, int]]:
        return [
            (cls.pixels[cls.scan(path.read_bytes())], label)
            for label, name in enumerate(("cat", "dog"))
            for path in sorted((folder / name).glob("*.jpg"))
        ]


class Images(Kind):
    format = "images"
    graph = "graph: [{decode: {}}, {center_crop: {size: 4}}]\n"
    outputs = "image"
    pair = ("0.ppm", "b/3.ppm")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        # A longer file has bytes behind its pixels: outputs have one size.
        return {
            name: b"P6\n4 4\n255\n" + numbers(version * 100 + i, 4, 4, 3).tobytes() + bytes(longer)
            for i, name in enumerate(("0.ppm", "1.ppm", "b/2.ppm", "b/3.ppm"))
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        paths = [*sorted(folder.glob("*.ppm")), *sorted(folder.glob("b/*.ppm"))]
        return [(path.read_bytes().split(b"\n", 3)[3][:48], 0) for path in paths]


class Cifar100(Kind):
    format = "cifar100"
    pair = ("train_1.bin", "train_2.bin")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part in (1, 2):
            records = numbers(version * 100 + part, 2 + longer, 3074)
            records[:, 0] %= 20
            records[:, 1] %= 100
            files[f"train_{part}.bin"] = records.tobytes()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("train*.bin")):
            for record in np.fromfile(path, np.uint8).reshape(-1, 3074):
                image = record[2:].reshape(3, 32, 32).transpose(1, 2, 0)
                held.append((image.tobytes(), int(record[1])))
        return held


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


class Npy(Kind):
    format = "npy"
    pair = ("image.npy", "others")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for seed, name in enumerate(("image.npy", "others", "label.npy")):
            array = numbers(version * 100 + seed, 6 + longer, *([3, 5] if seed < 2 else []))
            file = io.BytesIO()
            np.save(file, array)
            files[name] = file.getvalue()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        images, labels = (np.load(folder / f"{name}.npy") for name in ("image", "label"))
        return [(image.tobytes(), int(label)) for image, label in zip(images, labels)]


class Raw(Kind):
    format = "raw"
    extra = ", record_bytes: 9, fields: {label: {dtype: uint8}, image: {offset: 1, shape: [8]}}"
    pair = ("a.dat", "b.dat")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        return {
            f"{name}.dat": numbers(version * 100 + seed, 3 + longer, 9).tobytes()
            for seed, name in enumerate("ab")
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        records = [np.fromfile(folder / f"{name}.dat", np.uint8).reshape(-1, 9) for name in "ab"]
        return [(record[1:].tobytes(), int(record[0])) for record in np.concatenate(records)]


class Tokens(Kind):
    format = "tokens"
    extra = ", length: 5, fields: {image: tokens}"
    outputs = "image"
    pair = ("a.bin", "b.bin")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        return {
            f"{name}.bin": numbers(version * 100 + seed, 2 * 5 * (3 + longer)).tobytes()
            for seed, name in enumerate("ab")
        }

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        files = [np.fromfile(folder / f"{name}.bin", np.uint16).reshape(-1, 5) for name in "ab"]
        return [(window.tobytes(), 0) for window in np.concatenate(files)]


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


class Csv(Kind):
    format = "csv"
    pair = ("a.csv", "b.csv")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part, name in enumerate(("a.csv", "b.csv")):
            rows = numbers(version * 100 + part, 4 + longer, 2).astype(int)
            text = "".join(f"{1000 + image},{100 + label}\r\n" for image, label in rows)
            files[name] = b"image,label\r\n" + text.encode()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.csv")):
            for row in path.read_text().split()[1:]:
                image, label = row.split(",")
                held.append((struct.pack("<q", int(image)), int(label)))
        return held


class Jsonl(Kind):
    format = "jsonl"
    pair = ("a.jsonl", "b.jsonl")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part, name in enumerate(("a.jsonl", "b.jsonl")):
            lines = [
                f'{{"image": [{x:3}, {y:3}], "label": {label:3}}}'
                for x, y, label in numbers(version * 100 + part, 4 + longer, 3)
            ]
            files[name] = "\n".join(lines).encode()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob("*.jsonl")):
            for row in map(json.loads, path.read_text().splitlines()):
                held.append((np.array(row["image"], np.int64).tobytes(), row["label"]))
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


class Coco(Kind):
    format = "coco"
    extra = ", annotations: PATH/boxes.json, fields: {data: data, label: image_id}"
    graph = "graph: [{decode: {}}, {center_crop: {size: 4}}]\n"
    pair = ("0.ppm", "1.ppm")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        ids = [1000 + 10 * version + i for i in range(4)]
        listed = {
            "images": [{"id": number, "file_name": f"{i}.ppm"} for i, number in enumerate(ids)],
            "categories": [{"id": 1, "name": "x"}],
            "annotations": [{"image_id": ids[0], "category_id": 1, "bbox": [0, 0, 1, 1]}],
        }
        text = json.dumps(listed) + " " * longer
        return {
            f"{i}.ppm": b"P6\n4 4\n255\n" + numbers(version * 100 + i, 4, 4, 3).tobytes()
            for i in range(4)
        } | {"boxes.json": text.encode()}

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        return [
            ((folder / image["file_name"]).read_bytes().split(b"\n", 3)[3], image["id"])
            for image in json.loads((folder / "boxes.json").read_text())["images"]
        ]


class Voc(Kind):
    format = "voc"
    extra = ", fields: {data: data, label: width}"
    graph = "graph: [{decode: {}}, {center_crop: {size: 4}}]\n"
    pair = ("JPEGImages/0.jpg", "JPEGImages/1.jpg")

    @staticmethod
    def files(version: int, longer: int) -> dict[str, bytes]:
        files = {"ImageSets/Main/train.txt": b"0\n1\n2\n3\n"}
        for i in range(4):
            pixels = numbers(version * 100 + i, 4, 4, 3).tobytes()
            files[f"JPEGImages/{i}.jpg"] = b"P6\n4 4\n255\n" + pixels
            width = 1000 + 10 * version + i
            text = f"<annotation><size><width>{width}</width></size></annotation>" + " " * longer
            files[f"Annotations/{i}.xml"] = text.encode()
        return files

    @staticmethod
    def held(folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for i in range(4):
            image = (folder / f"JPEGImages/{i}.jpg").read_bytes().split(b"\n", 3)[3]
            text = (folder / f"Annotations/{i}.xml").read_text()
            held.append((image, int(re.search(r"<width>(\d+)<", text).group(1))))
        return held


class Columnar(Kind):
    """Files that pyarrow has written (tests/source/columnar/make.py) with other bytes in them."""

    extra = ", fields: {image: {from: image, dtype: uint8, shape: [20]}, label: label}"
    is_unpacked = True

    @classmethod
    def template(cls, rows: int) -> tuple[bytes, bytes, bytes]:
        path = ROOT / f"tests/source/columnar/template-{rows}.{cls.format}"
        return path.read_bytes(), b"\xa5" * 20 * rows, struct.pack("<q", 0x1122334455667788) * rows

    @classmethod
    def files(cls, version: int, longer: int) -> dict[str, bytes]:
        files = {}
        for part, name in enumerate(cls.pair):
            rows = 5 + longer
            data, image_bytes, label_bytes = cls.template(rows)
            images = numbers(version * 100 + part, rows, 20).tobytes()
            labels = struct.pack(f"<{rows}q", *(100 * version + 10 * part + i for i in range(rows)))
            files[name] = data.replace(image_bytes, images).replace(label_bytes, labels)
        return files

    @classmethod
    def held(cls, folder: Path) -> list[tuple[bytes, int]]:
        held = []
        for path in sorted(folder.glob(f"*.{cls.format}")):
            data = path.read_bytes()
            rows = next(rows for rows in (5, 6) if len(cls.template(rows)[0]) == len(data))
            template, image_bytes, label_bytes = cls.template(rows)
            images, labels = template.index(image_bytes), template.index(label_bytes)
            held += [
                (
                    data[images + 20 * i : images + 20 * i + 20],
                    struct.unpack_from("<q", data, labels + 8 * i)[0],
                )
                for i in range(rows)
            ]
        return held


class Parquet(Columnar):
    format = "parquet"
    pair = ("a.parquet", "b.parquet")


class Arrow(Columnar):
    format = "arrow"
    pair = ("a.arrow", "b.arrow")


ALL_DATASETS = {
    "pictures": ImageFolder,
    "photos": Photos,
    "cifar10": Cifar10,
    "mnist": Mnist,
    "images": Images,
    "cifar100": Cifar100,
    "webdataset": Webdataset,
    "npy": Npy,
    "raw": Raw,
    "tokens": Tokens,
    "tfrecord": Tfrecord,
    "mds": Mds,
    "array_record": ArrayRecord,
    "csv": Csv,
    "jsonl": Jsonl,
    "lmdb": Lmdb,
    "mindrecord": MindRecord,
    "coco": Coco,
    "voc": Voc,
    "parquet": Parquet,
    "arrow": Arrow,
}
HAS_COLUMNAR = (BUILD / "bin/feedwater-columnar").exists()
DATASETS = {
    name: kind for name, kind in ALL_DATASETS.items() if HAS_COLUMNAR or not kind.is_unpacked
}


@pytest.fixture(scope="module", autouse=True)
def photos_drawn(tmp_path_factory):
    Photos.draw(tmp_path_factory.mktemp("drawn"))


def test_every_format_is_covered():
    reference = (ROOT / "config/reference/formats.md").read_text()
    formats = {kind.format for kind in ALL_DATASETS.values()}
    assert set(re.findall(r"^## (\w+)$", reference, re.M)) == formats
    if not HAS_COLUMNAR:
        pytest.skip("parquet and arrow: without feedwater-columnar (scripts/setup --parquet)")


# --- how files change. Each takes the folder and the new files, of the same size if not `longer`.


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def in_place(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        with open(folder / name, "r+b") as file:
            file.write(data)
            file.truncate()


def by_rename(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / "new").write_bytes(data)
        os.replace(folder / "new", folder / name)


def in_place_with_old_times(folder: Path, files: dict[str, bytes]) -> None:
    old = {name: os.stat(folder / name) for name in files}
    in_place(folder, files)
    for name, info in old.items():
        os.utime(folder / name, ns=(info.st_atime_ns, info.st_mtime_ns))


def in_place_with_future_times(folder: Path, files: dict[str, bytes]) -> None:
    in_place(folder, files)
    for name in files:
        os.utime(folder / name, ns=(0, time.time_ns() + 10**16))


def by_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Put another folder, which was made before, in the place of the whole old one."""
    os.rename(folder, folder.with_name(f"{folder.name}.{time.monotonic_ns()}"))
    os.rename(folder.with_name(folder.name + ".new"), folder)


CHANGES = {  # how, and whether the files become longer (and shorter again)
    "in-place": (in_place, False),
    "by-rename": (by_rename, False),
    "old-times": (in_place_with_old_times, False),
    "future-times": (in_place_with_future_times, False),
    "resized": (in_place, True),
    "resized-by-rename": (by_rename, True),
    "exchanged": (None, False),
    "by-folder": (by_folder, False),
}


class Changing:
    """The files of one dataset, in one version after another."""

    def __init__(self, folder: Path, kind: str, change: str) -> None:
        self.folder = folder
        self.kind = DATASETS[kind]
        self.how, self.resizes = CHANGES[change]
        self.version = 0
        write(folder, self.kind.files(0, 0))
        self.prepare()

    def prepare(self) -> None:
        if self.how is by_folder:
            write(self.folder.with_name(self.folder.name + ".new"), self.next_files())

    def next_files(self) -> dict[str, bytes]:
        version = self.version + 1
        return self.kind.files(version, version % 2 if self.resizes else 0)

    def change(self) -> None:
        time.sleep(TICK_S)
        if self.how is not None:
            self.how(self.folder, self.next_files())
            self.version += 1
            self.prepare()
            return
        one, two = (self.folder / name for name in self.kind.pair)
        os.rename(one, self.folder / "away")
        os.rename(two, one)
        os.rename(self.folder / "away", two)

    def held(self) -> list[tuple[bytes, int]]:
        return self.kind.held(self.folder)


def samples(batch) -> list[tuple[int, bytes, int]]:
    return [
        (int(number), np.asarray(image).tobytes(), int(label[0]) if label else 0)
        for image, *label, number in zip(*batch)
    ]


def expect(seen: list, held: list, name: str) -> None:
    for number, image, label in seen:
        assert (image, label) == held[number], f"{name}: record {number} is not what its file held"


def opened(daemon, name: str) -> feedwater.Loader:
    return feedwater.Loader(name, address=daemon.address, output="numpy")


def expect_now(daemon, name: str, dataset: Changing, epochs: int = 1, decoded: str = "") -> dict:
    """A new loader gives what the files hold now, decoded in this way; return its last state."""
    held = dataset.held()
    with opened(daemon, name) as loader:
        for _ in range(epochs):
            seen = [sample for batch in loader for sample in samples(batch)]
            assert sorted(number for number, *_ in seen) == list(range(len(held))), name
            expect(seen, held, name)
        assert not decoded or decoded in jobs(daemon)[0]["decoded"], name
        return loader.state_dict()


def forever(loader):
    while True:
        yield from loader


def expect_old_or_error(batches, held: list, name: str) -> bool:
    """A running loader goes on with what it began with, or says which file is another one now."""
    try:
        for batch in itertools.islice(batches, 3 * len(held)):
            expect(samples(batch), held, name)
    except feedwater.FailedPrecondition as error:
        text = str(error)
        assert re.search(r"has changed|had \d+ when|truncated since it was indexed", text), text
        assert f"/{name}/" in text or f"'{name}' of root" in text, text
        return True
    return False


@dataclass(frozen=True)
class Way:
    """What lies between the files and the batches."""

    cache: str  # of feedwater.yaml
    kind: str  # of the pipelines
    isolation: str = "none"
    photos: str = ""  # how the daemon says that it decodes those, in a second epoch
    is_for_all: bool = False  # formats


WAYS = {
    "none": Way("ram: 0, disk: 0, seek_indexes: 0", "none", is_for_all=True),
    "memory": Way("ram: 64MiB, disk: 0", "bytes", is_for_all=True),
    "disk": Way("ram: 0, disk: 64MiB", "bytes"),
    "decoded": Way("ram: 8MiB, disk: 64MiB", "decoded"),
    "coefficients": Way("ram: 8MiB, disk: 64MiB", "coefficients", photos="coefficients"),
    "seek-indexes": Way("ram: 0, disk: 0", "none", photos="own_with_seek_index"),
    "decoders": Way("ram: 0, disk: 0", "none", "process", "own_with_seek_index"),
    "decoders-coefficients": Way("ram: 64MiB", "coefficients", "process", "coefficients"),
}


def jobs(daemon) -> list[dict]:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"]


@pytest.mark.parametrize("way", WAYS)
def test_a_loader_gets_what_the_files_held_after_it_was_opened(make_daemon, way):
    way = WAYS[way]
    daemon = make_daemon(
        config=f"cpus: 2\nmemory: 1GiB\ncache: {{{way.cache}}}\nisolation: {way.isolation}\n"
    )
    datasets = {}
    for kind, made in DATASETS.items():
        for change in CHANGES if made.all_ways or way.is_for_all else ():
            name = f"{kind}-{change}"
            datasets[name] = Changing(daemon.data / name, kind, change)
            rest = (
                "sampler: {shuffle: full, seed: 5, last: partial}\nbatch: {size: 2}\n"
                f"on_bad_sample: substitute\ncache: {{kind: {way.kind}}}\n"
            )
            daemon.add_pipeline(name, pipeline(kind, name, rest=rest))
    daemon.start()
    for name, dataset in datasets.items():
        # Changed between two loaders; the first one has filled the caches. Its state is refused.
        decoded = way.photos if dataset.kind is Photos else ""
        state = expect_now(daemon, name, dataset, 2, decoded)
        dataset.change()
        with pytest.raises(feedwater.FailedPrecondition, match="dataset"):
            with opened(daemon, name) as loader:
                loader.load_state_dict(state)
        expect_now(daemon, name, dataset)
        # Changed while a loader runs, with a cache that is filled, or that is not.
        for count in (1, len(dataset.held())):  # in the first epoch, and after it
            held = dataset.held()
            with opened(daemon, name) as loader:
                batches = forever(loader)
                for batch in itertools.islice(batches, count):
                    expect(samples(batch), held, name)
                dataset.change()
                ended = expect_old_or_error(batches, held, name)
                # The files of a folder that was moved away are open, and as they were.
                is_held = dataset.how is by_folder or dataset.kind.is_unpacked
                assert ended or way.kind != "none" or is_held, name
                expect_now(daemon, name, dataset)
    # Changed while no daemon runs.
    assert daemon.stop() == 0
    for dataset in datasets.values():
        dataset.change()
    daemon.start()
    for name, dataset in datasets.items():
        expect_now(daemon, name, dataset)


def pipeline(kind: str, name: str, root: str = "data", rest: str = "") -> str:
    made = DATASETS[kind]
    extra = made.extra.replace("PATH", name)
    return (
        f"version: 1\n"
        f"dataset: {{format: {made.format}, root: {root}, path: {name}{extra}}}\n"
        f"{made.graph}outputs: [{made.outputs}, sample_id]\n{rest}"
    )


@pytest.mark.parametrize("kind", DATASETS)
def test_records_that_are_read_at_once_are_of_one_state(make_daemon, kind):
    """In stored order records that follow one another are one read."""
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    dataset = Changing(daemon.data / kind, kind, "by-folder")
    rest = "sampler: {shuffle: none, last: partial}\nbatch: {size: 3}\ncache: {kind: none}\n"
    daemon.add_pipeline("ordered", pipeline(kind, kind, rest=rest))
    time.sleep(TICK_S)
    daemon.start()
    held = dataset.held()
    with feedwater.Loader("ordered", address=daemon.address, output="numpy", slots=2) as loader:
        batches = forever(loader)
        first = next(batches)  # while it is held, the third batch is not begun
        time.sleep(LOOK_S)
        dataset.change()
        expect(samples(first), held, kind)
        del first
        expect_old_or_error(batches, held, kind)


def test_a_root_is_the_folder_that_its_path_leads_to_now(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    for version in (1, 2):
        write(daemon.data / f"v{version}/cifar", Cifar10.files(version, 0))
    link = daemon.data / "current"
    os.symlink("v1", link)
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("roots: {", f"roots: {{current: {link}, "))
    rest = "batch: {size: 2}\ncache: {kind: bytes}\n"
    daemon.add_pipeline("current", pipeline("cifar10", "cifar", "current", rest))
    daemon.start()
    with opened(daemon, "current") as running:
        batches = forever(running)
        expect(samples(next(batches)), Cifar10.held(daemon.data / "v1/cifar"), "v1")
        os.symlink("v2", daemon.data / "next")
        os.replace(daemon.data / "next", link)
        with opened(daemon, "current") as loader:
            for batch in loader:
                expect(samples(batch), Cifar10.held(daemon.data / "v2/cifar"), "v2")
        for batch in itertools.islice(batches, 20):
            expect(samples(batch), Cifar10.held(daemon.data / "v1/cifar"), "v1")


@pytest.mark.skipif(not fuse_storage.available(), reason="needs root and /dev/fuse")
def test_a_change_that_the_kernel_has_not_heard_of_is_seen(make_daemon):
    """As on NFS, whose attributes the kernel keeps for a while."""
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    source, mount = daemon.data / "source", daemon.data / "mount"
    datasets = {name: Changing(source / name, name, "in-place") for name in DATASETS}
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("roots: {", f"roots: {{far: {mount}, "))
    for name in DATASETS:
        rest = "batch: {size: 2}\ncache: {kind: bytes}\nsampler: {last: partial}\n"
        daemon.add_pipeline(name, pipeline(name, name, "far", rest))
    with fuse_storage.FuseStorage(source, mount, keeps=3600):
        daemon.start()
        for name, dataset in datasets.items():
            expect_now(daemon, name, dataset, epochs=2)
            dataset.change()
            expect_now(daemon, name, dataset)
        assert daemon.stop() == 0


def test_a_mere_copy_is_the_same_dataset(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    for kind, made in DATASETS.items():
        write(daemon.data / kind, made.files(0, 0))
        daemon.add_pipeline(kind, pipeline(kind, kind, rest="batch: {size: 2}\n"))
    daemon.start()
    for kind, made in DATASETS.items():
        folder = daemon.data / kind
        with opened(daemon, kind) as loader:
            batches = iter(loader)
            next(batches)
            state = loader.state_dict()
        subprocess.run(["cp", "-r", folder, daemon.data / "copy"], check=True)
        subprocess.run(["rm", "-r", folder], check=True)
        os.rename(daemon.data / "copy", folder)
        with opened(daemon, kind) as loader:
            loader.load_state_dict(state)
            expect(samples(next(iter(loader))), made.held(folder), kind)


class ManyPictures:
    """More files than a daemon looks into."""

    count = 3000
    looked_into = 1024  # of them, at most

    @staticmethod
    def picture(seed: int) -> bytes:
        return b"P6\n8 8\n255\n" + numbers(seed, 8, 8, 3).tobytes()

    def __init__(self, daemon, **files: bytes) -> None:
        self.folder = daemon.data / "many/all"
        write(self.folder, {self.name(i): self.picture(i) for i in range(self.count)} | files)
        rest = (
            "sampler: {shuffle: none, last: partial}\nbatch: {size: 100}\n"
            "on_bad_sample: skip_with_count\n"
        )
        daemon.add_pipeline("many", pipeline("pictures", "many", rest=rest))
        time.sleep(TICK_S)

    @staticmethod
    def name(number: int) -> str:
        return f"{number:04}.ppm"

    def overlooked(self, after: int) -> int:
        looked_into = {self.count * i // self.looked_into for i in range(self.looked_into)}
        return next(i for i in range(after, self.count) if i not in looked_into)


def test_a_file_that_changed_while_there_was_no_daemon_is_refused(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    changed = many.overlooked(after=2000)
    daemon.start()
    with feedwater.Loader("many", address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        next(batches)
        daemon.kill()
        time.sleep(TICK_S)
        in_place(many.folder, {many.name(changed): many.picture(-1 % 2**32)})
        time.sleep(TICK_S)
        daemon.start()
        with opened(daemon, "many") as other:  # it has the same digest, and has read nothing yet
            assert other.state_dict()["dataset"] == loader.state_dict()["dataset"]
            next(iter(other))
        with pytest.raises(feedwater.FailedPrecondition, match=rf"/{changed}.ppm has changed"):
            for _ in batches:
                pass


def test_a_file_that_is_removed_ends_the_job_with_its_name_and_the_cure(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    daemon.start()
    with feedwater.Loader("many", address=daemon.address, output="numpy", slots=2) as loader:
        batches = iter(loader)
        next(batches)
        (many.folder / many.name(2500)).unlink()
        with pytest.raises(feedwater.Error, match=r"2500\.ppm.*\. Open a new loader") as caught:
            for _ in batches:
                pass
    assert caught.value.code in ("NOT_FOUND", "FAILED_PRECONDITION")  # its folder changed, too
    with opened(daemon, "many") as loader:
        assert len(loader.dataset) == many.count - 1


def test_an_empty_file_that_is_filled_is_no_bad_sample_for_ever(make_daemon):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\n")
    many = ManyPictures(daemon)
    (many.folder / many.name(7)).write_bytes(b"")
    time.sleep(TICK_S)
    daemon.start()
    with opened(daemon, "many") as loader:
        for _ in loader:
            pass
        assert loader.stats()["real_samples"] == many.count - 1
    (many.folder / many.name(7)).write_bytes(many.picture(7))
    time.sleep(TICK_S)
    with (
        opened(daemon, "many") as loader,
        pytest.raises(feedwater.FailedPrecondition, match=r"had 0 when the dataset was indexed"),
    ):
        for _ in loader:
            pass
    with opened(daemon, "many") as loader:
        for _ in loader:
            pass
        assert loader.stats()["real_samples"] == many.count


@pytest.mark.parametrize("kind", ["none", "bytes"])
def test_a_link_to_nothing_is_a_bad_sample(make_daemon, kind):
    daemon = make_daemon(config="cpus: 1\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    write(daemon.data / "links", ImageFolder.files(0, 0))
    os.symlink("gone.ppm", daemon.data / "links/cat/1.ppm.ppm")
    rest = "batch: {size: 3}\non_bad_sample: skip_with_count\nmax_bad_fraction: 1\n"
    rest += f"sampler: {{last: partial}}\ncache: {{kind: {kind}}}\n"
    daemon.add_pipeline("links", pipeline("pictures", "links", rest=rest))
    daemon.start()
    with opened(daemon, "links") as loader:
        for _ in range(2):
            for _ in loader:
                pass
        assert (loader.stats()["real_samples"], loader.stats()["skipped"]) == (16, 2)
