"""feedwater graph --cost: the drawing with what each pass takes of a sample."""

from __future__ import annotations

import re

import pytest
from command_line import run

TRAIN = (
    "  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {size: [64, 64]}\n"
    "  - random_horizontal_flip: {}\n"
    "  - gaussian_blur: {kernel_size: 9}\n"
    "  - normalize: {mean: [1, 2, 3], std: [1, 1, 1]}\n"
)
MIXED = "{size: 4, graph: [{mixup: {in: [image, label], alpha: 1.0, num_classes: 3}}]}"


def test_every_pass_is_a_frame_with_its_cost_and_one_is_the_hottest(project):
    project.pictures("pictures", 8)
    project.pipeline("train", TRAIN, batch=MIXED)
    arguments = ("graph", "train", "--config", project.config, "--cost")
    done = run(*arguments)
    assert done.status == 0, done.err
    passes = run("graph", "train", "--config", project.config, "--json").document["nodes"]
    count = len({node["pass"] for node in passes if "pass" in node})
    assert count >= 2
    frames = re.findall(
        r"subgraph cluster_pass_\d+ \{\n    graph \[label=<([^\n]*)>, labeljust", done.out
    )
    assert len(frames) == count
    assert all(re.search(r"<B>[\d.,]+ &#181;s</B>, (under )?\d+ %", frame) for frame in frames)
    assert done.out.count("read and parse: <B>") == 1
    assert done.out.count("penwidth=3,") == 1, "the hottest"
    assert "takes most of a sample's CPU time" in done.out
    assert "&#181;s of one CPU a sample, measured over 8 records" in done.out
    assert done.out.count("{") == done.out.count("}")
    assert "&#181;s" not in run("graph", "train", "--config", project.config).out


def test_the_data_has_the_costs_by_the_numbers_of_the_passes(project):
    project.pictures("pictures", 8)
    project.pipeline("train", TRAIN)
    drawing = project.folder / "graph.dot"
    done = run("graph", "train", "--config", project.config, "--cost", "--samples", 3, "--json",
               "-o", drawing)  # fmt: skip
    assert done.status == 0, done.out
    cost = done.document["cost"]
    assert cost["records"] == 3
    assert sum(step["us"] for step in cost["steps"]) == pytest.approx(cost["us"])
    passes = {step["pass"]: step["ops"] for step in cost["steps"] if step["kind"] == "pass"}
    for node in done.document["nodes"]:
        if node["kind"] == "op":
            assert node["name"] in passes[node["pass"]]
    assert cost["changes"] == []
    assert "&#181;s" in drawing.read_text()


def test_a_cost_needs_the_data(project):
    project.pipeline("train", TRAIN)
    done = run("graph", "train", "--config", project.config, "--cost")
    assert done.status == 2
    assert "pictures" in done.err
    done = run("graph", "train", "--config", project.config, "--samples", 3)
    assert done.status == 2
