"""A real daemon reads what pyarrow wrote as Parquet and as Arrow IPC, and what Hugging Face's
datasets saved. Needs feedwater-columnar (scripts/setup --parquet)."""

from __future__ import annotations

import os
import subprocess
import time

import numpy as np
import pytest
from daemon_process import BUILD

import feedwater

pa = pytest.importorskip("pyarrow", reason="the writer of Parquet and Arrow files")
pq = pytest.importorskip("pyarrow.parquet", reason="the writer of Parquet files")

pytestmark = pytest.mark.skipif(
    not (BUILD / "bin/feedwater-columnar").exists(),
    reason="built without feedwater-columnar (scripts/setup --parquet)",
)

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FIELDS = (
    "{data: {from: image.bytes, dtype: uint8, shape: [500]}, id: id, weight: weight, "
    "kind: {from: kind, classes: auto}, score: {from: score, optional: true}, boxes: boxes}"
)
OUTPUTS = "data, id, weight, kind, score, {boxes: {max_rows: 8}}"


def rows(count: int) -> list[dict]:
    random = np.random.Generator(np.random.PCG64(4))
    return [
        {
            "image": {"bytes": random.bytes(500), "path": f"{i}.jpg"},
            "id": int(random.integers(-(2**63), 2**63 - 1)),
            "weight": float(random.standard_normal()),
            "kind": ("cat", "dog", "eel")[i % 3],
            "score": None if i % 5 == 0 else i,
            "boxes": random.standard_normal(i % 4).astype(np.float32).tolist(),
        }
        for i in range(count)
    ]


SCHEMA = pa.schema(
    [
        ("image", IMAGE),
        ("id", pa.int64()),
        ("weight", pa.float64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("score", pa.int32()),
        ("boxes", pa.list_(pa.float32())),
    ]
)


def add(daemon, name: str, section: str, outputs: str = OUTPUTS, batch: int = 7) -> None:
    daemon.add_pipeline(
        name,
        f"version: 1\ndataset: {{{section}}}\noutputs: [{outputs}]\n"
        f"sampler: {{shuffle: none, last: partial}}\nbatch: {{size: {batch}}}\n",
    )


def expect(daemon, name: str, given: list[dict]) -> None:
    held = []
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        for batch in loader:
            for i in range(len(batch["id"])):
                held.append({key: np.array(batch[key][i]) for key in batch})
    assert len(held) == len(given)
    for row, sample in zip(given, held):
        assert sample["data"].tobytes() == row["image"]["bytes"]
        assert int(sample["id"]) == row["id"]
        assert float(sample["weight"]) == row["weight"]
        assert int(sample["kind"]) == ("cat", "dog", "eel").index(row["kind"])
        assert int(sample["score"]) == (row["score"] or 0)
        assert np.array_equal(sample["boxes"], np.array(row["boxes"], np.float32))


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_rows_are_what_the_reference_writer_was_given(make_daemon, compression, version):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    given = rows(100)
    (daemon.data / "d").mkdir()
    for part in range(2):
        table = pa.Table.from_pylist(given[part * 50 : part * 50 + 50], SCHEMA)
        pq.write_table(
            table,
            daemon.data / f"d/train-{part:05}-of-00002.parquet",
            row_group_size=13,
            compression=compression,
            version=version,
            data_page_version="1.0" if version == "1.0" else "2.0",
            data_page_size=700,
        )
    add(daemon, "d", f"format: parquet, root: data, path: d, fields: {FIELDS}")
    daemon.start()
    expect(daemon, "d", given)


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_of_arrow_are_what_they_were_written_as(make_daemon, kind, compression):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    given = rows(100)
    (daemon.data / "d").mkdir()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(daemon.data / "d/x.arrow", SCHEMA, options=options) as writer:
        writer.write_table(pa.Table.from_pylist(given, SCHEMA), max_chunksize=17)
    add(daemon, "d", f"format: arrow, root: data, path: d, fields: {FIELDS}")
    daemon.start()
    expect(daemon, "d", given)


def test_a_saved_hugging_face_dataset_is_read_where_it_lies(make_daemon):
    datasets = pytest.importorskip("datasets", reason="Hugging Face's library")
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    given = rows(60)
    saved = datasets.Dataset(
        pa.Table.from_pylist(given, SCHEMA.set(3, pa.field("kind", pa.string())))
    )
    datasets.DatasetDict({"train": saved}).save_to_disk(daemon.data / "d", num_shards={"train": 3})
    add(daemon, "d", f"format: arrow, root: data, path: d/train, fields: {FIELDS}")
    daemon.start()
    expect(daemon, "d", given)


def test_a_null_is_a_bad_sample_where_it_may_not_be(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    (daemon.data / "d").mkdir()
    table = pa.table({"x": pa.array([1, None, 3, None, 5], pa.int64())})
    pq.write_table(table, daemon.data / "d/a.parquet")
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: parquet, root: data, path: d}\noutputs: [x]\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 5}\n"
        "on_bad_sample: skip_with_count\nmax_bad_fraction: 1\n",
    )
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy") as loader:
        for _ in loader:
            pass
        assert (loader.stats()["real_samples"], loader.stats()["skipped"]) == (3, 2)


