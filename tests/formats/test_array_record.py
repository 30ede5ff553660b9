"""A real daemon reads what Grain's own ArrayRecordWriter wrote (PyPI: array_record)."""

from __future__ import annotations

import numpy as np
import pytest

import feedwater

module = pytest.importorskip(
    "array_record.python.array_record_module", reason="the writer of PyPI's array_record"
)


SIZE = 30_001  # of a record, so that they lie across blocks in many ways


def records(count: int) -> list[bytes]:
    random = np.random.Generator(np.random.PCG64(5))
    return [random.bytes(SIZE) if i % 2 else (b"%d," % i * SIZE)[:SIZE] for i in range(count)]


def write(path, given: list[bytes], options: str) -> None:
    writer = module.ArrayRecordWriter(str(path), options)
    for record in given:
        writer.write(record)
    writer.close()


@pytest.mark.parametrize(
    "options",
    [
        "group_size:1,uncompressed",
        "group_size:1,zstd",
        "group_size:7,uncompressed",
        "group_size:7,zstd:9",
        "group_size:3,zstd,pad_to_block_boundary:true",
    ],
)
def test_records_are_what_the_reference_writer_was_given(make_daemon, options):
    daemon = make_daemon()
    given = records(60)
    (daemon.data / "d").mkdir()
    for part in range(2):
        path = daemon.data / f"d/x.array_record-{part:05}-of-00002"
        write(path, given[part * 30 : part * 30 + 30], options)
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: array_record, root: data, path: d, "
        f"fields: {{data: {{dtype: uint8, shape: [{SIZE}]}}}}}}\noutputs: [data]\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 1}\n",
    )
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        held = [np.array(batch["data"][0]).tobytes() for batch in loader]
    assert held == given


@pytest.mark.parametrize("options", ["group_size:65536,zstd", "group_size:600,uncompressed"])
def test_large_groups_are_unpacked_once(make_daemon, options):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\nstage: {disk: 100MiB}\n")
    given = records(700)
    (daemon.data / "d").mkdir()
    write(daemon.data / "d/x-train.array_record-00000-of-00001", given, options)
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: array_record, root: data, path: d, "
        f"fields: {{data: {{dtype: uint8, shape: [{SIZE}]}}}}}}\noutputs: [data]\n"
        "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n",
    )
    unpacked = []
    for _ in range(2):
        daemon.start()
        with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
            held = [row.tobytes() for batch in loader for row in np.array(batch["data"])]
        assert held == given
        assert daemon.stop() == 0
        staged = (daemon.folder / "state/staged").rglob("*")
        files = {path: path.stat() for path in staged if path.is_file()}
        unpacked.append(
            {path: about.st_ino for path, about in files.items() if about.st_size >= 700 * SIZE}
        )
    assert len(unpacked[0]) == 1, "one file holds all records, one after the other"
    assert unpacked[0] == unpacked[1], "the next daemon finds it"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("group_size:1,brotli", "Brotli"),
        ("group_size:1,snappy", "Snappy"),
        ("group_size:2,zstd,transpose:true", "transposed"),
    ],
)
def test_other_groups_are_refused_with_the_cure(make_daemon, options, what):
    daemon = make_daemon()
    (daemon.data / "d").mkdir()
    write(daemon.data / "d/x.array_record", records(4), options)
    daemon.add_pipeline(
        "d", "version: 1\ndataset: {format: array_record, root: data, path: d}\noutputs: [data]\n"
    )
    daemon.start()
    with pytest.raises(feedwater.InvalidArgument, match=f"{what}.*cure: "):
        feedwater.Loader("d", address=daemon.address, output="numpy", batch_size=1)
