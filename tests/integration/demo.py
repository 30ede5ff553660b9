"""What scripts/demo runs once everything is built: one daemon, four ranks, two epochs.

The expected order is computed by the reference Python of server/sampler/README.md, so the check
shares no code with the daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
DATA = ROOT / "build" / "demo"
RANKS, BATCH, EPOCHS, SEED = 4, 32, 2, 42

PIPELINE = f"""\
version: 1
dataset: {{format: image_folder, root: demo, path: photos}}
sampler: {{shuffle: full, seed: {SEED}, last: drop}}
graph:
  - decode: {{in: data, out: image}}
  - random_resized_crop: {{in: image, size: [224, 224], scale: [0.08, 1.0]}}
  - random_horizontal_flip: {{in: image, p: 0.5}}
  - normalize: {{mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], layout: CHW}}
batch: {{size: {BATCH}}}
outputs: [image, label, sample_id, position]
"""


def reference_order() -> dict:
    """The functions of the code block in server/sampler/README.md."""
    text = (ROOT / "server" / "sampler" / "README.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.S)
    names: dict = {}
    exec(block.group(1), names)
    return names


class Rank(threading.Thread):
    """One trainer process and what it reported, a dictionary a batch."""

    def __init__(self, command: list[str], environment: dict, bar: tqdm) -> None:
        super().__init__(daemon=True)
        self.lines: list[dict] = []
        self.stats: dict = {}
        self._bar = bar
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def run(self) -> None:
        for text in self.process.stdout:
            line = json.loads(text)
            if "stats" in line:
                self.stats = line["stats"]
            else:
                self.lines.append(line)
                self._bar.update(len(line["sample_id"]))


def ask(command: str, address: Path) -> dict:
    """The JSON answer of `feedwater COMMAND`."""
    done = subprocess.run(
        [BUILD / "bin" / "feedwater", "--address", address, command, "--json"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"feedwater {command}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def start_daemon(folder: Path) -> subprocess.Popen:
    """Starts feedwaterd in `folder` and waits until it serves."""
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "demo.yaml").write_text(PIPELINE)
    (folder / "feedwater.yaml").write_text(
        f"version: 1\nruntime_dir: {folder}/run\nstate_dir: {DATA}/state\n"
        f"pipelines: [pipelines]\nroots: {{demo: {DATA}}}\n"
    )
    with open(DATA / "feedwaterd.log", "w") as log:
        daemon = subprocess.Popen(
            [BUILD / "bin" / "feedwaterd", "--config", folder / "feedwater.yaml"], stderr=log
        )
    for _ in range(200):
        if daemon.poll() is not None:
            break
        try:
            ask("health", folder / "run")
            return daemon
        except RuntimeError:
            time.sleep(0.05)
    daemon.kill()
    sys.exit(f"demo: feedwaterd did not start:\n{(DATA / 'feedwaterd.log').read_text()}")


def check_order(ranks: list[Rank], records: int) -> int:
    """Compares every batch with the reference order; the number of samples compared."""
    batch_of = reference_order()["batch"]
    steps = records // (RANKS * BATCH)
    compared = 0
    for epoch in range(EPOCHS):
        for rank, trainer in enumerate(ranks):
            batches = [line for line in trainer.lines if line["epoch"] == epoch]
            if len(batches) != steps:
                sys.exit(
                    f"demo: rank {rank} saw {len(batches)} batches of epoch {epoch}, not {steps}"
                )
            for step, line in enumerate(batches):
                places = batch_of(
                    records, BATCH, RANKS, SEED, epoch, step, rank, shuffle="full", last="drop"
                )
                expected = [(place[0], place[1]) for place in places]
                seen = list(zip(line["position"], line["sample_id"]))
                if line["step"] != step or seen != expected:
                    where = f"rank {rank}, epoch {epoch}, step {step}"
                    sys.exit(f"demo: {where}: got {seen[:4]}..., promised {expected[:4]}...")
                compared += len(seen)
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description="One daemon, four ranks, two epochs.")
    parser.add_argument(
        "--photos", type=int, default=3000, help="how many photos to draw (default 3000)"
    )
    args = parser.parse_args()
    if args.photos < RANKS * BATCH:
        parser.error(
            f"--photos must be at least {RANKS * BATCH}: {BATCH} for each of {RANKS} ranks"
        )
    DATA.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [BUILD / "tools" / "make_photos", DATA / "photos", "--count", str(args.photos)], check=True
    )

    folder = Path(tempfile.mkdtemp(prefix="feedwater-demo-"))
    shared_before = set(os.listdir("/dev/shm"))
    daemon = start_daemon(folder)
    ranks: list[Rank] = []
    try:
        status = ask("status", folder / "run")
        engine = status["engine"]
        print(f"feedwaterd {status['version']}: engine {engine['name']} ({engine['reason']}),")
        print(f"  {len(status['cpus'])} workers, {status['simd']}")
        records = args.photos
        total = records // (RANKS * BATCH) * RANKS * BATCH * EPOCHS
        environment = {**os.environ, "FEEDWATER_ADDRESS": str(folder / "run")}
        with tqdm(
            total=total,
            unit=" images",
            desc=f"{RANKS} ranks, {EPOCHS} epochs",
            mininterval=0.2,
            disable=None,
        ) as bar:
            started = time.monotonic()
            for rank in range(RANKS):
                in_cpp = rank % 2 == 0
                program = (
                    [str(BUILD / "examples" / "demo_rank")]
                    if in_cpp
                    else [sys.executable, str(ROOT / "client" / "examples" / "demo_rank.py")]
                )
                options = f"demo --rank {rank} --world-size {RANKS} --epochs {EPOCHS} --job demo"
                ranks.append(Rank(program + options.split(), environment, bar))
                ranks[-1].start()
            last_job: dict = {}
            while any(rank.is_alive() for rank in ranks):
                jobs = ask("status", folder / "run")["jobs"]
                last_job = jobs[0] if jobs else last_job
                time.sleep(0.2)
            elapsed = time.monotonic() - started
        for number, rank in enumerate(ranks):
            if rank.process.wait() != 0:
                sys.exit(f"demo: rank {number} failed with exit status {rank.process.returncode}")
    finally:
        for rank in ranks:
            rank.process.kill()
        daemon.terminate()
        stopped = daemon.wait(timeout=15)
        shutil.rmtree(folder)
    if stopped != 0:
        sys.exit(f"demo: feedwaterd ended with status {stopped}, see {DATA / 'feedwaterd.log'}")

    compared = check_order(ranks, records)
    waits = [line["handover_us"] for rank in ranks for line in rank.lines if "handover_us" in line]
    cpu_ms = 1e3 * last_job["cpu_s"] / max(1, last_job["samples"])
    print(f"order: {compared} samples on {RANKS} ranks (2 C++, 2 Python), exactly as promised")
    print(f"speed: {total / elapsed:.0f} images/s, {cpu_ms:.2f} CPU-ms an image in the daemon")
    if len(waits) > 1:
        p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[98]
        size = BATCH * 3 * 224 * 224 * 4 / 2**20
        print("hand-over, published -> seen by a waiting C++ rank while every CPU decodes:")
        print(f"  p50 {p50:.0f} us, p99 {p99:.0f} us; batches of {size:.1f} MiB, 0 bytes copied")
    left = sorted(set(os.listdir("/dev/shm")) - shared_before)
    print(f"stopped: the daemon drained; new names in /dev/shm: {', '.join(left) or 'none'}")


if __name__ == "__main__":
    main()
