"""Transforms of torchvision: types one after the other."""

from __future__ import annotations

import pytest
from torchvision_fakes import (
    BLUR,
    CENTER,
    FLIP,
    FLOAT,
    HALF,
    IMAGENET,
    NORMALIZE,
    TO_TENSOR,
    DType,
    by_chance,
    fake,
    graph,
    refusal,
    to_dtype,
)

BRAIN = DType("bfloat16")
WHITE = fake("LinearTransformation", transformation_matrix=[[2.0]], mean_vector=[0.5])


HALVES = [TO_TENSOR, NORMALIZE, to_dtype(HALF)]
REFUSED = {
    "floats of halves": ([*HALVES, to_dtype(FLOAT)], "to float32 of values that are rounded to"),
    "floats of halves, by version 1": (
        [*HALVES, fake("ConvertImageDtype", dtype=FLOAT)], "transform 4, ConvertImageDtype: to flo"
    ),
    "other halves of halves": ([*HALVES, to_dtype(BRAIN)], "to bfloat16 of values that are"),
    "floats of halves by chance": (
        [*HALVES, by_chance(FLIP, to_dtype(FLOAT))], "its transform 2, ToDtype: to float32 of"
    ),
    "Normalize of halves": ([*HALVES, NORMALIZE], "it computes in float16 here"),
    "whitening of halves": ([*HALVES, WHITE], "it computes in float16 here"),
    "halves of whitened floats": (
        [TO_TENSOR, NORMALIZE, WHITE, to_dtype(HALF)], "an op behind normalize computes in float32"
    ),
    "halves of floats that are whitened by chance": (
        [TO_TENSOR, NORMALIZE, by_chance(FLIP, WHITE), to_dtype(HALF)], "an op behind normalize"
    ),
    "halves of floats that are normalized by chance": (
        [TO_TENSOR, NORMALIZE, by_chance(FLIP, NORMALIZE), to_dtype(HALF)], "an op behind normalize"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("transforms", "message"), REFUSED.values(), ids=REFUSED)
def test_types_that_have_no_exact_counterpart_are_refused(transforms, message):
    assert message in refusal(*transforms)


def test_halves_stay_halves():
    halves = {"normalize": {**IMAGENET["normalize"], "dtype": "float16"}}
    assert graph(*HALVES, FLIP, to_dtype(HALF)) == [halves, "random_horizontal_flip"]
    twice = graph(TO_TENSOR, NORMALIZE, NORMALIZE, to_dtype(HALF))
    assert [op["normalize"].get("dtype") for op in twice] == [None, "float16"]
    assert graph(BLUR, CENTER, *HALVES)
