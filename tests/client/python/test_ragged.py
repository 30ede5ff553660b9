"""`feedwater.Ragged`: what a program does with rows of which each sample has its own number."""

from __future__ import annotations

import numpy as np
import pytest

from feedwater import InvalidArgument, Ragged
from feedwater.fields import Field, Place
from feedwater.outputs import Converter
from feedwater.spill import CopiedBatch

ROWS = [[[1, 2]], [], [[3, 4], [5, 6]]]
KINDS = ["numpy", "torch", "jax"]


def converted(kind: str, dtype: str = "float32", **options) -> Ragged:
    """Return the only output of a batch, as `Loader(output=kind)` gives it."""
    if kind != "numpy":
        pytest.importorskip(kind)
    place = Place("boxes", Field(dtype, (None, 2), max_rows=9), 0, 64)
    storage = np.uint16 if dtype == "bfloat16" else dtype
    memory = CopiedBatch(
        {
            "boxes": np.array([row for rows in ROWS for row in rows], dtype=storage),
            place.offsets.name: np.array([0, 1, 1, 3], dtype=np.int64),
        }
    )
    convert = Converter(kind, [place], as_dict=False, device=None, **options)
    (boxes,) = convert.finish(convert.begin(memory, 3))
    return boxes


def plain(array) -> list:
    return np.asarray(array).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_has_its_own_rows(kind):
    boxes = converted(kind)
    assert isinstance(boxes, Ragged)
    assert len(boxes) == 3
    assert [plain(rows) for rows in boxes] == ROWS
    assert plain(boxes[2]) == plain(boxes[-1]) == ROWS[2]
    assert [plain(rows) for rows in boxes[1:]] == ROWS[1:]
    assert plain(boxes.offsets) == [0, 1, 1, 3]
    assert plain(boxes.lengths) == [1, 0, 2]
    assert tuple(boxes.values.shape) == (3, 2)
    assert boxes.to_list() == ROWS
    assert type(boxes[1]) is type(boxes.values)
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"no sample {index}: there are 3"):
            boxes[index]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_makes_one_array(kind):
    boxes = converted(kind)
    padded = boxes.pad(-1)
    assert type(padded) is type(boxes.values)
    assert plain(padded) == [[[1, 2], [-1, -1]], [[-1, -1]] * 2, [[3, 4], [5, 6]]]
    assert plain(boxes.pad(rows=3))[1] == [[0, 0]] * 3
    with pytest.raises(InvalidArgument, match="has 2 rows, more than the 1"):
        boxes.pad(rows=1)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_takes_the_smallest_bucket_that_is_enough(kind):
    boxes = converted(kind)
    for buckets, rows in (((1, 2, 4), 2), ([8, 4], 4), (range(3, 9), 3)):
        assert boxes.pad(rows=buckets).shape == (3, rows, 2), buckets
    for buckets in ([1], []):
        with pytest.raises(InvalidArgument, match=f"more than the {len(buckets)} of pad"):
            boxes.pad(rows=buckets)


def test_without_samples_it_is_empty():
    nothing = Ragged(np.zeros((0, 4)), np.zeros(1, dtype=np.int64))
    assert len(nothing) == 0 and list(nothing) == [] and nothing.pad().shape == (0, 0, 4)
    assert "0 samples" in repr(nothing)


def test_torch_moves_both_parts():
    torch = pytest.importorskip("torch")
    boxes = converted("torch").to(torch.float64)
    assert boxes.values.dtype == torch.float64 and boxes.offsets.dtype == torch.int64
    on_meta = boxes.to("meta")
    assert on_meta.values.device.type == on_meta.offsets.device.type == "meta"
    assert on_meta[2].shape == (2, 2), "where rows begin is known without asking the device"
    assert torch.equal(boxes[2], torch.tensor(ROWS[2], dtype=torch.float64))


def test_bfloat16_and_read_only_memory():
    torch = pytest.importorskip("torch")
    assert converted("torch", "bfloat16").values.dtype == torch.bfloat16
    numbers = converted("numpy", "int64")
    assert numbers.values.dtype == np.int64 and numbers.offsets.dtype == np.int64


def test_a_fields_shape_begins_with_none():
    field = Field("float32", (None, 4), max_rows=128)
    assert field == (np.dtype("float32"), (None, 4)) and field.max_rows == 128
    place = Place("boxes", field, 0, 4096)
    assert place.sample_bytes == 128 * 16 and place.shape == (4,)
    assert place.offsets.offset == 4096 and place.offsets.sample_bytes == 8
