"""The pipeline that `Loader.from_dataset` writes. The daemon's part is in tests/integration."""

from __future__ import annotations

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
