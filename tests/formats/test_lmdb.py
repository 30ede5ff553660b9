"""A real daemon reads what the lmdb library wrote (PyPI: lmdb)."""

from __future__ import annotations

import numpy as np
import pytest

import feedwater

lmdb = pytest.importorskip("lmdb", reason="the writer of PyPI's lmdb")

REST = "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"


def read(daemon, name: str) -> dict[str, np.ndarray]:
    """Return all records of a pipeline, by output."""
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        batches = [{key: np.array(value) for key, value in batch.items()} for batch in loader]
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


def records(count: int, size: int) -> dict[bytes, bytes]:
    random = np.random.Generator(np.random.PCG64(8))
    return {b"%x" % (i * 7919): random.bytes(size) for i in range(count)}


@pytest.mark.parametrize("size", [0, 3, 2000, 2100, 100_000])
@pytest.mark.parametrize("subdir", [True, False])
def test_records_are_what_the_library_was_given(make_daemon, size, subdir):
    daemon = make_daemon()
    given = records(300, size)
    with lmdb.open(str(daemon.data / "d"), map_size=1 << 40, subdir=subdir) as env:
        for begin in range(0, 300, 50):  # of several transactions, with pages that become free
            with env.begin(write=True) as transaction:
                transaction.put(b"gone", b"x" * 9999)
                for key in list(given)[begin : begin + 50]:
                    transaction.put(key, b"rewritten")
                    transaction.put(key, given[key])
            with env.begin(write=True) as transaction:
                transaction.delete(b"gone")
    fields = f"key: {{from: key, classes: auto}}, data: {{dtype: uint8, shape: [{size}]}}"
    daemon.add_pipeline(
        "d",
        f"version: 1\ndataset: {{format: lmdb, root: data, path: d, fields: {{{fields}}}}}\n"
        f"outputs: [key{', data' if size else ''}]\n{REST}",
    )
    daemon.start()
    held = read(daemon, "d")
    assert held["key"].tolist() == list(range(300)), "in the order of keys"
    if size:
        assert [row.tobytes() for row in held["data"]] == [given[key] for key in sorted(given)]


def varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def datum(image: np.ndarray, label: int) -> bytes:
    """Return a Datum of caffe.proto."""
    header = b"".join(
        varint(field << 3) + varint(axis) for field, axis in enumerate(image.shape, start=1)
    )
    data = image.tobytes()
    return header + varint(4 << 3 | 2) + varint(len(data)) + data + varint(5 << 3) + varint(label)


def test_datums_give_images_and_labels(make_daemon):
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(9))
    images = random.integers(0, 256, (40, 3, 8, 6), dtype=np.uint8)
    with lmdb.open(str(daemon.data / "d"), map_size=1 << 30) as env:
        with env.begin(write=True) as transaction:
            for i, image in enumerate(images):
                transaction.put(b"%08d" % i, datum(image, i * 3))
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: lmdb, root: data, path: d, values: caffe_datum, "
        f"fields: {{image: data, label: label}}}}\noutputs: [image, label]\n{REST}",
    )
    daemon.start()
    held = read(daemon, "d")
    assert np.array_equal(held["image"], images)
    assert held["label"].tolist() == [i * 3 for i in range(40)]


@pytest.mark.parametrize("dupsort", [False, True])
def test_named_databases_are_refused(make_daemon, dupsort):
    daemon = make_daemon()
    with lmdb.open(str(daemon.data / "d"), map_size=1 << 30, max_dbs=2) as env:
        database = env.open_db(b"inner", dupsort=dupsort)
        with env.begin(write=True, db=database) as transaction:
            transaction.put(b"a", b"1")
            transaction.put(b"a", b"2")
    daemon.add_pipeline(
        "d", f"version: 1\ndataset: {{format: lmdb, root: data, path: d}}\noutputs: [data]\n{REST}"
    )
    daemon.start()
    with pytest.raises(feedwater.Error, match="named databases"):
        feedwater.Loader("d", address=daemon.address, output="numpy")
