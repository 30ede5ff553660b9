"""Masks of `coco` and `voc`, from their files to a trainer: mask, image and boxes agree.

Instances are rectangles whose image has their number in its red channel, so that a batch says by
itself whether its mask is right, whatever was cropped and mirrored.
"""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD
from pictures import png

import feedwater

CONFIG = "cpus: 2\nmemory: 1GiB\ncache: {ram: 64MiB, disk: 64MiB}\n"
IMAGES = 24
HEIGHT, WIDTH = 40, 56
GRAPH = """graph:
  - decode:                 {in: data, out: image}
  - decode:                 {in: masks, out: mask, mode: index}
  - random_crop:            {in: [image, mask, boxes, labels, instance], size: [32, 40]}
  - random_horizontal_flip: {in: [image, mask, boxes, labels, instance]}
batch: {size: 6}
outputs: [image, mask, {boxes: {max_rows: 9}}, {labels: {max_rows: 9}}, {instance: {max_rows: 9}}]
"""
FIELDS = "{data: data, masks: masks, boxes: boxes, labels: labels, instance: instance}"


def drawn(number: int) -> list[tuple[int, int, int, int]]:
    """Return rectangles that do not overlap: left, top, right and bottom edge."""
    random = np.random.Generator(np.random.PCG64(number))
    cells = [(x, y) for x in range(0, WIDTH, 14) for y in range(0, HEIGHT - 12, 13)]
    found = []
    for i in random.permutation(len(cells))[: number % 7]:
        left, top = (int(side) for side in cells[i] + random.integers(0, 4, 2))
        width, height = (int(side) for side in random.integers(4, 9, 2))
        found.append((left, top, left + width, top + height))
    return found


def labels_of(number: int) -> np.ndarray:
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    for i, (left, top, right, bottom) in enumerate(drawn(number)):
        labels[top:bottom, left:right] = i + 1
    return labels


def image_of(number: int) -> np.ndarray:
    other = np.random.Generator(np.random.PCG64(100 + number)).integers(0, 256, (HEIGHT, WIDTH, 2))
    return np.dstack([labels_of(number), other]).astype(np.uint8)


def runs_of(mask: np.ndarray) -> list[int]:
    """Return COCO's run lengths of a mask, down its columns."""
    flat = np.concatenate([[0], mask.T.ravel(), [0]])
    borders = np.flatnonzero(np.diff(flat))
    return np.diff([0, *borders, mask.size]).tolist()


