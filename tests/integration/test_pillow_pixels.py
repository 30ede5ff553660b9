"""Images of every format but JPEG have the pixels that Pillow reads.

The images of $FEEDWATER_TEST_DATA as they are, and crops of them that Pillow writes in every kind
of its formats. What is meant to differ is left out: 16 bit gray, which Pillow clips.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from daemon_process import ROOT, DaemonProcess

import feedwater

Image = pytest.importorskip("PIL.Image", reason="compares with Pillow")

DATA = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared" / "data"))
CANVAS = 640  # every image is put into so many rows and columns
KINDS = [
    (".png", mode, {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")
] + [
    (".bmp", mode, {}) for mode in ("RGB", "L", "P", "1")
] + [
    (".ppm", "RGB", {}), (".pgm", "L", {}), (".pgm", "1", {}),
    (".webp", "RGB", {"lossless": True}), (".webp", "RGB", {"quality": 40}),
    (".webp", "RGB", {"quality": 95}), (".webp", "RGBA", {"quality": 60}),
] + [
    (".tiff", mode, {"compression": way})
    for mode in ("RGB", "L", "P", "1")
    for way in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")
]  # fmt: skip
PIPELINE = f"""version: 1
dataset: {{format: image_folder, root: data, path: images}}
sampler: {{shuffle: none, last: pad}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{in: image, size: [{CANVAS}, {CANVAS}]}}
batch: {{size: 4}}
outputs: [image, sample_id, is_real]
on_bad_sample: skip_with_count
max_bad_fraction: 1
cache: {{kind: none}}
"""


def read(file: bytes) -> Image.Image | None:
    """Read an image as Pillow does; None where it does not, or where it means to differ."""
    try:
        with Image.open(io.BytesIO(file)) as image:
            if image.mode.startswith("I") or max(image.size) > CANVAS:
                return None
            return image.convert("RGB")
    except Exception:  # whatever a hostile file makes of it
        return None


def given() -> Iterator[tuple[str, bytes]]:
    """Yield the images as they are, with their suffixes."""
    suffixes = (".png", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm")
    for path in sorted(DATA.rglob("*")):
        if path.suffix.lower() in suffixes:
            yield path.suffix.lower(), path.read_bytes()


def written() -> Iterator[tuple[str, bytes]]:
    """Yield crops of several sizes in every kind, with their suffixes."""
    sources = sorted(DATA.glob("photos/*/*.JPEG"))[:3]
    for source, size in zip(sources, ((201, 134), (64, 1), (77, 256))):
        with Image.open(source) as image:
            crop = image.convert("RGB").crop((40, 30, 40 + size[0], 30 + size[1]))
        for suffix, mode, options in KINDS:
            kind = crop.convert(mode)
            if "A" in mode:
                kind.putalpha(Image.linear_gradient("L").resize(size))
            file = io.BytesIO()
            kind.save(file, Image.registered_extensions()[suffix], **options)
            yield suffix, file.getvalue()


def test_every_format_but_jpeg_has_pillows_pixels(folder):
    files = [*given(), *written()]
    if len(files) <= len(KINDS):
        pytest.skip(f"no images in {DATA}")
    daemon = DaemonProcess(folder / "d", "cpus: 2\nmemory: 1GiB\npin_cpus: false\n")
    images = daemon.data / "images" / "class"
    images.mkdir(parents=True)
    expected = []
    for suffix, file in files:
        if (image := read(file)) is None:
            continue
        (images / f"{len(expected):05}{suffix}").write_bytes(file)
        expected.append((suffix, image))
    daemon.add_pipeline("images", PIPELINE)
    compared: dict[str, int] = {}
    wrong = []
    with (
        daemon,
        feedwater.Loader(
            "images", address=daemon.address, output="numpy", rank=0, world_size=1
        ) as loader,
    ):
        assert len(loader.dataset) == len(expected)
        for batch, ids, real in loader:
            for pixels, number in zip(batch[real != 0], ids[real != 0]):
                suffix, image = expected[number]
                top, left = (CANVAS - image.height) // 2, (CANVAS - image.width) // 2
                ours = pixels[top : top + image.height, left : left + image.width]
                compared[suffix] = compared.get(suffix, 0) + 1
                if not np.array_equal(ours, np.asarray(image)):
                    most = int(np.abs(ours.astype(int) - np.asarray(image)).max())
                    wrong.append(f"{number:05}{suffix}: differs by up to {most}")
    print(compared)
    assert not wrong, wrong
    assert set(compared) >= {suffix for suffix, _, _ in KINDS}, compared
    assert sum(compared.values()) >= len(expected) * 0.9, "most of what Pillow reads is read"
