"""Hostile image files served with `on_bad_sample: substitute`, by both storage engines.

Every file of the corpora of image bytes becomes an image of a dataset, among good ones. The daemon
must live, its batches must be the same on both engines, and each good image must be there. (Time
and memory of each file alone are limited by tests/codec/hostile_image_test.cc.)
"""

from __future__ import annotations

import os
from pathlib import Path

from daemon_process import DAEMON
from driver import Driver, digests, values

from . import DATA, HANG_S, Stage

COUNTS = {"ci": 150, "release": 100_000}  # files at most
CORPORA = ("damaged_jpeg", "jpeg", "jpeg_bugs", "png")
GOOD = 48
MOST_MEMORY_MIB = 512
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: hostile}
sampler: {shuffle: full, seed: 3, last: pad}
on_bad_sample: substitute
MORE
graph:
  - decode: {in: data, out: image}
  - resize: {in: image, size: [32, 32]}
batch: {size: 8}
outputs: [image, label, sample_id]
"""


def corpus(stage: Stage) -> list[Path]:
    """Return the files: all, or a sample that the seed chooses."""
    files = [
        path
        for name in CORPORA
        for path in sorted((DATA / "hostile" / name).rglob("*"))
        if path.is_file()
    ]
    if len(files) > stage.settings.count:
        files = stage.rng.sample(files, stage.settings.count)
    return files


def run(stage: Stage) -> None:
    """Do it."""
    files = corpus(stage)
    if not files:
        stage.settings.progress(f"no hostile files in {DATA}: nothing to do")
        stage.figures["skipped"] = f"{DATA}/hostile is not there"
        stage.check("hostile files", True, "none here", "any")
        return
    stage.settings.count = len(files)
    daemon = stage.daemon()
    hostile = daemon.data / "hostile"
    (hostile / "bad").mkdir(parents=True)
    names = []
    for number, path in enumerate(files):
        # The extension only says that it is an image; the decoder looks at the bytes.
        suffix = ".png" if "png" in path.suffix.lower() else ".jpg"
        (hostile / "bad" / f"{number:06}{suffix}").write_bytes(path.read_bytes())
        names.append(str(path.relative_to(DATA)))
    good = [path for path in sorted((daemon.data / "photos").rglob("*.jpg"))][:GOOD]
    (hostile / "good").mkdir()
    for number, path in enumerate(good):
        os.link(path, hostile / "good" / f"{number:06}.jpg")
    more = "max_bad_fraction: 1" if knows_max_bad_fraction() else ""
    daemon.add_pipeline("hostile", PIPELINE.replace("MORE", more))
    seen, substituted = [], []
    for engine in ("pread", "auto"):
        daemon.command = [DAEMON, "--set", f"storage.engine={engine}"]
        daemon.restart()
        pid, before = daemon.process.pid, daemon.resident_kib()
        driver = Driver("cpp", daemon.address, FEEDWATER_STALL_TIMEOUT=str(HANG_S))
        driver.open("hostile", rank=0, world_size=1, job="hostile")
        batches = driver.batches(values=["sample_id"])
        driver.end()
        seen.append(digests(batches))
        substituted.append(sum(batch["substituted"] for batch in batches))
        present = set(values(batches, "sample_id"))
        missing = [n for n in range(len(files), len(files) + len(good)) if n not in present]
        stage.check(f"{engine}: good images that are missing", not missing, len(missing), 0)
        alive = daemon.alive() and daemon.process.pid == pid
        stage.check(f"{engine}: the daemon lives", alive, alive, True)
        grown = (daemon.resident_kib() - before) / 1024
        stage.check(f"{engine}: memory grew by", grown <= MOST_MEMORY_MIB, f"{grown:.0f} MiB",
                    f"<= {MOST_MEMORY_MIB} MiB")  # fmt: skip
    stage.done = len(files)
    stage.check("batches of both engines", seen[0] == seen[1], f"{len(seen[0])} and {len(seen[1])}",
                "the same bytes")  # fmt: skip
    stage.check("substituted samples", substituted[0] == substituted[1] > 0, substituted,
                "equal, some")  # fmt: skip
    stage.figures |= {"files": len(files), "substituted": substituted[0]}


def knows_max_bad_fraction() -> bool:
    """Tell whether pipelines have the key: then all of a dataset may be bad."""
    from . import ROOT

    return "max_bad_fraction" in (ROOT / "config/reference/pipeline.md").read_text()
