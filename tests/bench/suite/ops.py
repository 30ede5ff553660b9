"""Single ops on 224x224 photos: Albumentations' CPU time ÷ ours.

CPU time of one thread, by turns on the same CPU, RGB bytes in and out, with the machine's best
instructions and with both sides held to AVX2. Ops that Albumentations has no counterpart for stand
with their own time. Albumentations is in build/peers/albumentations (`scripts/bench ops
--install`).
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack

from . import BUILD, Context, Figure
from .peers import FOLDER, SCRIPTS, make_environment

CPU = 1
TOOL = BUILD / "tools/op_times"
PACKAGES = [["albumentations==2.0.8", "opencv-python-headless"]]
POINT = {"must": 2.0, "aim": 4.0}
FILTER = {"must": 1.5, "aim": 3.0}
RANGE = "[0.6, 1.4]"
# What OpenCV and NumPy take beyond AVX2; the script holds StringZilla to it.
HELD = {
    "OPENCV_CPU_DISABLE": "AVX512-SKX",
    "OPENCV_IPP": "avx2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
}

# By the name that the peer's script knows: the op, its parameters, and what is asked.
ROWS: dict[str, tuple[str, str, dict[str, float]]] = {
    "brightness": ("color_jitter", f"brightness: {RANGE}", POINT),
    "contrast": ("color_jitter", f"contrast: {RANGE}", POINT),
    "saturation": ("color_jitter", f"saturation: {RANGE}", POINT),
    "hue": ("color_jitter", "hue: 0.1", POINT),
    "color_jitter": (
        "color_jitter",
        f"brightness: {RANGE}, contrast: {RANGE}, saturation: {RANGE}, hue: 0.1",
        POINT,
    ),
    "grayscale": ("grayscale", "num_output_channels: 3", POINT),
    "random_invert": ("random_invert", "p: 1", POINT),
    "random_posterize": ("random_posterize", "bits: 4, p: 1", POINT),
    "random_solarize": ("random_solarize", "threshold: 128, p: 1", POINT),
    "random_equalize": ("random_equalize", "p: 1", POINT),
    "random_autocontrast": ("random_autocontrast", "p: 1", POINT),
    "random_channel_permutation": ("random_channel_permutation", "", POINT),
    "adjust_gamma": ("adjust_gamma", "gamma: 0.7", POINT),
    "lighting": ("lighting", "alpha_std: 0.1", POINT),
    "gaussian_blur": ("gaussian_blur", "kernel_size: 23, sigma: [0.1, 2.0]", FILTER),
    "random_rotation": ("random_rotation", "degrees: 30, interpolation: bilinear", {}),
    "random_affine": (
        "random_affine",
        "degrees: 30, translate: [0.1, 0.1], scale: [0.8, 1.2], shear: 10, interpolation: bilinear",
        {},
    ),
    "random_perspective": ("random_perspective", "p: 1", {}),
    "random_adjust_sharpness": ("random_adjust_sharpness", "sharpness_factor: 2, p: 1", {}),
    "random_erasing": ("random_erasing", "p: 1", {}),
    "jpeg": ("jpeg", "quality: 50", FILTER),
    "median_blur_3": ("median_blur", "kernel_size: 3, p: 1", FILTER),
    "median_blur_5": ("median_blur", "kernel_size: 5, p: 1", FILTER),
    "median_blur_7": ("median_blur", "kernel_size: 7, p: 1", FILTER),
    "motion_blur": ("motion_blur", "blur_limit: 7, p: 1", FILTER),
    "clahe": ("clahe", "clip_limit: 4, tile_grid_size: 8, p: 1", FILTER),
    "elastic_transform": ("elastic_transform", "", {}),
    "random_horizontal_flip": ("random_horizontal_flip", "p: 1", {}),
}


def install() -> None:
    """Make the virtual environment."""
    make_environment("Albumentations", FOLDER / "albumentations", PACKAGES)


def known() -> dict[str, str]:
    """Return the ops that take an image alone, with their examples."""
    text = subprocess.run([TOOL, "--list"], capture_output=True, text=True, check=True).stdout
    return dict(line.split("\t") for line in text.splitlines())


class Side:
    """A program that answers lines with seconds."""

    def __init__(self, stack: ExitStack, command: list, **environment: str) -> None:
        self._process = stack.enter_context(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, **environment},
            )
        )  # fmt: skip
        stack.callback(self._process.stdin.close)

    def wait(self) -> None:
        """Wait until the program says that it is ready."""
        self._process.stdout.readline()

    def seconds(self, line: str) -> float:
        """Ask; raise ValueError with what is wrong."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def run(context: Context) -> list[Figure]:
    """Measure."""
    ops = known()
    rows = {name: row for name, row in ROWS.items() if row[0] in ops}
    figures = []
    with ExitStack() as stack:
        ours = {
            "": Side(stack, [TOOL, context.photos, "--cpu", str(CPU)]),
            "AVX2": Side(stack, [TOOL, context.photos, "--cpu", str(CPU), "--target", "AVX2"]),
        }
        python = FOLDER / "albumentations/bin/python"
        theirs = {}
        if python.exists():
            command = [python, SCRIPTS / "albumentations_ops.py", context.photos, str(CPU)]
            theirs = {"": Side(stack, command), "AVX2": Side(stack, [*command, "AVX2"], **HELD)}
        else:
            context.absent["Albumentations"] = "not installed: scripts/bench ops --install"
        for name, (op, parameters, goals) in rows.items():
            graph = f"[{op}: {{{parameters}}}]"
            times: dict[str, list[float]] = {column: [] for column in ours}
            peers: dict[str, list[float]] = {column: [] for column in theirs}
            try:
                for _ in range(3 * context.rounds):
                    for column, side in ours.items():
                        times[column].append(1e6 * side.seconds(f"5 {graph}"))
                    for column, side in theirs.items():
                        peers[column].append(1e6 * side.seconds(f"2 {name}"))
            except ValueError as error:
                context.absent[name] = str(error)
                continue
            for column, rounds in times.items():
                title = column or "best"
                if not theirs:
                    figures.append(Figure.of(name, rounds, unit="µs", better="less", column=title))
                    continue
                ratios = [other / mine for other, mine in zip(peers[column], rounds)]
                figures.append(Figure.of(f"{name} ÷ Albumentations", ratios, column=title, **goals))
                figures.append(Figure.of(name, rounds, unit="µs", better="less", column=title))
        for name in sorted(set(ops) - {row[0] for row in rows.values()}):
            for column, side in ours.items():
                rounds = [1e6 * side.seconds(f"5 {ops[name]}") for _ in range(3 * context.rounds)]
                figures.append(
                    Figure.of(name, rounds, unit="µs", better="less", column=column or "best")
                )
    return figures
