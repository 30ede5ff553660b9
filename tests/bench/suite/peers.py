"""Images a second to the trainer, beside six other loaders on the same cores.

All read the same photos from the page cache and give batches of 64: random resized crop to
224x224, mirror, normalise, float32 CHW. On one core and on two, consumer included; the loaders take
turns, in another order each round, and all epochs after the first count. Each has a virtual
environment of its own below build/peers ($FEEDWATER_PEERS), which `scripts/bench peers --install`
makes. FFCV reads its own packed file of the photos, re-encoded at quality 90. Images a second and
CPU seconds for a thousand images of each are in build/bench/peers.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from . import COEFFICIENTS, NO_CACHE, ROOT, Context, Figure, cpu_list

FOLDER = Path(os.environ.get("FEEDWATER_PEERS", ROOT / "build" / "peers"))
SCRIPTS = ROOT / "tests" / "bench" / "peers"
CPUS = sorted(os.sched_getaffinity(0))  # the first one has the most interrupts
CORES = {count: CPUS[-count:] for count in (1, 2) if count <= len(CPUS)}
IMAGES = 1600  # an epoch
TORCH = [["torch==2.13.0", "numpy", "pillow"], ["--no-deps", "torchvision==0.28.0"]]
SIDES = {"JPEGs": NO_CACHE, "coefficients": COEFFICIENTS}

# Name: (script, (must, aim) on JPEGs, (must, aim) from the cache, arguments of pip's runs). Epochs
# after the first are measured, for which seek indexes are known.
PEERS = {
    "PyTorch DataLoader + torchvision": (
        "torch_", (6, 8), (14, 20), TORCH,
    ),
    "MindSpore": ("mindspore_", (1.9, 2.4), (9, 13), [["mindspore==2.10.0", "numpy", "pillow"]]),
    "DALI (CPU)": ("dali_", (1.9, 2.4), (9, 13), [["nvidia-dali-cuda120==2.4.0", "numpy"]]),
    "tf.data": ("tfdata", None, None, [["tensorflow-cpu==2.21.0"]]),
    "FFCV": (
        "ffcv_", (1.5, 1.9), (7, 10),
        [["torch==2.13.0", "numpy<2.5", "numba", "pandas", "tqdm", "opencv-python-headless",
          "pillow", "assertpy", "fastargs", "terminaltables", "pytorch_pfn_extras", "psutil",
          "setuptools", "wheel"], ["--no-deps", "--no-build-isolation", "ffcv==1.0.2"]],
    ),
    "SPDL": ("spdl_", None, None, [["spdl==0.8.0", "spdl-io==0.8.0", "numpy"]]),
}  # fmt: skip


def environment(script: str) -> Path:
    """Return the folder of a peer's virtual environment."""
    return FOLDER / {"tfdata": "tensorflow"}.get(script, script.rstrip("_"))


def make_environment(name: str, folder: Path, commands: list[list[str]]) -> None:
    """Make a virtual environment, unless it is there, with what some runs of pip install."""
    if (folder / "bin/python").exists():
        return
    print(f"installing {name} into {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    for arguments in commands:
        done = subprocess.run([folder / "bin/pip", "install", "-q", *arguments])
        if done.returncode != 0:
            print(f"{name} could not be installed; it will be reported as absent")


def install() -> None:
    """Make the virtual environments that are not there."""
    for name, (script, _, _, commands) in PEERS.items():
        make_environment(name, environment(script), commands)


def measured(command: list, folder: Path) -> dict:
    """Run a loader's script and return what it prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=900,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(" ".join((done.stderr or done.stdout).strip().splitlines()[-1:]))
    return json.loads(lines[-1])


def feedwater(context: Context, root: Path, pipeline: Path, cpus: list[int]) -> dict:
    """Measure Feedwater with daemon and trainer on these cores alone."""
    config = context.config(cpus, root)
    with context.daemon(config, run_on=cpus) as daemon:
        return measured(
            [sys.executable, SCRIPTS / "feedwater_.py", root, str(len(cpus)), cpu_list(cpus),
             daemon.address, str(daemon.pid), pipeline],
            context.folder,
        )  # fmt: skip


def peer(context: Context, photos: Path, script: str, cpus: list[int]) -> dict:
    """Measure another loader on these cores alone."""
    python = environment(script) / "bin/python"
    command = [python, SCRIPTS / f"{script}.py", photos, str(len(cpus)), cpu_list(cpus)]
    return measured(command, context.folder)


def run(context: Context) -> list[Figure]:
    """Measure."""
    photos = context.many(context.photos, 400 if context.quick else IMAGES)
    loaders = {f"Feedwater from {side}": cache for side, cache in SIDES.items()}
    for name, (script, *_) in PEERS.items():
        if (environment(script) / "bin/python").exists():
            loaders[name] = script
        else:
            context.absent[name] = "not installed: scripts/bench peers --install"
    rates: dict[tuple[str, int], list[float]] = {}
    cpu: dict[tuple[str, int], list[float]] = {}
    for number in range(1 if context.quick else 5):
        shift = 3 * number % len(loaders)
        order = [*list(loaders)[shift:], *list(loaders)[:shift]]
        for count, cpus in CORES.items():
            for name in order if number % 2 == 0 else reversed(order):
                if name in context.absent:
                    continue
                try:
                    if name in PEERS:
                        got = peer(context, photos, loaders[name], cpus)
                    else:
                        pipeline = context.train_pipeline("peers", loaders[name])
                        got = feedwater(context, photos, pipeline, cpus)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    if name not in PEERS:
                        raise
                    context.absent[name] = f"does not run: {error}"
                    continue
                rates.setdefault((name, count), []).append(got["images_per_s"])
                cpu.setdefault((name, count), []).append(got["cpu_s_per_1000"])
    return [*ratios(context, rates), *plain(context, loaders, rates, cpu)]


def cores(count: int) -> str:
    """Return a column's name."""
    return "1 core" if count == 1 else f"{count} cores"


def ratios(context: Context, rates: dict) -> list[Figure]:
    """Return Feedwater ÷ each peer, rounds by rounds."""
    figures = []
    for name, (_, *goals, _) in PEERS.items():
        for side, goal in zip(SIDES, goals):
            for count in CORES if name not in context.absent else ():
                must, aim = goal or (None, None)
                pairs = zip(rates[f"Feedwater from {side}", count], rates[name, count])
                quotients = [ours / theirs for ours, theirs in pairs]
                what = f"Feedwater from {side} ÷ {name}"
                figures.append(Figure.of(what, quotients, must=must, aim=aim, column=cores(count)))
    return figures


def plain(context: Context, loaders: dict, rates: dict, cpu: dict) -> list[Figure]:
    """Return what each loader did, as it was measured."""
    return [
        Figure.of(name, values[name, count], unit=unit, better=better, column=cores(count),
                  detail=True)
        for values, unit, better in ((rates, "images/s", "more"),
                                     (cpu, "CPU s for 1,000 images", "less"))
        for name in loaders
        for count in CORES
        if name not in context.absent
    ]  # fmt: skip
