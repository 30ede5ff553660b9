"""A real daemon and pycocotools read the same file of instances."""

from __future__ import annotations

import json

import numpy as np
import pytest

import feedwater

pycocotools = pytest.importorskip("pycocotools.coco")


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
