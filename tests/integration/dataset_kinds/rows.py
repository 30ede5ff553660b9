"""Formats of rows and columns."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from daemon_process import ROOT

from .kind import Kind, numbers


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
