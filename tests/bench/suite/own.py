"""Samples a second from a user's own Dataset, beside a DataLoader with as many workers.

The Dataset costs nothing: it returns the same tensor for each record, of 600 KB and of 3 KB. Both
sides shuffle it into batches of 64 on the same CPUs, with a worker for each, daemon and trainer
included, and take turns. The Python is one with torch and the client's requirements: that of
build/peers/own, which `scripts/bench own --install` makes, or one that `--python` names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from . import BUILD, ROOT, Context, Figure
from .peers import FOLDER, make_environment

SCRIPT = ROOT / "tests/bench/loaders/own_dataset.py"
IMPORTS = ("torch", "numpy", "grpc", "google.protobuf")
PACKAGES = [["torch==2.13.0", "numpy", "grpcio", "protobuf"]]
ROUNDS = 5
SIZES = {"600 KB": (600_000, 2.0), "3 KB": (3_000, 1.0)}  # and how many times as fast it must be
CPU_MUST = 0.5
SIDES = ("feedwater", "dataloader")


def install() -> None:
    """Make the virtual environment."""
    make_environment("own", FOLDER / "own", PACKAGES)


def python_of(context: Context) -> Path | None:
    """Return the first Python that has what both sides import."""
    made = [FOLDER / name / "bin/python" for name in ("own", "torch")]
    for python in [*context.pythons, *filter(Path.exists, made), Path(sys.executable)]:
        code = f"from importlib.util import find_spec\nassert all(map(find_spec, {IMPORTS}))"
        if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return python
    return None


def measured(context: Context, python: Path, script: Path, *words: object) -> dict:
    """Run a script whose loaders start private daemons, and return what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "client/python"),
        "FEEDWATERD": str(BUILD / "bin/feedwaterd"),
        "XDG_RUNTIME_DIR": str(context.folder),
        "XDG_STATE_HOME": str(context.folder),
    }
    done = subprocess.run(
        [python, script, *map(str, words)],
        capture_output=True, text=True, timeout=600, env=environment,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(" ".join(done.stderr.strip().splitlines()[-1:]))
    return json.loads(done.stdout.splitlines()[-1])


def run(context: Context) -> list[Figure]:
    """Measure."""
    python = python_of(context)
    if python is None:
        context.absent["all"] = f"no Python has {', '.join(IMPORTS)}: --install, or --python PATH"
        return []
    figures = []
    workers = len(os.sched_getaffinity(0))
    for name, (size, must) in SIZES.items():
        rounds: dict[str, list[dict]] = {side: [] for side in SIDES}
        for number in range(1 if context.quick else ROUNDS):
            for side in SIDES[:: 1 if number % 2 == 0 else -1]:
                rounds[side].append(
                    measured(context, python, SCRIPT, side, size, workers, context.seconds)
                )
        pairs = list(zip(*rounds.values()))
        faster = [own["samples_per_s"] / other["samples_per_s"] for own, other in pairs]
        cheaper = [own["trainer_us_a_batch"] / other["trainer_us_a_batch"] for own, other in pairs]
        figures += [
            Figure.of("samples a second ÷ DataLoader", faster, must=must, column=name),
            Figure.of("trainer's CPU time for a batch ÷ DataLoader", cheaper, must=CPU_MUST,
                      better="less", column=name),
        ]  # fmt: skip
        for side, got in rounds.items():
            figures += [
                Figure.of(f"{side}: samples a second", [one["samples_per_s"] for one in got],
                          unit="samples/s", column=name, detail=True),
                Figure.of(f"{side}: trainer's CPU time for a batch",
                          [one["trainer_us_a_batch"] for one in got], unit="µs", better="less",
                          column=name, detail=True),
            ]  # fmt: skip
    return figures
