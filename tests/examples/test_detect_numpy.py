"""detect_numpy.py over drawn pictures with coloured boxes."""

from __future__ import annotations

import json
import re
import subprocess

import numpy as np
import pytest
from conftest import command, environment, run

PICTURES = 48
COLOURS = {"red": (220, 20, 20), "green": (20, 220, 20), "blue": (20, 20, 220)}
PIPELINE = """version: 1
dataset:
  format: coco
  root: data
  path: drawn
  annotations: drawn.json
  fields: {data: data, boxes: boxes, labels: labels, width: width, height: height}
sampler: {shuffle: full, seed: 3, last: drop}
graph: [decode: {}, resize: {size: [64, 64]}]
batch: {size: 8}
outputs: [image, {boxes: {max_rows: 4}}, {labels: {max_rows: 4}}, width, height]
"""


@pytest.fixture
def drawn(make_daemon):
    """A daemon over pictures of two sizes with 0 to 3 boxes each; and how many there are."""
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(11))
    images, annotations = [], []
    (daemon.data / "drawn").mkdir()
    for number in range(PICTURES):
        side = 64 * (1 + number % 2)
        picture = np.full((side, side, 3), 128, np.uint8)
        images.append({"id": number, "file_name": f"{number}.ppm", "width": side, "height": side})
        for column in range(number % 4):
            colour = int(random.integers(3))
            cell = side // 8
            left, top = 2 * column * cell, int(random.integers(4)) * cell
            width, height = 2 * cell, 3 * cell
            picture[top : top + height, left : left + width] = list(COLOURS.values())[colour]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": colour + 1,
                    "bbox": [left, top, width, height],
                }
            )
        header = b"P6\n%d %d\n255\n" % (side, side)
        (daemon.data / f"drawn/{number}.ppm").write_bytes(header + picture.tobytes())
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(COLOURS)]
    text = {"images": images, "annotations": annotations, "categories": categories}
    (daemon.data / "drawn.json").write_text(json.dumps(text))
    daemon.add_pipeline("drawn", PIPELINE)
    daemon.start()
    return daemon, len(annotations)


def test_the_loop_sees_every_box_and_learns_the_colours(drawn, tmp_path):
    daemon, boxes = drawn
    output = run(daemon, command("detect_numpy.py", "drawn", "--epochs", 60), tmp_path)
    lines = re.findall(r"epoch (\d+): (\d+) boxes, ([\d.]+) %", output)
    assert len(lines) == 60
    assert {int(found) for _, found, _ in lines} == {boxes}
    assert float(lines[-1][2]) > 97 > float(lines[0][2])


def test_a_pipeline_whose_boxes_are_padded_is_named(drawn, tmp_path):
    daemon, _ = drawn
    padded = tmp_path / "padded.yaml"
    padded.write_text(PIPELINE.replace("{boxes: {max_rows: 4}}", "{boxes: {pad_to: 4}}"))
    done = subprocess.run(
        command("detect_numpy.py", padded), env=environment(daemon), capture_output=True, text=True
    )
    assert done.returncode == 1
    advice, told = done.stderr.splitlines()  # its boxes are meant to stay as they are
    assert "moves 'image' alone" in advice
    assert told == "the pipeline's output `boxes` is not ragged"
