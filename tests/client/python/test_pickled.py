"""What other processes get of a user's dataset: the same, with large arrays in memory once."""

from __future__ import annotations

import functools
import mmap
import threading

import numpy as np
import own_datasets as own
import pytest

from feedwater import descriptors, errors
from feedwater.pickled import pickled, unpickled


def there_and_back(value):
    made = pickled(value, "dataset")
    try:
        return made, unpickled(made.fd, made.pieces)
    finally:
        descriptors.close(made.fd)


def test_arrays_are_in_memory_once_and_may_be_written():
    data = own.Numbers(shape=(1000, 100))
    made, got = there_and_back(data)
    assert made.modules == ["numpy._core.numeric", "own_datasets"] or "own_datasets" in made.modules
    assert not made.needs_main
    assert sum(size for _, size in made.pieces) < data.base.nbytes + 2000
    base = got.base
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert isinstance(getattr(base, "obj", base), mmap.mmap)
    got.base[0, 0] = 7
    assert (got.base[1:] == data.base[1:]).all() and data.base[0, 0] == 0


def test_a_mapped_file_is_mapped_again(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100_000))
    for array in (
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        np.load(tmp_path / "x.npy", mmap_mode="r+"),
    ):
        made, got = there_and_back([array])
        assert sum(size for _, size in made.pieces) < 2000
        assert isinstance(got[0], np.memmap) and (got[0] == np.arange(100_000)).all()
        part = array[10:20]  # a part is a copy: where it begins is not known
        assert (there_and_back([part])[1][0] == np.arange(10, 20)).all()


def test_what_was_written_over_a_mapped_file_is_kept(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100_000))
    array = np.load(tmp_path / "x.npy", mmap_mode="c")
    array[7] = -1
    made, got = there_and_back([array])
    assert isinstance(got[0], np.memmap) and got[0][7] == -1 and got[0][8] == 8
    assert 800_000 in [size for _, size in made.pieces]  # in memory once


def test_tensors_are_in_memory_once():
    torch = pytest.importorskip("torch")
    tensors = [torch.arange(1000.0), torch.arange(6).reshape(2, 3).T, torch.zeros(2).bfloat16()]
    made, got = there_and_back(tensors)
    assert all((one == two).all() and one.dtype == two.dtype for one, two in zip(tensors, got))
    assert 4000 in [size for _, size in made.pieces]


class Holder:
    def __init__(self, part) -> None:
        self.parts = {"a": [1, part]}


@pytest.mark.parametrize(
    "make, text",
    [
        (threading.Lock, r"dataset\.parts\['a'\]\[1\] \(_thread.lock\).*make it in __getitem__"),
        (lambda: open("/dev/null"), r"parts\['a'\]\[1\] \(_io.TextIOWrapper\).*open it in"),  # noqa: SIM115
        (lambda: functools.partial(threading.Lock().acquire), r"\[1\]\.func"),
        (lambda: (i for i in range(3)), r"\[1\] \(builtins.generator\)"),
    ],
)
def test_what_cannot_be_pickled_is_named_with_its_place_and_the_cure(make, text):
    with pytest.raises(errors.InvalidArgument, match=text):
        pickled(Holder(make()), "dataset")
