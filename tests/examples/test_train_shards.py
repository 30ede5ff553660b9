"""train_shards.py over drawn pictures: the same training on one rank and on two."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from conftest import command, environment
from daemon_process import BUILD
from pictures import CLASSES, label, png

PICTURES, GLOBAL_BATCH, EPOCHS = 90, 12, 4
PIPELINE = """version: 1
dataset:
  format: image_folder
  root: data

  path: tinted
# The sampler stays as it is.
sampler: {shuffle: full, seed: 5, last: partial}
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [8, 8]}
  - normalize: {in: image, mean: [127, 127, 127], std: [64, 64, 64], dtype: float32, layout: CHW}
batch: {size: 6}
outputs: [image, label]
"""
LINE = re.compile(r"epoch (\d+): loss ([\d.]+), accuracy ([\d.]+) over (\d+) pictures in (\d+)")


@pytest.fixture
def tinted(make_daemon):
    """A daemon over pictures of three classes, which differ in what is brightest in them."""
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(2))
    for number in range(PICTURES):
        kind = label(number, PICTURES)
        picture = random.integers(60, 160, (16, 16, 3))
        picture[..., kind] += 60
        path = daemon.data / "tinted" / CLASSES[kind] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(picture.astype(np.uint8)))
    daemon.start()
    (daemon.folder / "tinted.yaml").write_text(PIPELINE)
    return daemon


def arguments(daemon, shards, ranks: int, *more: object) -> dict:
    """Return how the example is run; all ranks together take GLOBAL_BATCH pictures a step."""
    return {
        "args": command(
            "train_shards.py", daemon.folder / "tinted.yaml", shards, "--ranks", ranks,
            "--batch-size", GLOBAL_BATCH // ranks, "--epochs", EPOCHS,
            "--feedwater", BUILD / "bin/feedwater", *more,
        ),
        "env": {**environment(daemon), "FEEDWATER_CONFIG": str(daemon.config)},
        "text": True,
    }  # fmt: skip


def train(*given: object) -> subprocess.CompletedProcess:
    return subprocess.run(**arguments(*given), capture_output=True, timeout=300)


def test_two_ranks_learn_from_shards_what_one_rank_learns(tinted):
    shards = tinted.data / "shards"
    both = train(tinted, shards, 2)
    assert both.returncode == 0, both.stderr
    epochs = LINE.findall(both.stdout)
    assert len(epochs) == EPOCHS, both.stdout
    # 7 steps of 12 pictures, and one of the 6 that are left: each picture once in each epoch.
    assert {epoch[3:] for epoch in epochs} == {("90", "8")}
    assert float(epochs[-1][1]) < 0.5 * float(epochs[0][1])
    assert float(epochs[-1][2]) > 0.95
    with tarfile.open(shards / "tinted-000000.tar") as tar:
        names = [member.name for member in tar if member.isfile()]
    assert len([name for name in names if name.endswith(".png")]) == PICTURES

    # The shards are there: nothing is written again. The folder's pictures are not needed.
    before = (shards / "tinted-000000.tar").stat()
    one = train(tinted, shards, 1)
    assert one.returncode == 0, one.stderr
    assert (shards / "tinted-000000.tar").stat().st_ino == before.st_ino
    # The sums are of the same numbers in another order.
    alone = np.array(LINE.findall(one.stdout), float)
    np.testing.assert_allclose(alone, np.array(epochs, float), atol=0.0002)


def ranks_of(pid: int) -> list[int]:
    """Return the processes that a program has spawned as its ranks."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child) for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_the_others(tinted, rank):
    endless = arguments(tinted, tinted.data / "shards", 2, "--epochs", 1_000_000)
    with subprocess.Popen(**endless, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as trains:
        try:
            assert LINE.match(trains.stdout.readline())
            os.kill(ranks_of(trains.pid)[rank], signal.SIGKILL)
            trains.stdout.read()
            assert trains.wait(60) != 0
        finally:
            trains.kill()


def test_a_pipeline_without_a_dataset_of_its_own_is_an_error(tinted, tmp_path):
    (tinted.folder / "tinted.yaml").write_text("version: 1\noutputs: [image]\n")
    done = train(tinted, tinted.data / "shards", 2)
    assert done.returncode == 2 and "dataset" in done.stderr
