"""`memory` holds for what samples take while they are made.

Pipelines that ask for more are refused with the sum, and large images wait for each other or end
their job with an error; the daemon's peak (VmHWM) tells whether it is true.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from daemon_process import SANITIZERS

import feedwater

SIDE = 8000
MIB = 1 << 20


def progressive(side: int) -> bytes:
    """Return a grey-blue progressive JPEG, 4:2:0, of a first scan without any detail."""

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    quant = segment(0xDB, b"\0" + b"\x10" * 64)
    parts = b"\x01\x22\0\x02\x11\0\x03\x11\0"
    frame = segment(0xC2, struct.pack(">BHHB", 8, side, side, 3) + parts)
    table = segment(0xC4, b"\0\x01" + b"\0" * 15 + b"\0")  # one code: 0, for no change
    scan = segment(0xDA, b"\x03\x01\0\x02\0\x03\0" + b"\0\0\0")
    bits = 6 * (-(-side // 16)) ** 2
    assert bits % 8 == 0
    return b"\xff\xd8" + quant + frame + table + scan + b"\0" * (bits // 8) + b"\xff\xd9"


def peak(daemon) -> int:
    """Return the most memory that the daemon has had, in bytes."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status)[1])


def write_images(folder: Path, count: int, side: int = SIDE) -> None:
    (folder / "a").mkdir(parents=True)
    data = progressive(side)
    for number in range(count):
        (folder / f"a/{number}.jpg").write_bytes(data)


def pipeline(graph: str, more: str = "", outputs: str = "[image, sample_id]") -> str:
    return (
        "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
        f"graph:\n{graph}batch: {{size: 1}}\noutputs: {outputs}\ncache: {{kind: none}}\n{more}"
    )


DECODE = "  - decode\n  - resize: {size: [16, 16]}\n"
PATIENT = "limits: {max_decode_ms: 60000}\n"


def test_fields_that_do_not_fit_together_are_refused_with_their_sum(make_daemon):
    daemon = make_daemon(config="cpus: 2\nmemory: 512MiB\n")
    write_images(daemon.data / "images", 2, 64)
    graph = "  - decode\n"
    for i in range(40):
        graph += f"  - resize: {{in: image, out: a{i}, size: [6000, 6000]}}\n"
    for i in range(40):
        graph += f"  - color_jitter: {{in: a{i}, out: b{i}, brightness: 0.1}}\n"
        graph += f"  - center_crop: {{in: b{i}, out: c{i}, size: 8}}\n"
    names = ", ".join(f"c{i}" for i in range(40))
    daemon.add_pipeline("large", pipeline(graph, outputs=f"[{names}]"))
    daemon.add_pipeline("small", pipeline(DECODE))
    daemon.start()
    with pytest.raises(feedwater.Error) as refused:
        feedwater.Loader("large", address=daemon.address, output="numpy")
    message = str(refused.value)
    assert re.search(r"resize#\d+ 103\.0 MiB \+ .* more [\d.]+ GiB = [\d.]+ GiB", message), message
    assert "over the limit of 512.0 MiB" in message, message
    with feedwater.Loader("small", address=daemon.address, output="numpy") as loader:
        assert sum(1 for _ in loader) == 2
    assert SANITIZERS or peak(daemon) < 563 * MIB


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_large_images_stay_within_the_budget(make_daemon, isolation):
    config = (
        f"cpus: 2\nmemory: 400MiB\ncache: {{ram: 0, seek_indexes: 0}}\nisolation: {isolation}\n"
    )
    daemon = make_daemon(config=config)
    write_images(daemon.data / "images", 4)
    daemon.add_pipeline("images", pipeline(DECODE, PATIENT))
    daemon.start()
    with feedwater.Loader("images", address=daemon.address, output="numpy", as_dict=True) as loader:
        seen = [int(batch["sample_id"][0]) for batch in loader]
    assert sorted(seen) == [0, 1, 2, 3]
    assert SANITIZERS or peak(daemon) < 440 * MIB


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_an_image_over_the_budget_ends_its_job_with_an_error(make_daemon, isolation):
    config = f"cpus: 2\nmemory: 192MiB\nisolation: {isolation}\n"
    daemon = make_daemon(config=config)
    write_images(daemon.data / "images", 2)
    policy = "on_bad_sample: substitute\n"  # it is none: the machine is too small
    daemon.add_pipeline("images", pipeline(DECODE, policy))
    daemon.start()
    with (
        feedwater.Loader("images", address=daemon.address, output="numpy") as loader,
        pytest.raises(feedwater.Error, match=r"a/\d\.jpg.*8000x8000 pixels takes") as error,
    ):
        next(iter(loader))
    assert "larger `memory`" in str(error.value)
    assert SANITIZERS or peak(daemon) < 211 * MIB
