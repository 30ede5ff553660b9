"""A real daemon reads what MindSpore's own FileWriter wrote (PyPI: mindspore), and real files as
their index databases say where the rows are."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest
from daemon_process import ROOT

import feedwater

DATA = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared" / "data"))
REST = "sampler: {shuffle: none, last: partial}\nbatch: {size: 1}\n"
SCHEMA = {
    "big": {"type": "int64"},
    "data": {"type": "bytes"},
    "double": {"type": "float64"},
    "float": {"type": "float32"},
    "grid": {"type": "float32", "shape": [2, 3]},
    "ids": {"type": "int32", "shape": [4]},
    "label": {"type": "int32"},
    "name": {"type": "string"},
    "wide": {"type": "int64", "shape": [2, 2]},
}


def read(daemon, name: str) -> list[dict[str, np.ndarray]]:
    """Return all records of a pipeline."""
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        return [{key: np.array(value[0]) for key, value in batch.items()} for batch in loader]


def add(daemon, fields: str, outputs: list[str]) -> None:
    daemon.add_pipeline(
        "d",
        f"version: 1\ndataset: {{format: mindrecord, root: data, path: d, fields: {{{fields}}}}}\n"
        f"outputs: [{', '.join(outputs)}]\n{REST}",
    )
    daemon.start()


def rows(count: int, size: int) -> list[dict]:
    random = np.random.Generator(np.random.PCG64(4))
    return [
        {
            "big": int(random.integers(-(2**63), 2**63 - 1)),
            "data": random.bytes(size),
            "double": random.standard_normal(),
            "float": random.standard_normal() if i % 3 else float(i),
            "grid": random.standard_normal((2, 3)).astype(np.float32),
            "ids": random.integers(-(2 ** (i % 31)), 2 ** (i % 31), 4).astype(np.int32),
            "label": int(random.integers(-(2**31), 2**31 - 1)),
            "name": f"row {i}",
            "wide": random.integers(-(2 ** (i % 63)), 2 ** (i % 63), (2, 2)),
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("batches", [1, 7])
def test_rows_are_what_the_reference_writer_was_given(make_daemon, shards, batches):
    mindrecord = pytest.importorskip(
        "mindspore.mindrecord", reason="FileWriter of PyPI's mindspore"
    )
    daemon = make_daemon()
    (daemon.data / "d").mkdir()
    # Pages of 32 KiB, so that there are many, and that later batches are appended to the last ones.
    given = rows(300, 1000)
    writer = mindrecord.FileWriter(str(daemon.data / "d/a.mindrecord"), shard_num=shards)
    writer.set_header_size(1 << 17)
    writer.set_page_size(1 << 15)
    writer.add_schema(SCHEMA, "a test's")
    for part in np.array_split(np.arange(len(given)), batches):
        writer.write_raw_data([given[i] for i in part])
    writer.commit()
    others = ["big", "double", "float", "grid", "ids", "label", "wide"]
    fields = "data: {dtype: uint8, shape: [1000]}, row: {from: name, classes: auto}, "
    add(daemon, fields + ", ".join(f"{name}: {name}" for name in others), ["data", "row", *others])
    held = read(daemon, "d")
    assert len(held) == len(given)
    # The writer deals rows out to files; their numbers are in the order of their names.
    by_row = {int(record["row"]): record for record in held}
    assert len(by_row) == len(given)
    for number, name in enumerate(sorted(row["name"] for row in given)):
        row, record = given[int(name.split()[1])], by_row[number]
        assert record["data"].tobytes() == row["data"], name
        for key in others:
            assert np.array_equal(record[key], np.asarray(row[key], record[key].dtype)), (name, key)
        assert record["ids"].dtype == np.int32
        assert record["grid"].dtype == np.float32


@pytest.mark.parametrize(
    ("where", "column"),
    [("testMindDataSet/testImageNetData", "label"), ("testNlpReaderData", "rating")],
)
def test_real_files_have_the_records_of_their_index_databases(make_daemon, where, column):
    source = DATA / "mindrecord" / where
    if not source.is_dir():
        pytest.skip(f"no {source}")
    daemon = make_daemon()
    (daemon.data / "d").mkdir()
    expected = []
    for database in sorted(source.glob("*.db")):
        path = database.with_suffix("")
        data = path.read_bytes()
        (daemon.data / "d" / path.name).write_bytes(data)  # without its index database
        header = json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])
        with sqlite3.connect(f"file:{database}?immutable=1", uri=True) as index:
            for page, begin, end, number in index.execute(
                "SELECT PAGE_ID_BLOB, PAGE_OFFSET_BLOB, PAGE_OFFSET_BLOB_END, "
                f"{column}_0 FROM INDEXES ORDER BY ROW_ID"
            ):
                at = header["header_size"] + page * header["page_size"]
                expected.append((data[at + begin + 8 : at + end], number))
    if column != "label":
        add(daemon, f"{column}: {column}", [column])
        assert [int(record[column]) for record in read(daemon, "d")] == [n for _, n in expected]
        return
    (daemon.data / "plain").mkdir()
    for i, (blob, _) in enumerate(expected):
        (daemon.data / f"plain/{i:03}.jpg").write_bytes(blob)
    graph = f"graph: [{{decode: {{}}}}, {{center_crop: {{size: 64}}}}]\n{REST}"
    for name, dataset, outputs in (
        ("d", "{format: mindrecord, root: data, path: d}", "image, label"),
        ("plain", "{format: images, root: data, path: plain}", "image"),
    ):
        daemon.add_pipeline(name, f"version: 1\ndataset: {dataset}\noutputs: [{outputs}]\n{graph}")
    daemon.start()
    held = read(daemon, "d")
    assert [int(record["label"]) for record in held] == [number for _, number in expected]
    for record, plain in zip(held, read(daemon, "plain"), strict=True):
        assert np.array_equal(record["image"], plain["image"])
