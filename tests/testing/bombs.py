"""Small images, folders and pipelines that cost a great deal to read or to make samples of."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path


def segment(marker: int, body: bytes) -> bytes:
    """Return one segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def progressive(side: int, is_complete: bool = False) -> bytes:
    """Return a grey-blue progressive JPEG, 4:2:0, of a first scan without any detail.

    With `is_complete`, scans follow that say that there is none; `side` is a power of two then.
    """
    quant = segment(0xDB, b"\0" + b"\x10" * 64)
    parts = b"\x01\x22\0\x02\x11\0\x03\x11\0"
    frame = segment(0xC2, struct.pack(">BHHB", 8, side, side, 3) + parts)
    table = segment(0xC4, b"\0\x01" + b"\0" * 15 + b"\0")  # one code: 0, for no change
    scan = segment(0xDA, b"\x03\x01\0\x02\0\x03\0" + b"\0\0\0")
    bits = 6 * (-(-side // 16)) ** 2
    assert bits % 8 == 0
    file = b"\xff\xd8" + quant + frame + table + scan + b"\0" * (bits // 8)
    for component, step in ((1, 8), (2, 16), (3, 16)) if is_complete else ():
        run = 2 * (side // step).bit_length() - 2  # one code: 2^run blocks without a coefficient
        file += segment(0xC4, b"\x10\x01" + b"\0" * 15 + bytes([run << 4]))
        file += segment(0xDA, bytes([1, component, 0, 1, 63, 0]))
        filling = (1 << 7 - run % 8) - 1  # ones, behind the zeros of the code
        file += filling.to_bytes(1 + run // 8, "big")
    return file + b"\xff\xd9"


def write_progressive(folder: Path, count: int, side: int = 8000) -> None:
    """Write an image folder of such images."""
    (folder / "a").mkdir(parents=True, exist_ok=True)
    data = progressive(side)
    for number in range(count):
        (folder / f"a/{number}.jpg").write_bytes(data)


def two_sizes(side: int, other: int = 8, rows: int = 100) -> bytes:
    """Return a black TIFF that gives its size twice: readers differ in which one they take."""
    strip = zlib.compress(bytes(3 * side * rows), 9)
    strips = -(-side // rows)
    lists = 8 + len(strip) + len(strip) % 2
    entries = [
        (256, 4, 1, side), (256, 4, 1, other), (257, 4, 1, side), (257, 4, 1, other),
        (258, 3, 3, lists + 8 * strips), (259, 3, 1, 8), (262, 3, 1, 2), (273, 4, strips, lists),
        (277, 3, 1, 3), (278, 4, 1, rows), (279, 4, strips, lists + 4 * strips),
    ]  # fmt: skip
    directory = lists + 8 * strips + 6
    return (
        struct.pack("<2sHI", b"II", 42, directory)
        + strip.ljust(lists - 8, b"\0")
        + struct.pack(f"<{2 * strips}I", *[8] * strips, *[len(strip)] * strips)
        + struct.pack("<4H", 8, 8, 8, len(entries))
        + b"".join(struct.pack("<HHII", *entry) for entry in entries)
        + struct.pack("<I", 0)
    )


def write_links(folder: Path, levels: int = 30) -> None:
    """Write an image folder of 2^levels paths: each folder has two links to the next one."""
    for level in range(levels):
        (folder / f"c{level:02}").mkdir(parents=True)
        for name in ("x", "y") if level + 1 < levels else ():
            (folder / f"c{level:02}" / name).symlink_to(f"../c{level + 1:02}")


def live_resizes(count: int, side: int = 6000) -> tuple[str, list[str]]:
    """Return the ops of a graph, and its outputs, in which so many large images live at once."""
    ops = "  - decode\n"
    for i in range(count):
        ops += f"  - resize: {{in: image, out: a{i}, size: [{side}, {side}]}}\n"
    for i in range(count):
        ops += f"  - random_equalize: {{in: a{i}, out: b{i}}}\n"
        ops += f"  - center_crop: {{in: b{i}, out: c{i}, size: 8}}\n"
    return ops, [f"c{i}" for i in range(count)]


def slow_ops(count: int, side: int = 8000) -> str:
    """Return the ops of a graph that takes half a minute for a sample."""
    jitter = "{in: image, brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}"
    return (
        f"  - decode\n  - resize: {{size: [{side}, {side}]}}\n"
        + f"  - color_jitter: {jitter}\n" * count
        + "  - resize: {size: [8, 8]}\n"
    )
