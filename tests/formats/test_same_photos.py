"""The same photos give the same batches in whatever format they lie, from the files and from the
cache, whose coefficients later epochs decode."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tests/testing"))

import mindrecord_files

import feedwater

GRAPH = (
    "graph:\n  - decode: {in: data, out: image}\n"
    "  - random_resized_crop: {in: image, size: [32, 32]}\n"
    "  - random_horizontal_flip: {in: image}\n"
)
SAMPLER = "sampler: {shuffle: full, seed: 9}\n"
REST = "batch: {size: 8}\noutputs: [image, label, sample_id]\n"


@pytest.fixture
def photos(make_daemon):
    """Make a daemon whose data holds an image folder; list its files in order, with labels."""
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\ncache: {ram: 128MiB}\n")
    command = [BUILD / "tools/make_photos", daemon.data / "photos", "--count", "24"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    classes = sorted(path for path in (daemon.data / "photos").iterdir() if path.is_dir())
    files = [
        (path, label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())
    ]
    return daemon, files


def webdataset(files: list[tuple[Path, int]], folder: Path, compress: bool = False) -> None:
    """Write two tar shards, as webdataset.TarWriter does: key.jpg, key.cls."""
    folder.mkdir()
    for shard, part in enumerate(np.array_split(np.arange(len(files)), 2)):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for i in part:
                path, label = files[i]
                for name, data in (
                    (f"{i:06}{path.suffix}", path.read_bytes()),
                    (f"{i:06}.cls", b"%d" % label),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        data = archive.getvalue()
        name = f"photos-{shard:06}.tar" + ".gz" * compress
        (folder / name).write_bytes(gzip.compress(data) if compress else data)


def mindrecord(files: list[tuple[Path, int]], folder: Path) -> None:
    """Write a set of three MindRecord files."""
    folder.mkdir()
    schema = {"data": {"type": "bytes"}, "label": {"type": "int64"}, "name": {"type": "string"}}
    names = [f"photos.mindrecord{shard}" for shard in range(3)]
    for shard, part in enumerate(np.array_split(np.arange(len(files)), 3)):
        rows = [
            ({"label": files[i][1], "name": files[i][0].name}, [files[i][0].read_bytes()])
            for i in part
        ]
        (folder / names[shard]).write_bytes(mindrecord_files.mindrecord(schema, rows, names, shard))


def parquet(files: list[tuple[Path, int]], folder: Path) -> None:
    """Write two files of three row groups each, as Hugging Face writes images."""
    pa = pytest.importorskip("pyarrow", reason="the writer of Parquet files")
    from pyarrow import parquet as pq

    if not (BUILD / "bin/feedwater-columnar").exists():
        pytest.skip("built without feedwater-columnar (scripts/setup --parquet)")
    folder.mkdir()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for shard, part in enumerate(np.array_split(np.arange(len(files)), 2)):
        images = [{"bytes": files[i][0].read_bytes(), "path": files[i][0].name} for i in part]
        labels = [files[i][1] for i in part]
        table = pa.table({"image": pa.array(images, kind), "label": pa.array(labels, pa.int64())})
        path = folder / f"train-{shard:05}-of-00002.parquet"
        pq.write_table(table, path, row_group_size=4)


FORMATS = {
    "webdataset": ("{format: webdataset, root: data, path: DIR}", webdataset),
    "webdataset, compressed": (
        "{format: webdataset, root: data, path: DIR}",
        lambda files, folder: webdataset(files, folder, compress=True),
    ),
    "mindrecord": ("{format: mindrecord, root: data, path: DIR}", mindrecord),
    "parquet": (
        "{format: parquet, root: data, path: DIR, fields: {data: image.bytes, label: label}}",
        parquet,
    ),
}


def epochs(daemon, name: str, count: int = 2) -> list[list[np.ndarray]]:
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        return [[np.array(field) for batch in loader for field in batch] for _ in range(count)]


def decoded(daemon) -> dict:
    command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
    jobs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["jobs"]
    return jobs[0]["decoded"]


@pytest.mark.parametrize("kind", FORMATS)
def test_photos_are_the_same_in_every_format_in_both_epochs(photos, kind):
    daemon, files = photos
    dataset, write = FORMATS[kind]
    write(files, daemon.data / "packed")
    plain = "{format: image_folder, root: data, path: photos}"
    for name, section in (("plain", plain), ("packed", dataset.replace("DIR", "packed"))):
        daemon.add_pipeline(name, f"version: 1\ndataset: {section}\n{SAMPLER}{GRAPH}{REST}")
    daemon.start()
    expected = epochs(daemon, "plain")
    with feedwater.Loader("packed", address=daemon.address, output="numpy") as loader:
        for epoch in expected:
            seen = [np.array(field) for batch in loader for field in batch]
            assert all(np.array_equal(a, b) for a, b in zip(seen, epoch, strict=True))
        assert decoded(daemon).get("coefficients", 0) > 0, "the second epoch is the cache's"
