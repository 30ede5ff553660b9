"""The pipeline that `Loader.from_dataset` writes. The daemon's part is in tests/integration."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import feedwater
from feedwater import ops
from feedwater.own_dataset import explained, pipeline_of
from feedwater.samples import SampleField

SERVED = SimpleNamespace(
    is_iterable=False,
    name="mine",
    fields=[
        SampleField("data", "sample[0]", "uint8", (-1,), "encoded"),
        SampleField("label", "sample[1]", "int64", (), "plain"),
    ],
)


def outputs(*graph, outputs=None) -> list[str]:
    pipeline = pipeline_of(
        object(),
        SERVED,
        shuffle=False,
        drop_last=False,
        graph=graph,
        outputs=outputs,
        on_bad_sample=None,
        max_bad_fraction=None,
    )
    return pipeline.to_dict()["outputs"]


def test_a_batch_has_what_the_ops_make_of_the_fields():
    assert outputs() == ["data", "label"]
    assert outputs(ops.decode(), ops.resize(256)) == ["image", "label"]
    assert outputs(ops.decode(), {"resize": {"size": 64, "out": "small"}}) == ["small", "label"]


def test_an_op_that_is_not_built_in_says_what_it_reads_and_makes():
    own = {"blur": {"in": "image", "out": "soft"}}
    assert outputs("decode", own) == ["soft", "label"]
    for vague in ("blur", {"blur": {"in": "image"}}, {"blur": {"out": "soft"}}):
        with pytest.raises(
            feedwater.InvalidArgument, match="say outputs=, or in and out, for op 'blur'"
        ):
            outputs("decode", vague)
        assert outputs("decode", vague, outputs=["image"]) == ["image"]


def test_what_is_no_op_of_a_sample_is_told_as_such():
    with pytest.raises(feedwater.InvalidArgument, match="mixup works on whole batches"):
        outputs("mixup")
    with pytest.raises(feedwater.InvalidArgument, match=r"feedwater\.ops\.decode: call it"):
        outputs(ops.decode)


def test_a_field_without_a_name_of_its_own_is_decoded_by_the_one_that_it_has():
    def told(text: str) -> str:
        return str(explained(feedwater.InvalidArgument(f"<Mine>:4:3: {text}\n  - decode"), SERVED))

    image = "is a compressed image of varying length: decode it"
    assert "With graph=[ops.decode(), ...]" in told(f"'data' {image}, or ...")
    assert 'With graph=[ops.decode(in_="field0"), ...]' in told(f"'field0' {image} (`x`), or ...")
    assert told("unknown field 'x'").endswith("and fields=[...] gives them other names")
    named = told(
        "unknown field 'x'; fields=[\"data\"] where the dataset is served gives its values names"
    )
    assert named.endswith("graph= and outputs= name these")


SERVED_PICTURES = SimpleNamespace(
    fields=[
        SampleField("field0", "sample[0]", "uint8", (-1, -1, 3), "HWC"),
        SampleField("field1", "sample[1]", "int64", (), "plain"),
    ]
)


def pictures(*names: str) -> SimpleNamespace:
    made = zip(SERVED_PICTURES.fields, names)
    return SimpleNamespace(fields=[replace(one, name=name) for one, name in made])


def test_a_picture_without_a_name_is_told_the_name_that_the_graph_reads():
    """And never the names that it has."""
    text = (
        "<Mine>:4:3: op 'resize' reads the unknown field '{}'. Known: ...; "
        'fields=["field0", "label"] where the dataset is served gives its values names'
    )

    def told(wanted: str, *names: str) -> str:
        error = feedwater.InvalidArgument(text.format(wanted))
        return str(explained(error, pictures(*names)))

    for names in (("field0", "field1"), ("field0", "label")):
        assert '; fields=["image", "label"] gives its values names. The' in told("image", *names)
    assert '"field0"' not in told("img", "field0", "label")
    assert 'fields=["field0", "label"] where' in told("label", "field0", "field1")


def test_a_picture_of_no_fixed_size_is_told_the_op_that_reads_it():
    text = "<Mine>:4:3: '{}' has no fixed size (uint8[?,?,3] HWC): add resize with size [h, w], x"
    reading = 'ops.resize([h, w], in_="field0")'
    for name, op in (("field0", reading), ("image", "ops.resize([h, w])")):
        error = feedwater.InvalidArgument(text.format(name))
        assert f"size [h, w] (graph=[{op}]), x. The" in str(explained(error, SERVED_PICTURES))
