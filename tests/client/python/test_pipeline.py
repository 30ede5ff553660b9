"""Pipelines written in Python: what they refuse, and that their text says what they say.

The text is read back with PyYAML; tests/integration/test_python_pipeline.py gives it to a daemon.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from op_parameters import needed

import feedwater
from feedwater import Op, Pipeline, ops
from feedwater._pipeline_schema import BATCH_OPS, KEYS, OPS
from feedwater.pipeline_file import read_pipeline
from feedwater.yaml_text import file_text

FOLDER = {"format": "image_folder", "root": "photos", "path": "train"}


def imagenet() -> Pipeline:
    return Pipeline(
        dataset=FOLDER,
        sampler={"shuffle": "full", "seed": 42, "last": "drop"},
        graph=[
            ops.decode(),
            ops.random_resized_crop(size=[224, 224]),
            ops.random_horizontal_flip(p=0.25),
            ops.normalize(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
        ],
        batch={"size": 256, "graph": [ops.mixup(alpha=0.2, num_classes=10)]},
        outputs=["image", "label", {"boxes": {"max_rows": 12}}],
        on_bad_sample="substitute",
    )


def test_the_file_is_laid_out_as_people_write_it():
    assert imagenet().to_yaml() == (
        "version: 1\n"
        "dataset: {format: image_folder, root: photos, path: train}\n"
        "sampler: {shuffle: full, seed: 42, last: drop}\n"
        "graph:\n"
        "  - decode\n"
        "  - random_resized_crop:    {size: [224, 224]}\n"
        "  - random_horizontal_flip: {p: 0.25}\n"
        "  - normalize:              {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, "
        "57.375]}\n"
        "batch:\n"
        "  size: 256\n"
        "  graph:\n"
        "    - mixup: {alpha: 0.2, num_classes: 10}\n"
        "outputs: [image, label, {boxes: {max_rows: 12}}]\n"
        "on_bad_sample: substitute\n"
    )


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("Resize", "resize"),
        ("resise", "resize"),
        ("hflip", "random_horizontal_flip"),
        ("RandomHorizontalFlp", "random_horizontal_flip"),
    ],
)
def test_an_op_that_there_is_not_is_told_with_the_nearest(name, op):
    with pytest.raises(AttributeError, match=rf"no op '{name}': did you mean ops\.{op}\?"):
        getattr(ops, name)
    with pytest.raises(AttributeError, match=r"no op 'zzz': help\(feedwater\.ops\)"):
        getattr(ops, "zzz")  # noqa: B009


def test_an_argument_that_an_op_has_not_is_told_with_the_nearest():
    for word, near in (("siz", "size"), ("in", "in_")):
        text = rf"ops\.resize has no argument '{word}': did you mean '{near}'\?"
        with pytest.raises(TypeError, match=text):
            ops.resize(**{word: 3})
    with pytest.raises(
        TypeError, match=r"no argument 'zzz': it has min_visibility, .*, p, in_, out"
    ):
        ops.random_vertical_flip(zzz=3)


def test_the_text_says_what_the_pipeline_says():
    pipeline = imagenet()
    assert yaml.safe_load(pipeline.to_yaml()) == pipeline.to_dict()
    pipeline.to_dict()["graph"].clear()  # a copy
    assert len(pipeline.to_dict()["graph"]) == 4


TRICKY = [
    "null", "Yes", "~", "", " x", "a: b", "#", "- a", "{", "1e3", "12:30", "'\"", "\\n", "\n", "\t",
    "*a", "&a", "!a", "%", "@", "train-{000..146}.tar", "é", "\x85", "\u2028", "\x7f", "plain",
    "\U0001f600", "a/b-c.d", "0x1f", ".inf", "=", "<<", "?", "|", ">",
]  # fmt: skip


def hostile(generator: random.Random, depth: int = 0) -> Any:
    """A random value of everything that a pipeline may hold, with texts that YAML could mistake."""
    kind = generator.randrange(8 if depth < 4 else 5)
    if kind < 2:
        return generator.choice(TRICKY) + generator.choice(["", "x", *TRICKY])
    if kind == 2:
        return generator.choice([0, -1, 2**63, 10 ** generator.randrange(18)])
    if kind == 3:
        return generator.choice([0.1, 1e-6, 1e300, -2.5, 1e22, generator.random()])
    if kind == 4:
        return generator.choice([None, True, False])
    if kind == 5:
        return [hostile(generator, depth + 1) for _ in range(generator.randrange(5))]
    return {
        generator.choice(TRICKY) + str(number): hostile(generator, depth + 1)
        for number in range(generator.randrange(5))
    }


def test_any_values_survive_the_text():
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown when the test fails
    generator = random.Random(seed)
    for _ in range(400):
        dataset = {"format": "x", "more": hostile(generator), "long": [hostile(generator)] * 20}
        sections = {
            "dataset": dataset,
            "graph": [{"an_op": {"value": hostile(generator)}}, "other"],
            "batch": {"size": 3, "graph": [{"an_op": {"value": hostile(generator)}}]},
        }
        assert yaml.safe_load(file_text(sections)) == sections
        assert Pipeline(dataset=dataset).to_dict()["dataset"] == dataset


def test_pipelines_and_ops_are_equal_when_their_files_are():
    assert imagenet() == imagenet() and hash(imagenet()) == hash(imagenet())
    assert imagenet() != Pipeline(dataset=FOLDER) and imagenet() != imagenet().to_yaml()
    assert ops.resize(256) == ops.resize(size=256, interpolation="bilinear")
    assert ops.resize(256) != ops.resize(255) and ops.resize(256) != {"resize": {"size": 256}}
    assert {ops.resize(256), ops.resize(256)} == {ops.resize(256)}
    assert repr(ops.resize(256, in_="view")) == "feedwater.ops.resize(in_='view', size=256)"
    assert "graph=['decode', {'random_resized_crop': {'size': [224, 224]}}" in repr(imagenet())
    for op in (ops.resize([3, 4]), ops.decode()):
        assert pickle.loads(pickle.dumps(op)) == op == copy.deepcopy(op)
    assert pickle.loads(pickle.dumps(imagenet())) == imagenet() == copy.deepcopy(imagenet())


def test_an_op_never_changes():
    given = [3, 4]
    op = ops.resize(given)
    given.append(5)
    op.params["size"].append(6)
    assert op == ops.resize([3, 4])
    with pytest.raises(AttributeError, match="make another feedwater"):
        op.name = "crop"
    with pytest.raises(AttributeError):
        del op.name


def test_every_op_of_the_registry_has_a_function_with_docs_and_types():
    names = {**OPS, **BATCH_OPS}
    assert set(ops.__all__) == set(names) and len(names) > 10
    for name, schema in names.items():
        function = getattr(ops, name)
        parameters = inspect.signature(function).parameters
        own = {"in" if word == "in_" else word for word in parameters}
        assert own == set(schema["properties"]), name
        hints = typing.get_type_hints(function)
        assert hints["return"] is Op and set(hints) == {*parameters, "return"}, name
        documentation = inspect.getdoc(function)
        assert all(f"\n{word} : " in documentation for word in parameters), name
        for key in schema["required"]:
            assert parameters[key].default is inspect.Parameter.empty, (name, key)


def test_defaults_are_those_of_the_file_and_are_left_out():
    for name, schema in {**OPS, **BATCH_OPS}.items():
        parameters = inspect.signature(getattr(ops, name)).parameters
        defaults = {k: p.default for k, p in parameters.items() if p.default not in (p.empty, None)}
        given = {key: value for key, value in defaults.items() if key not in ("in_", "out")}
        required = needed(name, schema)
        assert getattr(ops, name)(**required, **given).params == required, name


def test_every_key_of_a_pipeline_file_is_an_argument_with_docs():
    arguments = {*inspect.signature(Pipeline).parameters} - {"name"}
    assert arguments == {*KEYS} - {"version"}
    documentation = inspect.getdoc(Pipeline)
    assert all(f"\n{argument} : " in documentation for argument in arguments)


def test_numbers_and_arrays_of_numpy_are_taken():
    assert ops.resize(np.array([3, 4])) == ops.resize([3, 4])
    assert ops.normalize(np.array([1.5]), (2,)) == ops.normalize([1.5], [2])
    assert Pipeline(dataset=FOLDER, batch=np.int64(8)) == Pipeline(dataset=FOLDER, batch=8)
    assert ops.random_horizontal_flip(p=np.float64(0.5)).params == {}


class AMap(Mapping):
    def __getitem__(self, key):
        return FOLDER[key]

    def __iter__(self):
        return iter(FOLDER)

    def __len__(self):
        return len(FOLDER)


def test_maps_tuples_paths_and_generators_are_taken():
    pipeline = Pipeline(
        dataset={**AMap(), "path": Path("train")}, graph=(op for op in (ops.decode(),)),
        outputs=("image",),
    )  # fmt: skip
    assert pipeline == Pipeline(dataset=FOLDER, graph=["decode"], outputs=["image"])
    assert Pipeline(dataset=AMap()) == Pipeline(dataset=FOLDER)


def test_ops_and_keys_that_only_a_newer_daemon_knows_are_left_to_it():
    pipeline = Pipeline(
        dataset=FOLDER, graph=[{"new_op": {"x": 1}}, "newer"], sampler={"new_key": [1]}
    )
    assert pipeline.to_dict()["graph"] == [{"new_op": {"x": 1}}, "newer"]


LOOP: list = []
LOOP.append(LOOP)

REFUSED = [
    (lambda: ops.resize("big"), "feedwater.ops.resize: size is 'big': it is an integer from 1 to"),
    (lambda: ops.resize(0), "ops.resize: size is 0"),
    (lambda: ops.resize(True), "ops.resize: size is True"),
    (lambda: ops.resize([1, 2, 3]), r"a list of 2, each an integer from 1 to 32768"),
    (lambda: ops.resize(None), "ops.resize: size is None"),
    (lambda: ops.resize(8, interpolation="linear"), "interpolation is 'linear': .*'bilinear'"),
    (lambda: ops.resize(8, in_=[]), "ops.resize: in_ is"),
    (lambda: ops.resize(8, in_="a b"), "ops.resize: in_ is 'a b'"),
    (lambda: ops.random_horizontal_flip(p=2), "p is 2: it is a number from 0 to 1"),
    (lambda: ops.random_horizontal_flip(p=float("nan")), "p is nan: it is a finite number"),
    (lambda: ops.normalize([1, 2], [1]), r"normalize: mean is \[1, 2\]"),
    (lambda: ops.normalize([1], [0]), "a number from 1e-06 to 1000000"),
    (lambda: Pipeline(dataset="photos"), "dataset is 'photos': it is a map such as"),
    (lambda: Pipeline(dataset={"a": {1}}), r"dataset\['a'\] is of type set"),
    (lambda: Pipeline(dataset={"a": b"x"}), r"dataset\['a'\] is of type bytes"),
    (lambda: Pipeline(dataset={1: "x"}), "dataset has the key 1: keys are words"),
    (lambda: Pipeline(dataset={"a": float("inf")}), r"dataset\['a'\] is inf"),
    (lambda: Pipeline(dataset={"a": "\udc80"}), "a pipeline file is UTF-8"),
    (lambda: Pipeline(dataset={"a": LOOP}), "nested more than 32 levels deep"),
    (lambda: Pipeline(dataset={"a": "x" * 300_000}), "larger than 256 KiB"),
    (lambda: Pipeline(dataset=FOLDER, sampler="full"), "sampler is 'full': it is a map"),
    (lambda: Pipeline(dataset=FOLDER, sampler={"shuffle": "x"}), r"sampler\['shuffle'\] is 'x'"),
    (lambda: Pipeline(dataset=FOLDER, sampler={"seed": -1}), r"sampler\['seed'\] is -1"),
    (lambda: Pipeline(dataset=FOLDER, graph=ops.decode()), "graph is .*: it is a list of"),
    (lambda: Pipeline(dataset=FOLDER, graph="decode"), "graph is 'decode': it is a list of"),
    (lambda: Pipeline(dataset=FOLDER, graph=[ops.decode]), r"graph\[0\] .*ops.decode: call it"),
    (lambda: Pipeline(dataset=FOLDER, graph=[7]), r"graph\[0\] is 7: it is one of feedwater.ops"),
    (lambda: Pipeline(dataset=FOLDER, graph=[{}]), r"graph\[0\] is {}"),
    (lambda: Pipeline(dataset=FOLDER, graph=[ops.mixup()]), "mixup works on whole batches"),
    (lambda: Pipeline(dataset=FOLDER, batch={"graph": [ops.decode()]}), "stands in graph"),
    (lambda: Pipeline(dataset=FOLDER, graph=[{"resize": {"size": "x"}}]), "resize: size is 'x'"),
    (lambda: Pipeline(dataset=FOLDER, graph=[{"resize": 256}]), "its parameters are a map"),
    (lambda: Pipeline(dataset=FOLDER, batch=0), "batch is 0: it is an integer from 1"),
    (lambda: Pipeline(dataset=FOLDER, batch="64"), "batch is '64'"),
    (lambda: Pipeline(dataset=FOLDER, batch={"size": 1.5}), r"batch\['size'\] is 1.5"),
    (lambda: Pipeline(dataset=FOLDER, outputs="image"), "outputs is 'image': it is a list"),
    (lambda: Pipeline(dataset=FOLDER, outputs=[]), "outputs is empty"),
    (lambda: Pipeline(dataset=FOLDER, outputs=[3]), r"outputs\[0\] is 3: it is a field's name"),
    (lambda: Pipeline(dataset=FOLDER, on_bad_sample="x"), "on_bad_sample is 'x': it is 'fail'"),
    (lambda: Pipeline(dataset=FOLDER, max_bad_fraction=2), "max_bad_fraction is 2"),
    (lambda: Pipeline(dataset=FOLDER, limits={"max_pixels": ""}), r"limits\['max_pixels'\] is ''"),
    (lambda: Pipeline(dataset=FOLDER, cache={"kind": "ram"}), r"cache\['kind'\] is 'ram'"),
    (lambda: Pipeline(dataset=FOLDER, name=""), "name is ''"),
    (lambda: Pipeline(dataset=FOLDER, name="a/b.c"), "name is 'a/b.c'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_can_never_work_is_refused_where_it_is_written(make, message):
    with pytest.raises(feedwater.InvalidArgument, match=message):
        make()


def test_names_that_python_knows_of_no_op_are_errors():
    with pytest.raises(TypeError, match="'sizes'"):
        ops.resize(sizes=3)
    with pytest.raises(TypeError, match="dataset"):
        Pipeline()


def test_it_is_saved_as_a_whole(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("old")
    imagenet().save(path)
    assert path.read_text() == imagenet().to_yaml()
    assert [file.name for file in tmp_path.iterdir()] == ["train.yaml"]
    with pytest.raises(FileNotFoundError):
        imagenet().save(tmp_path / "no/train.yaml")


def test_a_loader_sends_its_text():
    name, text, file = read_pipeline(Pipeline(dataset=FOLDER, name="mine"))
    assert (name, file) == ("mine", "<mine>") and text.startswith("version: 1\ndataset:")
    with pytest.raises(feedwater.InvalidArgument, match="or a feedwater"):
        feedwater.Loader({"dataset": FOLDER})


def test_values_that_are_sequences_are_typed_so():
    hints = typing.get_type_hints(ops.normalize)
    assert hints["mean"] == Sequence[float]
