"""Goal: what caches take is theirs to give back: no job ends for want of memory that a cache holds,
or would have liked to have.

Method: datasets of so many records that the tables of their caches are what is large, and images
so large that keeping them does not fit where making them does.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from pictures import png

import feedwater
from feedwater.control import Control, messages


def mnist(folder, records: int, side: int) -> None:
    """Write records of zeros that take no disk."""
    folder.mkdir(parents=True)
    with open(folder / "train-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4I", 0x803, records, side, side))
        file.truncate(16 + records * side * side)
    with open(folder / "train-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2I", 0x801, records))
        file.truncate(8 + records)


def pipeline(dataset: str, graph: str, cache: str, size: int = 1) -> str:
    return (
        f"version: 1\ndataset: {{{dataset}, root: data}}\ngraph:\n{graph}"
        f"batch: {{size: {size}}}\noutputs: [image, label]\ncache: {{{cache}}}\n"
    )


def first(daemon, name: str):
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        return next(iter(loader))[0].shape


def status(daemon):
    with Control(daemon.address) as control:
        return control.call("GetStatus", messages.GetStatusRequest(), 10)


def test_idle_caches_leave_room_for_jobs(make_daemon):
    """Thirteen tables of 24 MB, each with a cache of 4 KiB, where all caches may take 32 MiB."""
    daemon = make_daemon(
        config="cpus: 2\npin_cpus: false\nmemory: 400MiB\nisolation: none\n"
        "cache: {ram: 32MiB, seek_indexes: 0}\n"
    )
    mnist(daemon.data / "many", 3_000_000, 1)
    mnist(daemon.data / "few", 64, 28)
    many = "format: mnist, path: many, height: 1, width: 1"
    for i in range(13):
        daemon.add_pipeline(
            f"many{i}",
            pipeline(many, f"  - center_crop: {{size: {i + 1}}}\n", "kind: decoded, ram: 4KiB"),
        )
    grown = "  - resize: {size: [1024, 1024], interpolation: nearest}\n"
    daemon.add_pipeline("few", pipeline("format: mnist, path: few", grown, "kind: none", 64))
    daemon.start()
    for i in range(13):
        assert first(daemon, f"many{i}") == (1, i + 1, i + 1, 1)
    assert first(daemon, "few") == (64, 1024, 1024, 1), "256 MiB in four slots"
    assert daemon.resident_kib() < (400 + 40) << 10


def test_a_cache_whose_table_finds_no_room_refuses_no_pipeline(make_daemon):
    daemon = make_daemon(
        config="cpus: 1\npin_cpus: false\nmemory: 200MiB\nisolation: none\ncache: {ram: 150MiB}\n"
    )
    mnist(daemon.data / "many", 30_000_000, 1)
    dataset = "format: mnist, path: many, height: 1, width: 1"
    daemon.add_pipeline("kept", pipeline(dataset, "  - center_crop: {size: 1}\n", "kind: bytes"))
    daemon.start()
    assert first(daemon, "kept") == (1, 1, 1, 1)


@pytest.mark.parametrize("kind", ["none", "auto", "bytes", "decoded", "coefficients"])
def test_what_cannot_be_kept_is_a_sample_all_the_same(make_daemon, kind):
    daemon = make_daemon(
        config="cpus: 1\npin_cpus: false\nmemory: 280MiB\nisolation: none\n"
        "cache: {ram: 64MiB, seek_indexes: 0}\n"
    )
    folder = daemon.data / "images/a"
    folder.mkdir(parents=True)
    for number, (height, width) in enumerate([(6000, 8000), (64, 64), (64, 64)]):
        image = np.zeros((height, width, 3), np.uint8)
        (folder / f"{number}.png").write_bytes(png(image))
    crop = "  - decode\n  - random_resized_crop: {size: 16}\n"
    daemon.add_pipeline(
        "images", pipeline("format: image_folder, path: images", crop, f"kind: {kind}")
    )
    daemon.start()
    with feedwater.Loader("images", address=daemon.address, output="numpy") as loader:
        for _ in range(2):
            assert sum(len(image) for image, _ in loader) == 3


@pytest.mark.parametrize("first_disk", [0, 1])
def test_the_first_to_open_a_shared_cache_does_not_set_its_limits(make_daemon, first_disk):
    daemon = make_daemon(
        config="cpus: 1\npin_cpus: false\nmemory: 512MiB\nisolation: none\n"
        "cache: {ram: 64MiB, disk: 64MiB, seek_indexes: 0}\n"
    )
    mnist(daemon.data / "some", 60, 64)
    same = ("format: mnist, path: some, height: 64, width: 64", "  - center_crop: {size: 60}\n")
    small = "kind: decoded, ram: 4KiB, disk: " + ("4KiB" if first_disk else "0")
    daemon.add_pipeline("small", pipeline(*same, small))
    daemon.add_pipeline("large", pipeline(*same, "kind: decoded, ram: 32MiB"))
    daemon.start()
    with (
        feedwater.Loader("small", address=daemon.address, output="numpy") as small,
        feedwater.Loader("large", address=daemon.address, output="numpy", job="large") as large,
    ):
        next(iter(small))
        for _ in range(3):
            assert sum(1 for _ in large) == 60
        kept = {job.job: job.cache for job in status(daemon).jobs}["large"]
    assert kept.memory_records == 60
    assert kept.memory_hits >= 60
