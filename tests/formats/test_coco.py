"""A real daemon and pycocotools read the same file of instances."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pictures import png

import feedwater

pycocotools = pytest.importorskip("pycocotools.coco")
masks = pytest.importorskip("pycocotools.mask")


def written(folder, images: int) -> None:
    """Write pictures and instances, both in no order, with ids that are not places."""
    random = np.random.Generator(np.random.PCG64(8))
    ids = [int(number) for number in random.permutation(10 * images)[:images]]
    (folder / "pictures").mkdir()
    for number in ids:
        (folder / f"pictures/{number:06}.jpg").write_bytes(random.bytes(20 + number % 7))
    annotations = [
        {
            "id": 100 + i,
            "image_id": ids[int(random.integers(images // 2))],
            "category_id": int(random.choice([3, 17, 90])),
            "bbox": [float(x) for x in random.uniform(1, 200, 4).round(2)],
            "area": float(random.uniform(1, 900)),
            "iscrowd": int(random.integers(2)),
            "segmentation": [[1.0, 2.0, 3.0, 2.0, 3.0, 4.0]],
        }
        for i in range(4 * images)
    ]
    listed = {
        "info": {"description": "drawn"},
        "licenses": [],
        "images": [{"id": n, "file_name": f"{n:06}.jpg", "width": 500, "height": 500} for n in ids],
        "annotations": annotations,
        "categories": [{"id": n, "name": f"class {n}", "supercategory": "x"} for n in (90, 3, 17)],
    }
    (folder / "instances.json").write_text(json.dumps(listed))


def segmentation(random, height: int, width: int):
    """Return polygons, some of whose corners lie beside the image, or runs of either kind."""
    polygons = [
        random.uniform(-20, 120, 2 * int(random.integers(3, 9))).round(2).tolist()
        for _ in range(int(random.integers(1, 4)))
    ]
    kind = random.integers(3)
    if kind == 0:
        return polygons
    runs = masks.merge(masks.frPyObjects(polygons, height, width))
    if kind == 1:
        return {"size": runs["size"], "counts": runs["counts"].decode()}
    flat = np.concatenate([[0], masks.decode(runs).T.ravel(), [0]])
    borders = np.flatnonzero(np.diff(flat.astype(np.int8)))
    return {"size": runs["size"], "counts": np.diff([0, *borders, height * width]).tolist()}


def test_masks_are_those_of_pycocotools(make_daemon):
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(9))
    images, annotations = 60, []
    (daemon.data / "pictures").mkdir()
    listed = {"images": [], "annotations": annotations, "categories": [{"id": 1, "name": "x"}]}
    height, width = 64, 90
    for number in range(images):
        name = f"{number}.png"
        listed["images"].append({"id": number, "file_name": name, "width": width, "height": height})
        (daemon.data / "pictures" / name).write_bytes(png(np.zeros((height, width, 3), np.uint8)))
    for i in range(5 * images):
        number = int(random.integers(images - 3))
        annotations.append(
            {
                "id": i,
                "image_id": number,
                "category_id": 1,
                "bbox": [1.0, 2.0, 20.0, 20.0],
                "iscrowd": 0,
                "area": 400,
                "segmentation": segmentation(random, height, width),
            }
        )
    (daemon.data / "instances.json").write_text(json.dumps(listed))
    daemon.add_pipeline(
        "masks",
        "version: 1\ndataset: {format: coco, root: data, path: pictures, annotations: "
        "instances.json, fields: {data: data, masks: masks, image_id: image_id}}\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
        "graph:\n  - decode: {in: masks, out: mask, mode: index}\n"
        "  - center_crop: {in: mask, size: [64, 90]}\n"
        "outputs: [image_id, mask]\n",
    )
    daemon.start()
    coco = pycocotools.COCO(daemon.data / "instances.json")
    seen = 0
    with feedwater.Loader("masks", address=daemon.address, output="numpy") as loader:
        for image_ids, found in loader:
            for number, mask in zip(image_ids, found):
                expected = np.zeros((height, width), np.uint8)
                for i, own in enumerate(coco.loadAnns(coco.getAnnIds(imgIds=int(number)))):
                    expected[coco.annToMask(own) == 1] = i + 1
                assert np.array_equal(mask[..., 0], expected), number
                seen += len(np.unique(expected)) > 1
    assert seen > images / 2


def test_images_and_boxes_are_those_of_pycocotools(make_daemon):
    daemon = make_daemon()
    written(daemon.data, images=40)
    daemon.add_pipeline(
        "coco",
        "version: 1\ndataset: {format: coco, root: data, path: pictures, annotations: "
        "instances.json}\nsampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
        "outputs: [image_id, boxes, labels, area, iscrowd, {data: {max_rows: 100}}]\n",
    )
    daemon.start()
    coco = pycocotools.COCO(daemon.data / "instances.json")
    ids = sorted(coco.getImgIds())
    numbers = {category: label for label, category in enumerate(sorted(coco.getCatIds()))}
    seen = []
    with feedwater.Loader("coco", address=daemon.address, output="numpy") as loader:
        assert loader.classes == ["class 3", "class 17", "class 90"]
        for image_ids, boxes, labels, areas, crowds, files in loader:
            for i, image in enumerate(image_ids):
                own = coco.loadAnns(coco.getAnnIds(imgIds=int(image)))
                corners = np.array([a["bbox"] for a in own], np.float64).reshape(-1, 4)
                corners[:, 2:] += corners[:, :2]
                np.testing.assert_array_equal(boxes[i], corners.astype(np.float32))
                assert labels[i].tolist() == [numbers[a["category_id"]] for a in own]
                np.testing.assert_array_equal(areas[i], np.float32([a["area"] for a in own]))
                assert crowds[i].tolist() == [a["iscrowd"] for a in own]
                name = coco.loadImgs(int(image))[0]["file_name"]
                assert files[i].tobytes() == (daemon.data / "pictures" / name).read_bytes()
                seen.append(int(image))
    assert seen == ids
