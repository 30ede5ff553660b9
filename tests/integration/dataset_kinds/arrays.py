"""Formats of records of one size."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from .kind import Kind, numbers


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
