"""A real daemon reads what MosaicML Streaming's own MDSWriter wrote (PyPI: mosaicml-streaming)."""

from __future__ import annotations

import json

import numpy as np
import pytest

import feedwater

streaming = pytest.importorskip("streaming", reason="MDSWriter of PyPI's mosaicml-streaming")

COLUMNS = {
    "blob": "bytes",
    "count": "int",
    "fixed": "ndarray:float32:2,3",
    "half": "float16",
    "note": "str_int",
    "open": "ndarray:int32",
    "small": "uint8",
    "tree": "json",
    "wide": "uint32",
}


def samples(count: int) -> list[dict]:
    random = np.random.Generator(np.random.PCG64(3))
    return [
        {
            "blob": random.bytes(33),
            "count": int(random.integers(-(2**63), 2**63 - 1)),
            "fixed": random.standard_normal((2, 3)).astype(np.float32),
            "half": np.float16(random.standard_normal()),
            "note": int(random.integers(-(2**63), 2**63 - 1)),
            "open": random.integers(-9, 9, (2, 4)).astype(np.int32),
            "small": np.uint8(i % 256),
            "tree": {"i": i, "list": [1, None]},
            "wide": np.uint32(2**32 - 1 - i),
        }
        for i in range(count)
    ]


def write(folder, given: list[dict], **options) -> None:
    with streaming.MDSWriter(out=str(folder), columns=COLUMNS, **options) as writer:
        for sample in given:
            writer.write(sample)


FIELDS = (
    "blob: {dtype: uint8, shape: [33]}, note: {dtype: int64}, "
    "count: count, fixed: fixed, half: half, open: open, small: small, wide: wide"
)


def read(daemon) -> list[dict]:
    """Return the samples in folder `d`."""
    daemon.add_pipeline(
        "d",
        f"version: 1\ndataset: {{format: mds, root: data, path: d, fields: {{{FIELDS}}}}}\n"
        "outputs: [blob, note, count, fixed, half, open, small, wide]\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 1}\n",
    )
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        return [{name: np.array(value[0]) for name, value in batch.items()} for batch in loader]


@pytest.mark.parametrize("compression", [None, "gz", "zstd", "zstd:9"])
def test_samples_are_what_the_reference_writer_was_given(make_daemon, compression):
    daemon = make_daemon()
    given = samples(150)
    write(daemon.data / "d", given, size_limit=4096, compression=compression)
    assert len(json.loads((daemon.data / "d/index.json").read_text())["shards"]) > 3
    held = read(daemon)
    assert len(held) == len(given)
    for sample, got in zip(given, held):
        assert got["blob"].tobytes() == sample["blob"]
        assert np.array_equal(got["fixed"], sample["fixed"])
        assert np.array_equal(got["open"], sample["open"])
        assert got["open"].dtype == np.int32
        assert got["half"] == sample["half"]
        for name in ("count", "note", "small", "wide"):
            assert int(got[name]) == int(sample[name])


@pytest.mark.parametrize("compression", ["br", "bz2", "snappy"])
def test_other_compressions_are_refused_with_the_cure(make_daemon, compression):
    daemon = make_daemon()
    write(daemon.data / "d", samples(3), compression=compression)
    with pytest.raises(feedwater.InvalidArgument, match=rf"{compression}.*cure: decompress"):
        read(daemon)
