"""Transforms of torchvision: attributes and arguments of other versions, and types one after the
other.
"""

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
    TO_IMAGE,
    TO_TENSOR,
    V2,
    DType,
    InterpolationMode,
    by_chance,
    fake,
    graph,
    refusal,
    to_dtype,
)

from feedwater.torchvision_transforms import TRANSFORMS, NoCounterpart, values_of

AFFINE = {"degrees": [-9.0, 9.0], "translate": None, "scale": None, "shear": None}
ROTATION = {"degrees": [-9.0, 9.0], "expand": False, "center": None, "fill": 0}
BRAIN = DType("bfloat16")
WHITE = fake("LinearTransformation", transformation_matrix=[[2.0]], mean_vector=[0.5])


def test_attributes_of_older_versions_are_read_by_their_names():
    """What was called `resample` had Pillow's numbers, and False for nearest."""
    rotation = {"degrees": [-9.0, 9.0]}
    for resample, expected in ((2, {**rotation, "interpolation": "bilinear"}), (False, rotation)):
        step = fake("RandomRotation", resample=resample, **ROTATION)
        assert graph(step) == [{"random_rotation": expected}]
    affine = fake("RandomAffine", resample=2, fillcolor=9, center=None, **AFFINE)
    assert graph(affine) == [{"random_affine": {**rotation, "interpolation": "bilinear",
                                                "fill": [9.0]}}]  # fmt: skip
    assert "there is no" in refusal(fake("RandomRotation", resample=1, **ROTATION))


def test_an_attribute_that_is_not_there_is_not_taken_as_its_default():
    """Whatever decides on pixels: a class without it is of a version that is not known here."""
    for name, entry in TRANSFORMS.items():
        for parameter in entry.parameters:
            if parameter in ("antialias", "inplace", "max_size", "mode"):
                continue
            others = {other: 1 for other in entry.parameters if other != parameter}
            assert f"it has no attribute {parameter!r}" in refusal(fake(name, **others)), name


def test_attributes_that_older_versions_do_without_may_be_missing():
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    assert graph(fake("Resize", size=8, **bilinear)) == [{"resize": {"size": 8}}]
    assert graph(TO_TENSOR, fake("Normalize", mean=[0.5], std=[1.0]))


def test_arguments_are_taken_by_their_names_of_any_version():
    parameters = TRANSFORMS["RandomRotation"].parameters
    given = values_of("RandomRotation", parameters, {"degrees": 9, "resample": "bilinear"})
    assert given == {**parameters, "degrees": 9, "interpolation": "bilinear"}
    given = values_of("RandomRotation", parameters, {"degrees": 9, "resample": None})
    assert given == {**parameters, "degrees": 9}


UNKNOWN = {
    "of no version": ("Resize", {"size": 9, "foo": 1}, "foo"),
    "of another class": ("Resize", {"size": 9, "resample": "bilinear"}, "resample"),
    "of another op": ("RandomErasing", {"p": 0.5, "noise": 3}, "noise"),
    "twice": ("RandomRotation", {"degrees": 9, "interpolation": "bilinear", "resample": 3},
              "resample"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "given", "argument"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_argument_that_is_not_known_is_refused(name, given, argument):
    with pytest.raises(NoCounterpart, match=f"argument '{argument}' is not known"):
        values_of(name, TRANSFORMS[name].parameters, given)


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
    "a picture of other colours": ([TO_IMAGE, fake("ToPILImage", mode="HSV")], "mode 'HSV'"),
}  # fmt: skip


@pytest.mark.parametrize(("transforms", "message"), REFUSED.values(), ids=REFUSED)
def test_types_that_have_no_exact_counterpart_are_refused(transforms, message):
    assert message in refusal(*transforms)


def test_halves_stay_halves():
    halves = {"normalize": {**IMAGENET["normalize"], "dtype": "float16"}}
    assert graph(*HALVES, FLIP, to_dtype(HALF)) == [halves, "random_horizontal_flip"]
    twice = graph(TO_TENSOR, NORMALIZE, NORMALIZE, to_dtype(HALF))
    assert [op["normalize"].get("dtype") for op in twice] == [None, "float16"]
    assert graph(BLUR, CENTER, TO_IMAGE, fake("ToPILImage", V2, mode="RGB"), *HALVES)
