"""A real daemon reads what NumPy wrote: arrays, flat files of tokens and of records, idx files."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

import feedwater

REST = "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
DTYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64",
]  # fmt: skip


def read(daemon, dataset: str, outputs: str) -> dict[str, np.ndarray]:
    """Return all records of a dataset, by output."""
    pipeline = daemon.folder / "arrays.yaml"
    pipeline.write_text(f"version: 1\ndataset: {{{dataset}}}\noutputs: [{outputs}]\n{REST}")
    with feedwater.Loader(pipeline, address=daemon.address, output="numpy", as_dict=True) as loader:
        batches = [{key: np.array(value) for key, value in batch.items()} for batch in loader]
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


def drawn(random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return values from the whole range of a type."""
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.floating):
        return random.standard_normal(shape).astype(dtype)
    about = np.iinfo(dtype)
    return random.integers(about.min, about.max, shape, dtype, endpoint=True)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    daemon.start()
    return daemon


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_what_numpy_saved(daemon, dtype):
    random = np.random.Generator(np.random.PCG64(20))
    vectors = drawn(random, dtype, (30, 4, 3))
    numbers = drawn(random, dtype, (30,))
    np.save(daemon.data / "vectors.npy", vectors)
    np.save(daemon.data / "numbers.npy", numbers)
    np.savez(daemon.data / "both.npz", vectors=vectors, numbers=numbers)
    plain = read(
        daemon, "format: npy, root: data, fields: {v: vectors.npy, n: numbers.npy}", "v, n"
    )
    packed = read(
        daemon, "format: npy, root: data, path: both.npz, fields: {v: vectors, n: numbers}", "v, n"
    )
    for held in (plain, packed):
        assert held["v"].dtype == vectors.dtype
        assert held["v"].tobytes() == vectors.tobytes()
        # Single integers are int64, as labels are.
        is_integer = np.issubdtype(dtype, np.integer)
        assert held["n"].dtype == (np.int64 if is_integer else numbers.dtype)
        assert held["n"].tolist() == numbers.tolist()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(daemon, version):
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    with open(daemon.data / "rows.npy", "wb") as file:
        np.lib.format.write_array(file, rows, version=version)
    held = read(daemon, "format: npy, root: data, fields: {rows: rows.npy}", "rows")
    assert np.array_equal(held["rows"], rows)


@pytest.mark.parametrize("rows", [np.asfortranarray(np.ones((4, 3))), np.ones((4, 3), ">f4")])
def test_arrays_in_another_order_are_refused_with_the_cure(daemon, rows):
    np.save(daemon.data / "rows.npy", rows)
    with pytest.raises(feedwater.InvalidArgument, match=r"rows\.npy.*[Cc]ure"):
        read(daemon, "format: npy, root: data, fields: {rows: rows.npy}", "rows")


@pytest.mark.parametrize(("stored", "dtype"), [("<u2", np.uint16), ("<u4", np.int32)])
@pytest.mark.parametrize("stride", [0, 5, 40])
def test_windows_of_tokens_are_numpys_slices(daemon, stored, dtype, stride):
    random = np.random.Generator(np.random.PCG64(21))
    length, step = 16, stride or 16
    expected = []
    for name, count in (("a.bin", 1000), ("b.bin", 17), ("c.bin", 161)):
        tokens = random.integers(0, 60_000, count).astype(stored)
        tokens.tofile(daemon.data / name)
        last = count - length - 1  # the window's last target is a token of its own file
        expected += [
            (tokens[at : at + length], tokens[at + 1 : at + length + 1])
            for at in range(0, last + 1, step)
        ]
    width = {"<u2": "uint16", "<u4": "uint32"}[stored]
    held = read(
        daemon,
        f"format: tokens, root: data, length: {length}, stride: {stride}, dtype: {width}, "
        "targets: true",
        "tokens, targets",
    )
    assert held["tokens"].dtype == held["targets"].dtype == dtype
    assert held["tokens"].tolist() == [tokens.tolist() for tokens, _ in expected]
    assert held["targets"].tolist() == [targets.tolist() for _, targets in expected]


def test_raw_records_are_numpys_structured_arrays(daemon):
    random = np.random.Generator(np.random.PCG64(22))
    layout = np.dtype(
        [("id", "<i8"), ("pad", "V3"), ("half", "<f2", (2, 2)), ("real", "<f8"), ("flag", "?")]
    )
    files = []
    for name in ("a.dat", "b.dat"):
        records = np.zeros(20, layout)
        for field in ("id", "half", "real", "flag"):
            part = records[field]
            part[...] = drawn(random, part.dtype.name, part.shape)
        (daemon.data / name).write_bytes(b"HEADER" + records.tobytes())
        files.append(records)
    records = np.concatenate(files)
    fields = ", ".join(
        f"{name}: {{offset: {layout.fields[name][1]}, dtype: {records[name].dtype.name}, "
        f"shape: {list(records[name].shape[1:])}}}"
        for name in ("id", "half", "real", "flag")
    )
    held = read(
        daemon,
        f"format: raw, root: data, record_bytes: {layout.itemsize}, header_bytes: 6, "
        f"fields: {{{fields}}}",
        "id, half, real, flag",
    )
    for name, values in held.items():
        assert values.dtype == records[name].dtype
        assert values.tobytes() == np.ascontiguousarray(records[name]).tobytes(), name


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_files_are_numpys_bytes(daemon, pack):
    """As torchvision's MNIST writes and reads them: big-endian sizes, then bytes."""
    random = np.random.Generator(np.random.PCG64(23))
    images = random.integers(0, 256, (25, 12, 9), np.uint8)
    labels = random.integers(0, 10, 25, np.uint8)
    ending = ".gz" if pack is gzip.compress else ""
    for name, kind, values in (("images-idx3", 3, images), ("labels-idx1", 1, labels)):
        head = struct.pack(f">I{kind}I", 0x0800 | kind, *values.shape)
        path = daemon.data / f"train-{name}-ubyte{ending}"
        path.write_bytes(pack(head + values.tobytes()))
    held = read(daemon, "format: mnist, root: data, height: 12, width: 9", "image, label")
    assert np.array_equal(held["image"][..., 0], images)
    assert held["label"].tolist() == labels.tolist()