def test_a_state_survives_a_restart_and_a_lost_stage(make_daemon):
    """What is unpacked again is the same rows, so a saved position holds."""
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    given = rows(40)
    (daemon.data / "d").mkdir()
    pq.write_table(pa.Table.from_pylist(given, SCHEMA), daemon.data / "d/a.parquet")
    add(daemon, "d", f"format: parquet, root: data, path: d, fields: {FIELDS}", batch=4)
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = np.array(next(batches)["id"])
    assert daemon.stop() == 0
    subprocess.run(["rm", "-r", str(next(daemon.folder.rglob("staged")))], check=True)
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        loader.load_state_dict(state)
        assert np.array_equal(next(iter(loader))["id"], expected)


def test_guess_knows_both(make_daemon, tmp_path):
    given = rows(10)
    for name, write in (
        ("parquet", lambda table, path: pq.write_table(table, path)),
        ("arrow", lambda table, path: pa.feather.write_feather(table, str(path))),
    ):
        pytest.importorskip("pyarrow.feather")
        folder = tmp_path / name
        folder.mkdir()
        write(pa.Table.from_pylist(given, SCHEMA), folder / f"x.{name}")
        command = [BUILD / "bin/feedwater", "describe", "dataset", "--guess", folder]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        text = subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout
        assert f"format: {name}" in text and "10 records" in text and "image.bytes" in text
        assert not [path for path in tmp_path.iterdir() if path.name not in ("parquet", "arrow")]


def test_an_opening_that_nobody_waits_for_ends_the_program(make_daemon):
    """A large file's unpacking ends with the loader that asked for it."""
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\n")
    (daemon.data / "d").mkdir()
    table = pa.table({"x": np.zeros(3_000_000, np.int64), "t": ["a text"] * 3_000_000})
    pq.write_table(table, daemon.data / "d/a.parquet")
    add(daemon, "d", "format: parquet, root: data, path: d", outputs="x")
    daemon.start()
    script = (
        "import feedwater, sys\n"
        f"feedwater.Loader('d', address={str(daemon.address)!r}, output='numpy')\n"
    )

    def running() -> list[str]:
        found = []
        for path in (p for p in os.listdir("/proc") if p.isdigit()):
            try:
                with open(f"/proc/{path}/stat") as file:
                    stat = file.read()
            except OSError:
                continue
            if "(fw-columnar)" in stat and stat.rsplit(")", 1)[1].split()[1] == str(
                daemon.process.pid
            ):
                found.append(path)
        return found

    import sys

    client = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not running() and client.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    client.kill()
    client.wait()
    while running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running()
