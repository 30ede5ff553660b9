"""Tar shards that the webdataset library itself wrote."""

from __future__ import annotations

import io

import numpy as np
import pytest

import feedwater


def test_shards_of_the_library_are_read_as_it_reads_them(make_daemon):
    webdataset = pytest.importorskip("webdataset")
    daemon = make_daemon()
    random = np.random.default_rng(3)
    records = []
    with webdataset.ShardWriter(str(daemon.data / "s-%06d.tar"), maxcount=4, verbose=0) as writer:
        for i in range(10):
            vector = random.normal(size=5).astype(np.float32)
            records.append((f"record {i}", i % 3, vector))
            writer.write(
                {"__key__": f"d/{i:03}", "txt": records[-1][0], "cls": i % 3, "npy": vector}
            )
    daemon.add_pipeline(
        "shards",
        "version: 1\ndataset: {format: webdataset, root: data, files: ['s-{000000..000002}.tar'], "
        "fields: {vector: {from: npy, dtype: float32, shape: [5]}, "
        "label: {from: cls, dtype: int64}}}\n"
        "sampler: {shuffle: none}\nbatch: {size: 10}\noutputs: [vector, label]\n",
    )
    daemon.start()
    with feedwater.Loader("shards", address=daemon.address, output="numpy") as loader:
        vectors, labels = next(iter(loader))
        assert np.array_equal(vectors, [vector for *_, vector in records])
        assert labels.tolist() == [label for _, label, _ in records]


def test_files_of_numpy_are_read_as_numpy_reads_them(make_daemon):
    daemon = make_daemon()
    random = np.random.default_rng(4)
    images = random.integers(0, 256, (9, 6, 5, 3), dtype=np.uint8)
    labels = np.arange(9, dtype=np.int32)
    weights = random.normal(size=(9, 4)).astype(np.float16)
    np.save(daemon.data / "images.npy", images)
    np.savez(daemon.data / "rest.npz", labels=labels, weights=weights)
    daemon.add_pipeline(
        "arrays",
        "version: 1\ndataset: {format: npy, root: data, fields: {image: images.npy, "
        "label: 'rest.npz:labels', weight: 'rest.npz:weights'}}\n"
        "sampler: {shuffle: none}\nbatch: {size: 9}\n"
        "outputs: [image, label, weight]\n",
    )
    buffer = io.BytesIO()
    np.savez_compressed(buffer, labels=labels)
    (daemon.data / "packed.npz").write_bytes(buffer.getvalue())
    daemon.add_pipeline(
        "packed",
        "version: 1\ndataset: {format: npy, root: data, path: packed.npz}\nbatch: {size: 1}\n"
        "outputs: [labels]\n",
    )
    daemon.start()
    with feedwater.Loader("arrays", address=daemon.address, output="numpy") as loader:
        image, label, weight = next(iter(loader))
        assert np.array_equal(image, images)
        assert label.tolist() == labels.tolist() and label.dtype == np.int64
        assert np.array_equal(weight, weights)
    with pytest.raises(feedwater.InvalidArgument, match=r"packed\.npz.*numpy\.savez\("):
        feedwater.Loader("packed", address=daemon.address)
