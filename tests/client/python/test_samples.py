"""What a user's samples become: names, types, shapes, and what is refused with which words."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest

from feedwater.control import DTYPE_NAMES
from feedwater.payload import FixedLayout
from feedwater.sample_values import DTYPES, SampleError, tensor_of
from feedwater.samples import Check, plan_of, reader_of

Pair = collections.namedtuple("Pair", "image label")


@dataclasses.dataclass
class Labelled:
    image: object
    label: int


def plan(*samples, fields=None):
    return plan_of(list(enumerate(samples)), fields)


def rows(*samples, fields=None):
    """Return name, type, shape and layout of each field."""
    made = plan(*samples, fields=fields)
    return [(one.name, one.dtype, one.shape, one.layout) for one in made.fields]


def test_the_numbers_of_types_are_those_of_the_protocol():
    assert {number: name for name, number in DTYPES.items()} == {
        number: name for number, name in DTYPE_NAMES.items() if number
    }


@pytest.mark.parametrize(
    "sample, names",
    [
        (1, ["field0"]),
        ((1, 2), ["field0", "field1"]),
        ([1, 2], ["field0", "field1"]),
        ({"a": 1, "b": 2}, ["a", "b"]),
        (Pair(1, 2), ["image", "label"]),
        (Labelled(1, 2), ["image", "label"]),
        ((1, {"boxes": 2, "labels": (3, 4)}), ["field0", "field1_boxes", "field1_labels_field0",
                                               "field1_labels_field1"]),
        ({"image.jpg": 1, 7: 2}, ["image_jpg", "7"]),
    ],
)  # fmt: skip
def test_fields_have_the_names_of_keys_attributes_and_places(sample, names):
    if "7" in names:  # no name
        with pytest.raises(SampleError, match=r"'7' of sample\[7\] is not 1 to 64 letters"):
            plan(sample)
        names = ["image_jpg", "seven"]
        assert [name for name, *_ in rows(sample, fields=names)] == names
    else:
        assert [name for name, *_ in rows(sample)] == names


def test_values_are_taken_in_the_order_of_the_fields():
    sample = (1, {"b": 2, "a": Pair(3, [4, 5])}, Labelled(6, 7))
    read = reader_of(plan(sample).skeleton)
    assert read(sample) == [1, 2, 3, 4, 5, 6, 7]
    other = (1, {"a": Pair(3, [4, 5]), "b": 2}, Labelled(6, 7))  # a map's order does not count
    assert read(other) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "sample, text",
    [
        ((1,), r"sample is of type tuple with 1 parts; in the first sample it has 0, 1"),
        (5, r"sample is of type int; in the first"),
        ((1, {"x": 1}), r"sample\[1\]\['a'\] is not there"),
        ((1, {"a": 1, "b": 2}), r"sample\[1\] is of type dict with 2 parts"),
        ((1, [1]), r"sample\[1\] is of type list with 1 parts"),
    ],
)
def test_a_sample_of_another_form_is_refused_with_its_place(sample, text):
    read = reader_of(plan((1, {"a": 1})).skeleton)
    with pytest.raises(SampleError, match=text):
        read(sample)


def test_types_are_those_of_default_collate():
    image = np.zeros((4, 5, 3), np.uint8)
    found = rows((1, 1.5, True, np.float32(2), np.zeros((2, 3), "f2"), image, "text", b"bytes"))
    assert [row[1:] for row in found] == [
        ("int64", (), "plain"),
        ("float64", (), "plain"),
        ("bool", (), "plain"),
        ("float32", (), "plain"),
        ("float16", (2, 3), "plain"),
        ("uint8", (4, 5, 3), "HWC"),
        ("uint8", (-1,), "plain"),
        ("uint8", (-1,), "encoded"),
    ]


def test_arrays_of_another_byte_order_become_native():
    array, name = tensor_of(np.arange(3, dtype=">i4"), "x")
    assert name == "int32" and array.dtype.isnative and array.tolist() == [0, 1, 2]


def test_tensors_of_torch_are_fields():
    torch = pytest.importorskip("torch")
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    image = torch.rand(3, 4, 5, requires_grad=True)
    assert [row[1:3] for row in rows((half, image, torch.tensor(3)))] == [
        ("bfloat16", (2,)),
        ("float32", (3, 4, 5)),
        ("int64", ()),
    ]
    checks = [Check(field) for field in plan((half, image)).fields]
    assert checks[0].take(half).tolist() == [0x3FC0, 0xC000]
    assert (checks[1].take(image) == image.detach().numpy()).all()
    with pytest.raises(SampleError, match="to_dense"):
        tensor_of(torch.eye(3).to_sparse(), "x")


def test_images_of_pillow_are_rows_columns_and_channels():
    image = pytest.importorskip("PIL.Image")
    found = rows((image.new("RGB", (6, 4)), image.new("L", (6, 4)), image.new("1", (6, 4))))
    assert [row[1:] for row in found] == [
        ("uint8", (4, 6, 3), "HWC"),
        ("uint8", (4, 6, 1), "HWC"),
        ("uint8", (4, 6, 1), "HWC"),
    ]


def test_axes_that_differ_among_the_first_samples_are_open():
    def sample(rows, height):
        return np.zeros((rows, 4), "f4"), np.zeros((height, 7, 3), np.uint8)

    found = rows(sample(2, 5), sample(3, 6), sample(2, 5))
    assert [row[2] for row in found] == [(-1, 4), (-1, -1, 3)]
    with pytest.raises(SampleError, match=r"float32 \[2, \?\]: only the number of rows may differ"):
        rows(np.zeros((2, 3), "f4"), np.zeros((2, 4), "f4"))
    with pytest.raises(SampleError, match=r"int64 \[\] in record 0 and float64 \[\] in record 1"):
        rows(1, 1.5)


def test_names_and_open_axes_may_be_given():
    sample = (np.zeros((2, 4), "f4"), 3)
    assert [row[0] for row in rows(sample, fields=["boxes", "n"])] == ["boxes", "n"]
    found = rows(sample, fields={"boxes": (None, 4), "n": None})
    assert [row[2] for row in found] == [(-1, 4), ()]
    for fields, text in [
        (["a"], r"1 names, and a sample has 2 values: sample\[0\], sample\[1\]"),
        (["a", "a"], "'a' of sample.1. stands there twice"),
        (["a", "sample_id"], "is a field that every dataset has"),
        ("ab", "it is a list of names"),
        ({"a": (None, 5), "b": None}, r"fields says \[None, 5\] for a, and sample\[0\] is float32"),
    ]:
        with pytest.raises(SampleError, match=text):
            plan(sample, fields=fields)


def test_a_map_names_the_values_of_a_sample_in_any_order():
    sample = {"image": np.zeros((2, 4), "f4"), "label": 3}
    found = rows(sample, fields={"label": None, "image": (None, 4)})
    assert [row[:3] for row in found] == [("image", "float32", (-1, 4)), ("label", "int64", ())]
    assert [row[0] for row in rows(sample, fields=["pixels", "class_"])] == ["pixels", "class_"]
    assert rows(sample, fields={"image": (None, 4)}) == found, (
        "of the label there is nothing to say"
    )
    assert [row[2] for row in rows((1, np.zeros(3)), fields={"field1": (None,)})] == [(), (-1,)]
    text = "fields names label, imgae, and a sample has image, label: .* say fields="
    with pytest.raises(SampleError, match=text):
        plan(sample, fields={"label": None, "imgae": (None, 4)})


def test_images_of_a_palette_are_refused_with_the_cure():
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(SampleError, match=r"sample\[0\] is an image of mode P, .*convert\('RGB'\)"):
        plan((image.new("P", (6, 4)), 1))


@pytest.mark.parametrize(
    "value, text",
    [
        (np.ma.masked_array([1, 2], [True, False]), r"is a masked array.*array\.filled"),
        (None, r"sample\[0\]\['x'\] is None: .* Leave it out"),
        (object(), r"sample\[0\]\['x'\] is of type builtins.object: give a NumPy array"),
        (np.zeros(3, "u4"), r"array of uint32, .*: give .astype\('int64'\)"),
        (np.array(["a"]), r"array of <U1, .*: give numbers, or bytes"),
        (1 << 70, "more than an int64 holds"),
        (np.zeros((1,) * 7), "has 7 axes; the most are 6"),
    ],
)
def test_what_no_batch_can_hold_is_refused_with_its_place_and_the_cure(value, text):
    with pytest.raises(SampleError, match=text):
        plan(({"x": value}, 1))


def test_no_value_and_too_many_are_refused():
    with pytest.raises(SampleError, match="has 0 values"):
        plan(())
    with pytest.raises(SampleError, match="has 65 values"):
        plan((1,) * 65)


def test_every_other_sample_is_checked():
    image = np.zeros((2, 3), "f4")
    check = Check(plan((image,)).fields[0])
    assert check.take(image) is image
    text = (
        r"field 'field0' \(sample\[0\]\) is float32 \[2, 4\]; by the first samples it is float32 "
        r"\[2, 3\]: make them alike, or say which axes differ"
    )
    with pytest.raises(SampleError, match=text):
        check.take(np.zeros((2, 4), "f4"))
    with pytest.raises(SampleError, match=r"float64 \[2, 3\]; by the first .*: make them alike$"):
        check.take(np.zeros((2, 3)))
    with pytest.raises(SampleError, match=r"sample\[0\] is None"):
        check.take(None)


def test_a_grey_image_among_others_is_told_to_become_rgb():
    cure = r": give image\.convert\('RGB'\) of each, or as many channels in another way$"
    colour, grey = np.zeros((2, 3, 3), "u1"), np.zeros((2, 3, 1), "u1")
    with pytest.raises(SampleError, match=r"is uint8 \[2, 3, 1\]; by the first .*" + cure):
        Check(plan((colour,)).fields[0]).take(grey)
    with pytest.raises(SampleError, match=r"an image whose channels differ .*" + cure):
        plan((colour,), (grey,))


def test_numbers_are_taken_as_they_are_where_they_fit():
    whole, real, flag = (Check(field) for field in plan((1, 1.5, True)).fields)
    assert whole.take(7) == 7 and whole.take(np.int64(8)) == 8
    assert real.take(2.5) == 2.5 and real.take(2) == 2.0
    assert flag.take(False) is False
    assert real.take(1 << 60) == 2.0**60
    for check, value in (
        (whole, 1.5), (whole, True), (flag, 1), (whole, 1 << 63), (real, (1 << 53) + 1)
    ):  # fmt: skip
        with pytest.raises(SampleError):
            check.take(value)


def test_tensors_of_a_payload_stand_at_multiples_of_64():
    layout = FixedLayout([DTYPES["uint8"], DTYPES["float32"], DTYPES["int64"]], [(65,), (2, 3), ()])
    assert layout.places == [192, 320, 384] and layout.size == 392
    assert len(layout.heads) == 192
