"""A real daemon and Python's xml.etree read the same folder of Pascal VOC's devkit."""

from __future__ import annotations

import xml.etree.ElementTree as etree

import numpy as np

import feedwater

CLASSES = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
]  # fmt: skip
SIDES = ("xmin", "ymin", "xmax", "ymax")


def box_text(random, width: int, height: int, order) -> str:
    """Return a box within the picture, its sides in some order, as the years' files differ."""
    left, top = int(random.integers(1, width - 20)), int(random.integers(1, height - 20))
    right, bottom = left + int(random.integers(5, 20)), top + int(random.integers(5, 20))
    values = dict(zip(SIDES, (left, top, right, bottom)))
    if random.random() < 0.2:  # some boxes of 2011 and 2012 are fractions
        values = {side: f"{value + 0.70000076293945:.14f}" for side, value in values.items()}
    lines = "".join(f"\t\t\t<{SIDES[i]}>{values[SIDES[i]]}</{SIDES[i]}>\n" for i in order)
    return f"\t\t<bndbox>\n{lines}\t\t</bndbox>\n"


def annotation(random, name: str, objects: int) -> str:
    """Return an annotation laid out as the devkit's are, with the parts of persons."""
    width, height = (int(side) for side in random.integers(60, 500, 2))
    found = []
    for _ in range(objects):
        kind = str(random.choice(CLASSES))
        order = random.permutation(4)
        parts = "".join(
            f"\t\t<part>\n\t\t\t<name>{part}</name>\n"
            f"{box_text(random, width, height, order)}\t\t</part>\n"
            for part in (("head", "hand") if kind == "person" else ())
        )
        difficult = int(random.integers(2))
        head = (
            f"\t\t<name>{kind}</name>\n\t\t<pose>Unspecified</pose>\n\t\t<truncated>0</truncated>\n"
        )
        body = [head, box_text(random, width, height, order), parts]
        if random.random() < 0.8:  # the rest are not difficult
            body.insert(1, f"\t\t<difficult>{difficult}</difficult>\n")
        found.append("\t<object>\n" + "".join(body) + "\t</object>\n")
    return (
        f"<annotation>\n\t<folder>VOC2012</folder>\n\t<filename>{name}.jpg</filename>\n"
        "\t<source>\n\t\t<database>The VOC2008 Database</database>\n\t\t<annotation>PASCAL VOC2008"
        "</annotation>\n\t\t<image>flickr</image>\n\t</source>\n"
        f"\t<size>\n\t\t<width>{width}</width>\n\t\t<height>{height}</height>\n"
        "\t\t<depth>3</depth>\n\t</size>\n\t<segmented>0</segmented>\n"
        f"{''.join(found)}</annotation>\n"
    )


def written(folder, pictures: int) -> list[str]:
    """Write a devkit's folder, and list what its image set has, in the set's own order."""
    random = np.random.Generator(np.random.PCG64(12))
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    names = [f"2008_{number:06}" for number in random.permutation(10 * pictures)[:pictures]]
    for i, name in enumerate(names):
        (folder / f"JPEGImages/{name}.jpg").write_bytes(random.bytes(20 + i))
        (folder / f"Annotations/{name}.xml").write_text(annotation(random, name, i % 5))
    chosen = names[: pictures * 2 // 3]
    (folder / "ImageSets/Main/train.txt").write_text("".join(f"{name}\n" for name in chosen))
    return chosen


def test_images_and_boxes_are_those_of_the_xml_files(make_daemon):
    daemon = make_daemon()
    folder = daemon.data / "VOC2012"
    names = written(folder, pictures=60)
    daemon.add_pipeline(
        "voc",
        "version: 1\ndataset: {format: voc, root: data, path: VOC2012, fields: {data: data, "
        "boxes: boxes, labels: labels, difficult: difficult, width: width, height: height}}\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
        "outputs: [boxes, labels, difficult, width, height, {data: {max_rows: 100}}]\n",
    )
    daemon.start()
    seen = iter(names)
    with feedwater.Loader("voc", address=daemon.address, output="numpy") as loader:
        assert loader.classes == CLASSES
        for boxes, labels, difficult, width, height, files in loader:
            for i in range(len(width)):
                name = next(seen)
                tree = etree.parse(folder / f"Annotations/{name}.xml")
                objects = tree.findall("object")
                corners = [
                    [float(o.find(f"bndbox/{side}").text) for side in SIDES] for o in objects
                ]
                # From pixels that count from 1 to edges that count from 0.
                corners = np.array(corners, np.float64).reshape(-1, 4) - [1, 1, 0, 0]
                np.testing.assert_array_equal(boxes[i], corners.astype(np.float32))
                assert labels[i].tolist() == [CLASSES.index(o.findtext("name")) for o in objects]
                assert difficult[i].tolist() == [int(o.findtext("difficult", "0")) for o in objects]
                assert int(width[i]) == int(tree.findtext("size/width"))
                assert int(height[i]) == int(tree.findtext("size/height"))
                assert files[i].tobytes() == (folder / f"JPEGImages/{name}.jpg").read_bytes()
    assert next(seen, None) is None
