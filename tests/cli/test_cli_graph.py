"""feedwater graph: what the drawing says, and running Graphviz."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from command_line import environment, run
from daemon_process import ROOT

FUSED = (
    "  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {size: [16, 16]}\n"
    "  - random_horizontal_flip: {}\n"
    "  - normalize: {mean: [1, 2, 3], std: [1, 1, 1]}\n"
)
MIXED = "{size: 4, graph: [{mixup: {in: [image, label], alpha: 1.0, num_classes: 3}}]}"

# Whose fields are known without their files. Those of CSV and JSON lines stand in the files.
SAMPLES = [
    path
    for path in sorted((ROOT / "config/pipelines").glob("*.yaml"))
    if not {"format: csv", "format: jsonl"} & set(re.findall(r"format: \w+", path.read_text()))
]

# Stands in for Graphviz: says what it was called with and hands its input back.
FAKE_DOT = '#!/bin/sh\necho "called with $*"\nexec cat\n'


@pytest.fixture
def bin_folder(project):
    """Return an otherwise empty folder that PATH may be."""
    folder = project.folder / "bin"
    folder.mkdir()
    for tool in ("sh", "cat", "echo"):
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


def install_dot(folder: Path, script: str) -> None:
    """Put a program `dot` into a folder."""
    (folder / "dot").write_text(script)
    (folder / "dot").chmod(0o755)


def graph_of(project, *pipeline) -> dict:
    """Return the graph as data, its nodes by name and kind."""
    result = run("graph", *pipeline, "--json")
    assert result.status == 0, result.out
    return result.document


def test_the_graph_has_every_live_op_and_its_types_without_data(project):
    dead = "  - decode: {in: data, out: unused}\n"
    path = project.pipeline("fused", FUSED + dead)
    graph = graph_of(project, path)
    assert [node["name"] for node in graph["nodes"] if node["kind"] == "op"] == [
        "decode", "random_resized_crop", "random_horizontal_flip", "normalize",
    ]  # fmt: skip
    outputs = [i for i, node in enumerate(graph["nodes"]) if node["kind"] == "output"]
    into = {edge["to"]: edge for edge in graph["edges"]}
    image, label = into[outputs[0]], into[outputs[1]]
    assert (image["field"], image["dtype"], image["layout"], image["shape"]) == (
        "image", "float32", "CHW", [3, 16, 16],
    )  # fmt: skip
    assert (label["dtype"], label["shape"]) == ("int64", [])
    assert graph["nodes"][label["from"]]["kind"] == "field"


def test_what_is_fused_is_one_pass_and_what_is_random_ends_what_a_cache_may_keep(project):
    graph = graph_of(project, project.pipeline("fused", FUSED))
    ops = [node for node in graph["nodes"] if node["kind"] == "op"]
    assert len({op["pass"] for op in ops}) == 1
    assert [op["deterministic"] for op in ops] == [True, False, False, False]
    assert [op["randomness"] for op in ops] == ["none", "per sample", "per sample", "none"]


def test_batch_ops_stand_between_the_samples_and_the_outputs(project):
    graph = graph_of(project, project.pipeline("mixed", FUSED, batch=MIXED))
    (mixup,) = [i for i, node in enumerate(graph["nodes"]) if node["kind"] == "batch_op"]
    assert graph["nodes"][mixup]["name"] == "mixup"
    behind = [edge for edge in graph["edges"] if edge["from"] == mixup]
    assert [edge["field"] for edge in behind] == ["image", "label"]
    assert behind[1]["shape"] == [3]
    assert all(graph["nodes"][edge["to"]]["kind"] == "output" for edge in behind)


def test_a_position_of_the_epoch_is_not_deterministic_but_a_record_number_is(project):
    path = project.pipeline("own", FUSED, outputs="[image, sample_id, position]")
    nodes = graph_of(project, path)["nodes"]
    fields = {node["name"]: node["deterministic"] for node in nodes if node["kind"] == "field"}
    assert fields == {"data": True, "sample_id": True, "position": False}


def test_the_text_has_frames_for_the_passes_and_the_batch(project):
    path = project.pipeline("mixed", FUSED, batch=MIXED)
    text = run("graph", path).out
    assert text.startswith("digraph pipeline {") and text.rstrip().endswith("}")
    assert text.count("{") == text.count("}")
    for part in ("one pass", "cluster_batch", "once a batch of 4 is whole", "a cache may keep it",
                 "random, drawn anew for each sample", "image_folder: data/pictures",
                 "size: [16, 16]", "uint8[?,?,3] HWC", "float32[3,16,16] CHW"):  # fmt: skip
        assert part in text, part
    file = project.folder / "graph.dot"
    assert run("graph", path, "-o", file).status == 0
    assert file.read_text() == text


def test_names_cannot_break_out_of_the_text(project):
    name = '"}<b> & co'
    dataset = "{format: image_folder, root: data, path: 'a<b>&\"c'}"
    text = run("graph", project.pipeline(name, FUSED, dataset=dataset)).out
    assert "<B>&quot;}&lt;b&gt; &amp; co</B>" in text
    assert "data/a&lt;b&gt;&amp;&quot;c" in text
    assert "<b>" not in text


def test_data_adds_the_number_of_records(project):
    project.pictures("pictures", 7)
    project.pipeline("fused", FUSED)
    assert "7 records" in run("graph", "fused", "--config", project.config).out


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_dot_is_run_with_the_text_on_its_standard_input(project, bin_folder, kind):
    install_dot(bin_folder, FAKE_DOT)
    path = project.pipeline("fused", FUSED)
    drawing = project.folder / f"graph.{kind}"
    result = run("graph", path, "-o", drawing, env=environment(PATH=str(bin_folder)))
    assert result.status == 0, result.err
    said, _, text = drawing.read_text().partition("\n")
    assert said.startswith(f"called with -T{kind}")
    assert text == run("graph", path).out


def test_a_missing_dot_is_told_with_the_cure(project):
    path = project.pipeline("fused", FUSED)
    drawing = project.folder / "graph.svg"
    result = run("graph", path, "-o", drawing, env=environment(PATH="/nonexistent"))
    assert result.status == 1
    assert "apt-get install graphviz" in result.err
    assert "-o graph.dot" in result.err
    assert not drawing.exists()


def test_a_dot_that_fails_is_told_with_what_it_said(project, bin_folder):
    install_dot(bin_folder, '#!/bin/sh\necho "no fonts here" >&2\nexit 3\n')
    path = project.pipeline("fused", FUSED)
    drawing = project.folder / "graph.svg"
    drawing.write_text("the one before")
    result = run("graph", path, "-o", drawing, env=environment(PATH=str(bin_folder)))
    assert result.status == 1
    assert "no fonts here" in result.err
    assert drawing.read_text() == "the one before"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_graphviz_draws_every_sample_pipeline_without_a_complaint(tmp_path, path):
    drawing = tmp_path / "graph.svg"
    result = run("graph", path, "-o", drawing)
    assert (result.status, result.err) == (0, "")
    text = drawing.read_text()
    assert "</svg>" in text and "normalize" in text


def test_wrong_input_is_status_2_with_the_place(project):
    path = project.pipeline("typo", FUSED.replace("{size: [16, 16]}", "{sise: [16, 16]}"))
    for arguments, words in [
        ([path], [f"{path}:6:", "sise", "did you mean 'size'"]),
        (["nosuch.yaml"], ["cannot open nosuch.yaml"]),
        (["nosuch", "--config", project.config], ["unknown pipeline 'nosuch'"]),
        ([project.pipeline("fused", FUSED), "-o", "graph.gif"], [".svg"]),
        ([project.pipelines / "fused.yaml", "-o", "no/such/graph.svg"], ["mkdir -p no/such"]),
        ([], ["pipeline"]),
    ]:
        result = run("graph", *arguments, cwd=project.folder)
        assert result.status == 2, result
        for word in words:
            assert word in result.err, (word, result.err)