def write_coco(folder: Path) -> None:
    (folder / "pictures").mkdir(parents=True)
    images, annotations = [], {}
    for number in range(IMAGES):
        name = f"{number}.png"
        (folder / "pictures" / name).write_bytes(png(image_of(number)))
        images.append({"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT})
        for i, (left, top, right, bottom) in enumerate(drawn(number)):
            polygon = [left, top, right, top, right, bottom, left, bottom]
            runs = runs_of(labels_of(number) == i + 1)
            annotations[i, number] = {
                "image_id": number,
                "category_id": 1 + i % 3,
                "bbox": [left, top, right - left, bottom - top],
                "iscrowd": i % 2,
                "segmentation": {"size": [HEIGHT, WIDTH], "counts": runs} if i % 2 else [polygon],
            }
    listed = {
        "images": images,
        "annotations": [annotations[key] for key in sorted(annotations)],  # an image's lie apart
        "categories": [{"id": i, "name": f"c{i}"} for i in (1, 2, 3)],
    }
    (folder / "instances.json").write_text(json.dumps(listed))


def palette_png(labels: np.ndarray) -> bytes:
    """Return labels as a PNG of 8 bits whose palette has other colours, as VOC's are."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width = labels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in labels)
    palette = bytes(range(255, -1, -1)) * 3
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", palette)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def write_voc(folder: Path) -> None:
    for name in ("JPEGImages", "SegmentationObject", "Annotations", "ImageSets/Segmentation"):
        (folder / name).mkdir(parents=True)
    for number in range(IMAGES):
        (folder / f"JPEGImages/{number}.jpg").write_bytes(png(image_of(number)))
        labels = labels_of(number)
        (folder / f"SegmentationObject/{number}.png").write_bytes(palette_png(labels))
        objects = "".join(
            f"<object><name>dog</name><bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
            f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
            for left, top, right, bottom in drawn(number)
        )
        (folder / f"Annotations/{number}.xml").write_text(
            f"<annotation><size><width>{WIDTH}</width><height>{HEIGHT}</height></size>{objects}"
            "</annotation>"
        )
    names = "".join(f"{number}\n" for number in range(IMAGES))
    (folder / "ImageSets/Segmentation/all.txt").write_text(names)


WRITERS = {"coco": write_coco, "voc": write_voc}
DATASETS = {
    "coco": "{format: coco, root: data, path: coco/pictures, "
    f"annotations: coco/instances.json, fields: {FIELDS}}}",
    "voc": f"{{format: voc, root: data, path: voc, image_set: Segmentation/all, fields: {FIELDS}}}",
}


def pipeline(name: str, more: str = "") -> str:
    return (
        f"version: 1\ndataset: {DATASETS[name]}\nsampler: {{shuffle: full, seed: 3}}\n{GRAPH}{more}"
    )


def with_data(daemon):
    for name, write in WRITERS.items():
        write(daemon.data / name)
    return daemon


@pytest.fixture
def daemon(make_daemon):
    return with_data(make_daemon(config=CONFIG))


def batches(daemon, name: str, epochs: int = 1) -> list[dict]:
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        return [
            {field: [np.array(row) for row in value] for field, value in batch.items()}
            for _ in range(epochs)
            for batch in loader
        ]


def check(batch: dict) -> int:
    """Return how many boxes lie within their image as a whole."""
    whole = 0
    for image, mask, boxes, instances in zip(
        batch["image"], batch["mask"], batch["boxes"], batch["instance"]
    ):
        assert mask.dtype == np.uint8 and mask.shape == (32, 40, 1)
        assert np.array_equal(mask[..., 0], image[..., 0])
        assert sorted(instances.tolist()) == sorted(set(np.unique(mask)) - {0})
        for box, instance in zip(boxes, instances):
            rows, columns = np.nonzero(mask[..., 0] == instance)
            around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert box.tolist() == around
            whole += 1
    return whole


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_mask_image_and_boxes_move_together(daemon, name):
    daemon.add_pipeline(name, pipeline(name))
    daemon.start()
    assert sum(check(batch) for batch in batches(daemon, name, epochs=2)) > IMAGES


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_caches_and_isolation_give_the_same_bytes(daemon, make_daemon, name):
    kinds = ("none", "bytes", "coefficients", "decoded")
    isolated = with_data(make_daemon(config=CONFIG + "isolation: process\n"))
    expected = None
    for one in (daemon, isolated):
        for kind in kinds:
            one.add_pipeline(f"{name}-{kind}", pipeline(name, f"cache: {{kind: {kind}}}\n"))
        one.start()
        for kind in kinds:
            seen = batches(one, f"{name}-{kind}", epochs=2)
            expected = expected or seen
            assert len(seen) == len(expected) == 2 * IMAGES // 6
            for batch, wanted in zip(seen, expected):
                for field, rows in wanted.items():
                    for row, other in zip(batch[field], rows):
                        assert np.array_equal(row, other), (kind, field)


def test_an_image_without_a_mask_is_a_bad_sample_that_says_why(daemon):
    listed = json.loads((daemon.data / "coco/instances.json").read_text())
    listed["annotations"][0]["segmentation"] = [[1, 2, 3]]
    (daemon.data / "coco/instances.json").write_text(json.dumps(listed))
    (daemon.data / "voc/SegmentationObject/5.png").unlink()
    (daemon.data / "voc/SegmentationObject/7.png").write_bytes(png(image_of(7)))
    for name in DATASETS:
        daemon.add_pipeline(name, pipeline(name, "on_bad_sample: substitute\n"))
    daemon.start()
    for name, words in (
        ("coco", ["a polygon of 3 numbers"]),
        ("voc", ["SegmentationObject/5.png", "RGB PNG of 8 bits", "mode RGB"]),
    ):
        for batch in batches(daemon, name):
            check(batch)
        command = [
            BUILD / "bin/feedwater",
            "--address",
            daemon.address,
            "status",
            "--bad",
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = [one["reason"] for one in json.loads(done.stdout)["bad_samples"]]
        for word in words:
            assert any(word in reason for reason in found), found
