"""Small images and short pipelines that cost a great deal to make samples of."""

from __future__ import annotations

import struct
from pathlib import Path


def progressive(side: int) -> bytes:
    """Return a grey-blue progressive JPEG, 4:2:0, of a first scan without any detail."""

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    quant = segment(0xDB, b"\0" + b"\x10" * 64)
    parts = b"\x01\x22\0\x02\x11\0\x03\x11\0"
    frame = segment(0xC2, struct.pack(">BHHB", 8, side, side, 3) + parts)
    table = segment(0xC4, b"\0\x01" + b"\0" * 15 + b"\0")  # one code: 0, for no change
    scan = segment(0xDA, b"\x03\x01\0\x02\0\x03\0" + b"\0\0\0")
    bits = 6 * (-(-side // 16)) ** 2
    assert bits % 8 == 0
    return b"\xff\xd8" + quant + frame + table + scan + b"\0" * (bits // 8) + b"\xff\xd9"


def write_progressive(folder: Path, count: int, side: int = 8000) -> None:
    """Write an image folder of such images."""
    (folder / "a").mkdir(parents=True, exist_ok=True)
    data = progressive(side)
    for number in range(count):
        (folder / f"a/{number}.jpg").write_bytes(data)


def live_resizes(count: int, side: int = 6000) -> tuple[str, list[str]]:
    """Return the ops of a graph, and its outputs, in which so many large images live at once."""
    ops = "  - decode\n"
    for i in range(count):
        ops += f"  - resize: {{in: image, out: a{i}, size: [{side}, {side}]}}\n"
    for i in range(count):
        ops += f"  - color_jitter: {{in: a{i}, out: b{i}, brightness: 0.1}}\n"
        ops += f"  - center_crop: {{in: b{i}, out: c{i}, size: 8}}\n"
    return ops, [f"c{i}" for i in range(count)]


def slow_ops(count: int, side: int = 8000) -> str:
    """Return the ops of a graph that takes minutes for a sample."""
    jitter = "{in: image, brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}"
    return (
        f"  - decode\n  - resize: {{size: [{side}, {side}]}}\n"
        + f"  - color_jitter: {jitter}\n" * count
        + "  - resize: {size: [8, 8]}\n"
    )
