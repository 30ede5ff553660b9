"""The antialiased resize of a crop in memory to 224x224 ÷ Pillow's and OpenCV's.

CPU time of one thread, by turns on the same CPU, RGB bytes in and out. Pillow's bilinear filter is
antialiased like ours and gives the same pixels within one step; it comes from PyTorch's environment
(`scripts/bench peers --install`). OpenCV's INTER_AREA is antialiased by boxes; its INTER_LINEAR is
not antialiased at all: it looks at four pixels for each output, however many the image has.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

from . import BUILD, Context, Figure
from .peers import SCRIPTS, environment

CPU = 1
SIZES = {"500x375": (500, 375), "300x300": (300, 300), "1024x768": (1024, 768)}
TOOL = BUILD / "tools/resize_kernels"


def opencv(rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return the ratios by OpenCV's kernel and size."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        text = subprocess.run(
            [TOOL, "--cpu", str(CPU), "--rounds", "9"], capture_output=True, text=True, check=True
        ).stdout
        for line in text.splitlines():
            if heading := re.match(r"(\d+x\d+) ->", line):
                size = heading.group(1)
            elif found := re.match(r"  OpenCV (INTER_\w+).*/ ours +([\d.]+)", line):
                ratios.setdefault((found.group(1), size), []).append(float(found.group(2)))
    return ratios


def pillow(python: Path, rounds: int) -> dict[str, list[float]]:
    """Return the ratios by size."""
    ratios: dict[str, list[float]] = {}
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for command in (
                [TOOL, "--serve", "--cpu", str(CPU)],
                [python, SCRIPTS / "pillow_resize.py", str(CPU)],
            )
        ]
        for _ in range(9 * rounds):
            for name, (width, height) in SIZES.items():
                seconds = []
                for side in sides:
                    side.stdin.write(f"{width} {height} 20\n")
                    side.stdin.flush()
                    seconds.append(float(side.stdout.readline()))
                ratios.setdefault(name, []).append(seconds[1] / seconds[0])
        for side in sides:
            side.stdin.close()
    return ratios


def run(context: Context) -> list[Figure]:
    """Measure."""
    figures = []

    def add(peer: str, size: str, rounds: list[float]) -> None:
        asked = {"must": 1.0, "aim": 2.0} if size == "500x375" else {}
        figures.append(Figure.of(f"{size} -> 224x224 ÷ {peer}", rounds, **asked))

    python = environment("torch_") / "bin/python"
    if python.exists():
        for size, rounds in pillow(python, context.rounds).items():
            add("Pillow", size, rounds)
    else:
        print("Pillow: not installed: scripts/bench peers --install")
    for (kernel, size), rounds in opencv(context.rounds).items():
        if size in SIZES:
            note = " (not antialiased)" if kernel == "INTER_LINEAR" else ""
            add(f"OpenCV {kernel}{note}", size, rounds)
    return figures
