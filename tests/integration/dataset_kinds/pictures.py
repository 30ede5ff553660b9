"""Formats of pictures."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import numpy as np

from .kind import Kind, numbers


class ImageFolder(Kind):
    format = "image_folder"
    name = "pictures"
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
    name = "photos"
    all_ways = True
    graph = "graph: [{decode: {}}, {center_crop: {size: 48}}]\n"
    pair = ("cat/0.jpg", "dog/1.jpg")
    count = 6
    drawn: list[bytes] = []  # JPEGs without any padding
    pixels: dict[bytes, bytes] = {}  # by the digest of a JPEG's scan

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
