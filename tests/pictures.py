"""Small picture folders for tests, written with nothing but NumPy and zlib.

Every pixel follows from the picture's number, so a test can say what a batch must hold without
decoding anything.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

CLASSES = ("cat", "dog", "owl")


def pixels(number: int) -> np.ndarray:
    """Return picture `number`: uint8, (height, width, 3), sides even and at least 8."""
    height, width = 8 + 2 * (number % 5), 8 + 2 * (number % 7)
    rng = np.random.Generator(np.random.PCG64(number))
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(image: np.ndarray) -> bytes:
    """Return an RGB or grey picture as the bytes of a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    height, width = image.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if image.ndim == 3 else 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def write_folder(folder: Path, count: int, bad: tuple[int, ...] = ()) -> None:
    """Write `count` pictures, in equal parts of the classes; those in `bad` are cut in the middle.

    Record i of the dataset is picture i: paths sort as numbers do.
    """
    for number in range(count):
        name = CLASSES[number * len(CLASSES) // count]
        path = folder / name / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = png(pixels(number))
        path.write_bytes(data[: len(data) // 2] if number in bad else data)


def label(number: int, count: int) -> int:
    """Return the class number of a picture."""
    return number * len(CLASSES) // count


def center(number: int, side: int = 8) -> np.ndarray:
    """Return what `center_crop` leaves of a picture."""
    image = pixels(number)
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    return image[top : top + side, left : left + side]


def pattern(number: int, count: int, side: int = 16) -> np.ndarray:
    """Return a picture whose class can be learnt: stripes along or across, or a chessboard, in
    colours and phases of its own, under noise.
    """
    rng = np.random.Generator(np.random.PCG64(1000 + number))
    rows, columns = np.indices((side, side)) + rng.integers(0, 4, (2, 1, 1))
    bright = (rows // 2 % 2, columns // 2 % 2, (rows // 2 + columns // 2) % 2)[label(number, count)]
    dark, light = rng.integers(0, 80, 3), rng.integers(150, 230, 3)
    image = np.where(bright[..., None] == 1, light, dark) + rng.normal(0, 12, (side, side, 3))
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def write_patterns(folder: Path, count: int, side: int = 16) -> None:
    """Write `count` learnable pictures, in equal parts of the classes, in record order."""
    for number in range(count):
        path = folder / CLASSES[label(number, count)] / f"{number:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pattern(number, count, side)))
