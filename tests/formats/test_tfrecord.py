"""A real daemon reads what PyPI's tfrecord wrote, whose messages are libprotobuf's."""

from __future__ import annotations

import numpy as np
import pytest

import feedwater

tfrecord = pytest.importorskip("tfrecord", reason="the writer of PyPI's tfrecord")


def loaded(daemon, folder: str, fields: str, names: str) -> list[dict]:
    daemon.add_pipeline(
        folder,
        f"version: 1\ndataset: {{format: tfrecord, root: data, path: {folder}, "
        f"fields: {{{fields}}}}}\noutputs: [{names}]\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 1}\n",
    )
    daemon.start()
    with feedwater.Loader(folder, address=daemon.address, output="numpy", as_dict=True) as loader:
        return [{name: np.array(value[0]) for name, value in batch.items()} for batch in loader]


def test_examples_are_what_the_reference_writer_was_given(make_daemon):
    daemon = make_daemon()
    (daemon.data / "examples").mkdir()
    random = np.random.Generator(np.random.PCG64(1))
    given = []
    for part in range(2):
        writer = tfrecord.TFRecordWriter(str(daemon.data / f"examples/{part}.tfrecord"))
        for _ in range(70):
            values = {
                "weights": random.standard_normal(5).astype(np.float32),
                "label": int(random.integers(-(2**63), 2**63 - 1)),
                "ids": random.integers(-5, 300, 6),
                "data": random.bytes(48),
            }
            given.append(values)
            writer.write(
                {
                    "weights": (values["weights"], "float"),
                    "label": (values["label"], "int"),
                    "ids": (values["ids"], "int"),
                    "data": (values["data"], "byte"),
                }
            )
        writer.close()
    fields = "weights: weights, label: label, ids: ids, data: {dtype: uint8, shape: [48]}"
    held = loaded(daemon, "examples", fields, "weights, label, ids, data")
    assert len(held) == len(given)
    for values, sample in zip(given, held):
        assert np.array_equal(sample["weights"], values["weights"])
        assert sample["weights"].dtype == np.float32
        assert int(sample["label"]) == values["label"]
        assert np.array_equal(sample["ids"], values["ids"])
        assert sample["data"].tobytes() == values["data"]


def test_sequences_are_what_the_reference_writer_was_given(make_daemon):
    daemon = make_daemon()
    (daemon.data / "sequences").mkdir()
    writer = tfrecord.TFRecordWriter(str(daemon.data / "sequences/0.tfrecord"))
    given = []
    for number in range(1, 6):
        rows = [[number * 10 + i, -i] for i in range(3)]
        given.append(rows)
        writer.write({"number": (number, "int")}, {"rows": (rows, "int")})
    writer.close()
    held = loaded(daemon, "sequences", "number: number, rows: {shape: [3, 2]}", "number, rows")
    assert [int(sample["number"]) for sample in held] == [1, 2, 3, 4, 5]
    for rows, sample in zip(given, held):
        assert np.array_equal(sample["rows"], rows)
