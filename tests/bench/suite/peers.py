"""Images a second to the trainer, beside six other loaders on the same cores.

All read the same photos from the page cache and give batches of 64: random resized crop to
224x224, mirror, normalise, float32 CHW. On one core and on two, by turns; each has a virtual
environment of its own below build/peers ($FEEDWATER_PEERS), which `scripts/bench peers --install`
makes. FFCV reads its own packed file of the photos, re-encoded at quality 90.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from . import ROOT, Context, Figure, cpu_list

FOLDER = Path(os.environ.get("FEEDWATER_PEERS", ROOT / "build" / "peers"))
SCRIPTS = ROOT / "tests" / "bench" / "peers"
CORES = {1: [1], 2: [1, 2]}

# Name: (script, (must, aim) on JPEGs, (must, aim) from the cache, arguments of pip's runs).
PEERS = {
    "PyTorch DataLoader + torchvision": (
        "torch_", (3, 4), (14, 20),
        [["torch==2.13.0", "numpy", "pillow"], ["--no-deps", "torchvision==0.28.0"]],
    ),
    "MindSpore": ("mindspore_", (1.9, 2.4), (9, 13), [["mindspore==2.10.0", "numpy", "pillow"]]),
    "DALI (CPU)": ("dali_", (1.9, 2.4), (9, 13), [["nvidia-dali-cuda120==2.4.0", "numpy"]]),
    "tf.data": ("tfdata", None, None, [["tensorflow-cpu==2.21.0"]]),
    "FFCV": (
        "ffcv_", (1.4, 1.9), (7, 10),
        [["torch==2.13.0", "numpy<2.5", "numba", "pandas", "tqdm", "opencv-python-headless",
          "pillow", "assertpy", "fastargs", "terminaltables", "pytorch_pfn_extras", "psutil",
          "setuptools", "wheel"], ["--no-deps", "--no-build-isolation", "ffcv==1.0.2"]],
    ),
    "SPDL": ("spdl_", None, None, [["spdl==0.8.0", "spdl-io==0.8.0", "numpy"]]),
}  # fmt: skip


def environment(script: str) -> Path:
    """Return the folder of a peer's virtual environment."""
    return FOLDER / {"tfdata": "tensorflow"}.get(script, script.rstrip("_"))


def install() -> None:
    """Make the virtual environments that are not there."""
    for name, (script, _, _, commands) in PEERS.items():
        folder = environment(script)
        if (folder / "bin/python").exists():
            continue
        print(f"installing {name} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for arguments in commands:
            done = subprocess.run([folder / "bin/pip", "install", "-q", *arguments])
            if done.returncode != 0:
                print(f"{name} could not be installed; it will be reported as absent")


def last_epochs(command: list, folder: Path) -> float:
    """Return the best of the epochs after the first, in images a second."""
    environment_ = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment_, timeout=900
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) < 2:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1:])
    return max(line["images_per_s"] for line in lines[1:])


def feedwater_rate(context: Context, cache: str, cpus: list[int]) -> float:
    """Images a second of Feedwater with daemon and trainer on these cores alone."""
    pipeline = context.train_pipeline(f"peers-{cache}", cache)
    config = context.config(cpus)
    with context.daemon(config, run_on=cpus) as address:
        return last_epochs(
            [sys.executable, SCRIPTS / "feedwater_.py", context.photos, str(len(cpus)),
             cpu_list(cpus), address, pipeline],
            context.folder,
        )  # fmt: skip


def run(context: Context) -> list[Figure]:
    """Measure."""
    rounds = 1 if context.quick else 3
    sides = {"JPEGs": "none", "coefficients": "coefficients"}
    rates: dict[tuple[str, int], list[float]] = {}
    absent: dict[str, str] = {}
    for _ in range(rounds):
        for count, cpus in CORES.items():
            for side, cache in sides.items():
                rate = feedwater_rate(context, cache, cpus)
                rates.setdefault((side, count), []).append(rate)
            for name, (script, *_) in PEERS.items():
                if name in absent:
                    continue
                python = environment(script) / "bin/python"
                if not python.exists():
                    absent[name] = "not installed: scripts/bench peers --install"
                    continue
                command = [python, SCRIPTS / f"{script}.py", context.photos, str(count),
                           cpu_list(cpus)]  # fmt: skip
                try:
                    rate = last_epochs(command, context.folder)
                    rates.setdefault((name, count), []).append(rate)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    absent[name] = f"does not run: {error}"
    figures = []
    for name, (_, plain, kept, _) in PEERS.items():
        if name in absent:
            print(f"{name}: {absent[name]}")
            continue
        for count in CORES:
            for side, goals in (("JPEGs", plain), ("coefficients", kept)):
                must, aim = goals or (None, None)
                ratios = [a / b for a, b in zip(rates[side, count], rates[name, count])]
                cores = "1 core" if count == 1 else f"{count} cores"
                figures.append(
                    Figure.of(
                        f"Feedwater from {side} ÷ {name}, {cores}", ratios, must=must, aim=aim
                    )
                )
    return figures
