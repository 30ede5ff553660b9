"""`memory` holds for what samples take while they are made.

Pipelines that ask for more are refused with the sum, and large images wait for each other or end
their job with an error; the daemon's peak (VmHWM) tells whether it is true.
"""

from __future__ import annotations

import re
import struct
import sys

import pytest
from daemon_process import ROOT, SANITIZERS

sys.path.insert(0, str(ROOT / "tests/testing"))

from bombs import live_resizes, write_progressive

import feedwater


def pipeline(graph: str, more: str = "", outputs: str = "[image, sample_id]") -> str:
    return (
        "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
        f"graph:\n{graph}batch: {{size: 1}}\noutputs: {outputs}\ncache: {{kind: none}}\n{more}"
    )


DECODE = "  - decode\n  - resize: {size: [16, 16]}\n"
PATIENT = "limits: {max_decode_ms: 60000}\n"
MEMORY = {
    "none": "230MiB",
    "process": "325MiB",
}  # one file and its image fit, a second file does not


def test_fields_that_do_not_fit_together_are_refused_with_their_sum(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 512MiB\n")
    write_progressive(daemon.data / "images", 2, 64)
    graph, outputs = live_resizes(40)
    daemon.add_pipeline("large", pipeline(graph, outputs=f"[{', '.join(outputs)}]"))
    daemon.add_pipeline("small", pipeline(DECODE))
    daemon.start()
    with pytest.raises(feedwater.Error) as refused:
        feedwater.Loader("large", address=daemon.address, output="numpy")
    message = str(refused.value)
    assert re.search(r"resize#\d+[^ ]* 103\.0 MiB \+ .* more [\d.]+ GiB = [\d.]+ GiB", message), (
        message
    )
    assert "over the limit of 512.0 MiB" in message, message
    with feedwater.Loader("small", address=daemon.address, output="numpy") as loader:
        assert sum(1 for _ in loader) == 2
    assert SANITIZERS or daemon.peak_kib() < 563 << 10


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_large_images_stay_within_the_budget(make_daemon, isolation):
    config = (
        f"cpus: 2\nmemory: 400MiB\ncache: {{ram: 0, seek_indexes: 0}}\nisolation: {isolation}\n"
    )
    daemon = make_daemon(config=config)
    write_progressive(daemon.data / "images", 4)
    daemon.add_pipeline("images", pipeline(DECODE, PATIENT))
    daemon.start()
    with feedwater.Loader("images", address=daemon.address, output="numpy", as_dict=True) as loader:
        seen = [int(batch["sample_id"][0]) for batch in loader]
    assert sorted(seen) == [0, 1, 2, 3]
    assert SANITIZERS or daemon.peak_kib() < 440 << 10


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_an_image_over_the_budget_ends_its_job_with_an_error(make_daemon, isolation):
    config = f"cpus: 2\nmemory: 192MiB\nisolation: {isolation}\n"
    daemon = make_daemon(config=config)
    write_progressive(daemon.data / "images", 2)
    policy = "on_bad_sample: substitute\n"  # it is none: the machine is too small
    daemon.add_pipeline("images", pipeline(DECODE, policy))
    daemon.start()
    with (
        feedwater.Loader("images", address=daemon.address, output="numpy") as loader,
        pytest.raises(feedwater.Error, match=r"a/\d\.jpg.*8000x8000 pixels takes") as error,
    ):
        next(iter(loader))
    assert "larger `memory`" in str(error.value)
    assert SANITIZERS or daemon.peak_kib() < 211 << 10


def write_bitmap(path, side: int) -> None:
    """Write a black BMP of `side` x `side` pixels; its bytes are a hole in the file."""
    header = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 2835, 2835, 0, 0)
    size = 54 + 3 * side * side
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"BM" + struct.pack("<IHHI", size, 0, 0, 54) + header)
        file.truncate(size)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_workers_that_hold_large_files_do_not_wait_for_each_other(make_daemon, isolation):
    """Each file takes a read buffer before its image takes memory, and not all of both fit."""
    config = (
        f"cpus: 2\nmemory: {MEMORY[isolation]}\ncache: {{ram: 0, seek_indexes: 0}}\n"
        f"isolation: {isolation}\n"
    )
    daemon = make_daemon(config=config)
    for i in range(12):
        write_bitmap(daemon.data / f"images/a/{i:02d}.bmp", 4000)
    daemon.add_pipeline("images", pipeline(DECODE, PATIENT))
    daemon.start()
    with feedwater.Loader("images", address=daemon.address, output="numpy", as_dict=True) as loader:
        seen = [int(batch["sample_id"][0]) for batch in loader]
    assert seen == list(range(12))
