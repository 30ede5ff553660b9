"""Generated pages and schemas: up to date, and of one mind with the programs."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
import yaml
from daemon_process import BUILD, ROOT

jsonschema = pytest.importorskip("jsonschema")
PROGRAM = BUILD / "bin/feedwater"
CONFIG = ROOT / "config"


@pytest.fixture(scope="module", autouse=True)
def built():
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")


def schema(name: str) -> jsonschema.protocols.Validator:
    document = json.loads((CONFIG / f"schema/{name}.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(document)
    return jsonschema.Draft7Validator(document)


def problems(name: str, text: str) -> list[str]:
    return [error.message for error in schema(name).iter_errors(yaml.safe_load(text))]


def validates(tmp_path, text: str) -> bool:
    file = tmp_path / "some.yaml"
    file.write_text(text)
    done = subprocess.run([PROGRAM, "validate", file], capture_output=True, text=True)
    assert done.returncode in (0, 2)
    return done.returncode == 0


def test_pages_and_schemas_are_what_the_programs_say():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/generate-reference", "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "path", sorted((CONFIG / "pipelines").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_example_pipelines_fit_the_schema_and_point_to_it(path):
    text = path.read_text()
    assert problems("pipeline", text) == []
    assert text.startswith("# yaml-language-server: $schema=../schema/pipeline.schema.json\n")


def test_the_example_configuration_fits_the_schema_with_its_defaults_too():
    text = (CONFIG / "feedwater.yaml").read_text()
    assert problems("feedwater", text) == []
    spelt_out = "\n".join(
        line.replace("# ", "", 1) if line.strip().endswith((": auto", ": 0")) else line
        for line in text.splitlines()
    )
    assert problems("feedwater", spelt_out) == []


def described() -> dict:
    done = subprocess.run([PROGRAM, "describe", "--json"], capture_output=True, text=True)
    return json.loads(done.stdout)


def graph_file(op: dict, params: str) -> str:
    """A pipeline with nothing but the op, as a text; its types need not fit together."""
    entry = f"{{{op['op']}: {params}}}"
    where = f"batch: {{size: 4, graph: [{entry}]}}" if op["batch_op"] else f"graph: [{entry}]"
    return f"version: 1\ndataset: {{format: image_folder, root: r, path: p}}\n{where}\n"


def test_every_example_of_the_registries_fits_the_schema():
    document = described()
    assert len(document["ops"]) >= 10 and len(document["formats"]) >= 3
    for op in document["ops"]:
        example = op["example"].lstrip("- ")
        params = example.split(":", 1)[1] if ":" in example else " {}"
        assert problems("pipeline", graph_file(op, params)) == [], op["op"]
    for entry in document["formats"]:
        text = entry["example"]
        text = text if text.startswith("dataset:") else f"dataset: {text}"
        assert problems("pipeline", f"version: 1\n{text}\n") == [], entry["format"]


GOOD = """version: 1
dataset: {format: image_folder, root: r, path: p}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
batch: {size: 4, graph: [{mixup: {in: [image, label], alpha: 0.2, num_classes: 10}}]}
outputs: [image, label]
"""


@pytest.mark.parametrize(
    "old, new",
    [
        ("version: 1", "version: 2"),
        ("format: image_folder", "format: image_fodler"),
        ("root: r, ", ""),
        ("- resize: {size: [8, 8]}", "- resiez: {size: [8, 8]}"),
        ("- resize: {size: [8, 8]}", "- resize: {sise: [8, 8]}"),
        ("- resize: {size: [8, 8]}", "- resize: {size: large}"),
        ("- resize: {size: [8, 8]}", "- resize: {size: [8, 8], interpolation: best}"),
        ("- resize: {size: [8, 8]}", "- resize: {}"),
        ("- resize: {size: [8, 8]}", "- random_horizontal_flip: {p: 1.5}"),
        ("- resize: {size: [8, 8]}", "- mixup: {in: [image, label], alpha: 0.2}"),
        ("batch: {size: 4", "batch: {size: 0"),
        ("batch: {size: 4", "batch: {sise: 4"),
        ("outputs: [image, label]", "outputs: []"),
        ("outputs: [image, label]", "outputs: [image]\nsampler: {shuffle: some}"),
        ("outputs: [image, label]", "outputs: [image]\nlimits: {max_pixels: -1}"),
        ("outputs: [image, label]", "outputs: [image]\ncache: {kind: all}"),
        ("outputs: [image, label]", "outputs: [image]\non_bad_sample: ignore"),
        ("outputs: [image, label]", "outputs: [image]\nanything: 1"),
    ],
)
def test_what_the_program_refuses_the_schema_refuses(tmp_path, old, new):
    wrong = GOOD.replace(old, new)
    assert wrong != GOOD
    assert not validates(tmp_path, wrong)
    assert problems("pipeline", wrong)


def test_the_good_file_is_good_for_both(tmp_path):
    assert problems("pipeline", GOOD.replace("mixup", "mixup")) == []
    plain = GOOD.replace(
        ", graph: [{mixup: {in: [image, label], alpha: 0.2, num_classes: 10}}]", ""
    )
    assert validates(tmp_path, plain)


def test_the_schema_takes_what_the_program_takes_over_values_of_the_registry(tmp_path):
    """Boundaries and defaults of every number and word of every op."""
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    accepted = 0
    for op in described()["ops"]:
        if op["batch_op"]:
            continue
        required = {
            param["name"]: {"size": "[8, 8]", "mean": "[1, 2, 3]", "std": "[1, 2, 3]"}.get(
                param["name"], "1"
            )
            for param in op["params"]
            if param["required"]
        }
        for param in op["params"]:
            values = [param["default"]] if param.get("default") else []
            values += [str(param[key]) for key in ("minimum", "maximum") if key in param]
            values += [str(param["maximum"] + 1)] if "maximum" in param else []
            values += param.get("choices", [])
            values += [str(generator.choice([0, 1, 0.5, -1, 7]))]
            for value in values:
                params = ", ".join(
                    f"{name}: {text}" for name, text in {**required, param["name"]: value}.items()
                )
                decode = "" if op["op"] == "decode" else "  - decode: {in: data, out: image}\n"
                field = "in: data, out: image, " if op["op"] == "decode" else "in: image, "
                text = (
                    "version: 1\ndataset: {format: image_folder, root: r, path: p}\ngraph:\n"
                    f"{decode}  - {op['op']}: {{{field}{params}}}\nbatch: {{size: 4}}\n"
                    "outputs: [label]\n"
                )
                if validates(tmp_path, text):
                    accepted += 1
                    assert problems("pipeline", text) == [], f"seed {seed}: {text}"
    assert accepted > 30
