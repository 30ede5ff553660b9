"""Caches of kind `decoded` in a real daemon: the bytes of the batches never tell that there is one.

Each pipeline is run without a cache, then with one that is filled, full, read from disk after a
kill, and damaged on disk.
"""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from daemon_process import BUILD
from pictures import write_folder
from test_config_pipelines import write_cifar10, write_mnist

import feedwater

RECORDS = 36
NORMALIZE = "  - normalize: {mean: [123, 116, 103], std: [58, 57, 57]}\n"
GREY = "  - normalize: {mean: [33], std: [78]}\n"
PIPELINES = {
    "pixels": (
        "image_folder",
        "  - decode: {}\n  - random_resized_crop: {size: 16}\n"
        "  - random_horizontal_flip: {}\n" + NORMALIZE,
    ),
    "resized": (
        "image_folder",
        "  - decode: {}\n  - resize: {size: [12, 14]}\n"
        "  - random_crop: {size: 10, padding: 2}\n" + NORMALIZE,
    ),
    "fixed": (
        "image_folder",
        "  - decode: {}\n  - resize: {size: 12}\n  - center_crop: {size: 12}\n" + NORMALIZE,
    ),
    "cifar10": ("cifar10", "  - random_crop: {size: 32, padding: 4}\n" + NORMALIZE),
    "mnist": ("mnist", "  - resize: {size: [20, 20]}\n  - random_horizontal_flip: {}\n" + GREY),
}


def pipeline(name: str, kind: str) -> str:
    data_format, graph = PIPELINES[name]
    return (
        f"version: 1\ndataset: {{format: {data_format}, root: data, path: {data_format}}}\n"
        f"sampler: {{shuffle: full, seed: 5}}\ngraph:\n{graph}batch: {{size: 6}}\n"
        f"outputs: [image, label, sample_id, position]\ncache: {{kind: {kind}}}\n"
    )


def make(make_daemon, ram: str):
    """Start a daemon with every pipeline twice, without a cache and with one."""
    daemon = make_daemon(config=f"cpus: 2\nmemory: 1GiB\ncache: {{ram: {ram}, disk: 64MiB}}\n")
    write_folder(daemon.data / "image_folder", RECORDS)
    write_cifar10(daemon.data / "cifar10")
    write_mnist(daemon.data / "mnist")
    for name in PIPELINES:
        daemon.add_pipeline(f"{name}-plain", pipeline(name, "none"))
        daemon.add_pipeline(name, pipeline(name, "decoded"))
    daemon.start()
    return daemon


def epochs(daemon, name: str, count: int) -> tuple[list[tuple[bytes, ...]], dict]:
    """Return all fields of all batches of the first epochs, and what the cache has counted."""
    seen = []
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        for _ in range(count):
            seen += [tuple(np.asarray(field).tobytes() for field in batch) for batch in loader]
        command = [BUILD / "bin/feedwater", "--address", daemon.address, "status", "--json"]
        status = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        (job,) = [job for job in status["jobs"] if job["pipeline"] == name]
        return seen, job["cache"]


def spoil(daemon) -> None:
    """Change a byte in every kilobyte of what is kept on disk."""
    segments = list((daemon.folder / "state/cache").glob("*/segment-*"))
    assert segments
    for segment in segments:
        data = bytearray(segment.read_bytes())
        for at in range(200, len(data), 1024):
            data[at] ^= 0x55
        segment.write_bytes(data)


@pytest.mark.parametrize("ram", ["32MiB", "0"])
def test_batches_are_the_same_from_memory_and_from_disk(make_daemon, ram):
    daemon = make(make_daemon, ram)
    plain = {name: epochs(daemon, f"{name}-plain", 3)[0] for name in PIPELINES}
    for name in PIPELINES:
        for _ in range(3):  # what is kept on disk is written behind the epochs' back
            seen, cache = epochs(daemon, name, 3)
            assert seen == plain[name], name
            assert cache["kind"] == "decoded" and "asks for it" in cache["reason"]
            hits = cache["memory_hits"] if ram != "0" else cache["disk_hits"]
            if hits >= RECORDS:
                break
        assert hits >= RECORDS, cache
    daemon.restart()  # by kill -9
    for name in PIPELINES:
        seen, cache = epochs(daemon, name, 1)
        assert seen == plain[name][: RECORDS // 6], name
        assert cache["disk_hits"] > 0 and cache["damaged"] == 0, cache
    daemon.kill()
    spoil(daemon)
    daemon.start()
    for name in PIPELINES:
        seen, cache = epochs(daemon, name, 2)
        assert seen == plain[name][: 2 * RECORDS // 6], name
        assert cache["damaged"] > 0, cache


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_what_stands_for_a_bad_record_is_kept_under_its_own_number(make_daemon, isolation):
    daemon = make_daemon(
        config=f"cpus: 1\nmemory: 1GiB\ncache: {{ram: 64MiB}}\nisolation: {isolation}\n"
    )
    write_folder(daemon.data / "image_folder", RECORDS, bad=(1,))
    numbered = (
        "version: 1\ndataset: {format: image_folder, root: data, path: image_folder}\n"
        "graph: [{decode: {}}, {resize: {size: [8, 8]}},"
        " {cast: {in: sample_id, out: number, dtype: int32}}]\n"
        "on_bad_sample: skip_with_count\nmax_bad_fraction: 1\nbatch: {size: 2}\n"
        "outputs: [image, sample_id, number]\ncache: {kind: decoded}\n"
    )
    daemon.add_pipeline("numbered", numbered)
    daemon.start()
    with feedwater.Loader("numbered", address=daemon.address, output="numpy", slots=1) as loader:
        for _ in range(2):
            for batch in loader:
                assert np.array_equal(batch[1], batch[2])
                del batch  # of the only slot


def test_pipelines_that_begin_alike_share_what_is_kept(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 1GiB\ncache: {ram: 64MiB}\n")
    write_folder(daemon.data / "image_folder", RECORDS)
    daemon.add_pipeline("first", pipeline("resized", "decoded"))
    other = pipeline("resized", "decoded").replace("random_crop: {size: 10, padding: 2}", "layout")
    daemon.add_pipeline("second", other)
    daemon.add_pipeline("second-plain", other.replace("decoded", "none"))
    daemon.start()
    epochs(daemon, "first", 2)
    seen, cache = epochs(daemon, "second", 1)
    assert cache["memory_hits"] >= 2 * RECORDS and cache["misses"] < 2 * RECORDS, cache
    assert seen == epochs(daemon, "second-plain", 1)[0]
