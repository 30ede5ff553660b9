"""What benchmarks share: figures, data, the machine, daemons on chosen CPUs."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("FEEDWATER_BUILD_DIR", ROOT / "build" / "release"))
DATA = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared" / "data"))
START, END = "<!-- bench -->", "<!-- /bench -->"

TRAIN = """\
version: 1
dataset: {{format: image_folder, root: photos}}
sampler: {{shuffle: full, seed: 42, last: drop}}
graph:
  - decode: {{in: data, out: image}}
  - random_resized_crop: {{in: image, size: [224, 224], scale: [0.08, 1.0]}}
  - random_horizontal_flip: {{in: image, p: 0.5}}
  - normalize: {{mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], layout: CHW}}
batch: {{size: {batch}}}
outputs: [image, label]
cache: {{kind: {cache}}}
"""


@dataclass
class Figure:
    """One measured number beside what it must and should be.

    `better` says which way is good: "more" or "less". `rounds` are the single measurements.
    """

    what: str
    got: float
    must: float | None = None
    aim: float | None = None
    unit: str = "x"
    better: str = "more"
    rounds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return "aim", "must", "missed", or "" when nothing is asked."""

        def reached(goal: float | None) -> bool:
            return goal is not None and (
                self.got >= goal if self.better == "more" else self.got <= goal
            )

        if self.must is None and self.aim is None:
            return ""
        return "aim" if reached(self.aim) else "must" if reached(self.must) else "missed"

    @staticmethod
    def of(what: str, rounds: list[float], **rest) -> Figure:
        """Return the median of some rounds."""
        return Figure(what, statistics.median(rounds), rounds=rounds, **rest)


def number(value: float | None, unit: str) -> str:
    """Return a number as a table shows it."""
    if value is None:
        return ""
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}" if unit != "x" else f"{text}x"


def spread(figure: Figure) -> str:
    """Return the tenth and ninetieth percentile of the rounds."""
    if len(figure.rounds) < 3:
        return ""
    cuts = statistics.quantiles(figure.rounds, n=10, method="inclusive")
    return f"{number(cuts[0], figure.unit)} .. {number(cuts[-1], figure.unit)}"


def show(figures: list[Figure]) -> None:
    """Print a table."""
    width = max(len(figure.what) for figure in figures)
    print(f"{'':{width}}  {'got':>12} {'must':>10} {'aim':>10}  verdict  p10..p90")
    for figure in figures:
        print(
            f"{figure.what:{width}}  {number(figure.got, figure.unit):>12} "
            f"{number(figure.must, figure.unit):>10} {number(figure.aim, figure.unit):>10}  "
            f"{figure.verdict:7}  {spread(figure)}  {figure.note}",
            flush=True,
        )


def machine() -> dict[str, str]:
    """Return what a figure depends on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    doctor = json.loads(
        subprocess.run(
            [BUILD / "bin/feedwater", "doctor", "--json"], capture_output=True, text=True
        ).stdout
    )
    cpus = next(check["found"] for check in doctor["checks"] if check["check"] == "CPUs")
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "simd": cpus.split(", ")[1],
        "kernel": platform.release().split("-")[0],
        "date": datetime.date.today().isoformat(),
    }


def table(documents: list[dict]) -> str:
    """Return results as Markdown."""
    lines = []
    for document in documents:
        about = document["machine"]
        lines += [
            f"**{document['name']}** (`scripts/bench {document['name']}`; {about['cpu']}, "
            f"{about['cores']} cores, {about['simd']}, {document['data']}, {about['date']})",
            "",
            "| figure | got | must | aim |",
            "|---|---|---|---|",
        ]
        for entry in document["figures"]:
            figure = Figure(**entry)
            missed = " **missed**" if figure.verdict == "missed" else ""
            note = f" ({figure.note})" if figure.note else ""
            bound = "≥ " if figure.better == "more" else "≤ "
            must = bound + number(figure.must, figure.unit) if figure.must is not None else ""
            aim = bound + number(figure.aim, figure.unit) if figure.aim is not None else ""
            got = number(figure.got, figure.unit)
            lines.append(f"| {figure.what}{note} | {got}{missed} | {must} | {aim} |")
        lines.append("")
    return "\n".join(lines)


def write_readme(path: Path, documents: list[dict]) -> None:
    """Put the table between the marks of the page."""
    text = path.read_text()
    head, rest = text.split(START)
    _, tail = rest.split(END)
    path.write_text(f"{head}{START}\n{table(documents)}{END}{tail}")


def cpu_list(cpus: list[int]) -> str:
    """Return CPUs as taskset takes them."""
    return ",".join(map(str, cpus))


class Context:
    """Data and patience of one run."""

    def __init__(self, data: Path | None, quick: bool) -> None:
        self.quick = quick
        self.rounds = 2 if quick else 7
        self.seconds = 1.0 if quick else 4.0
        self._folder = tempfile.TemporaryDirectory(prefix="fw-bench-")
        self.folder = Path(self._folder.name)
        self._data = data

    @property
    def data_name(self) -> str:
        """What the images are, for tables."""
        photos = self._data or DATA / "photos"
        if not photos.exists():
            return "made photos"
        return f"{sum(1 for _ in photos.rglob('*.*'))} photos"

    @property
    def photos(self) -> Path:
        """An image folder: the given one, real photos, or photos made here."""
        photos = (self._data or DATA / "photos").resolve()
        if photos.exists():
            return photos
        made = self.folder / "photos"
        if not made.exists():
            subprocess.run([BUILD / "tools/make_photos", made, "400"], check=True)
        return made

    def train_pipeline(self, name: str, cache: str = "none", batch: int = 64) -> Path:
        """Write the classic ImageNet training pipeline over the photos."""
        path = self.folder / f"{name}.yaml"
        path.write_text(TRAIN.format(cache=cache, batch=batch))
        return path

    def config(self, cpus: list[int], photos: Path | None = None, more: str = "") -> Path:
        """Write a daemon's configuration with these workers."""
        path = self.folder / f"feedwater-{time.monotonic_ns()}.yaml"
        path.write_text(
            f"version: 1\nruntime_dir: {self.folder}/run\nstate_dir: {self.folder}/state\n"
            f"pipelines: [{self.folder}]\nroots: {{photos: {photos or self.photos}}}\n"
            f'numa_node: none\ncpus: "{cpu_list(cpus)}"\n{more}'
        )
        return path

    def bench(self, pipeline: Path, config: Path, *options: str) -> dict:
        """Run `feedwater bench` and return its document."""
        done = subprocess.run(
            [BUILD / "bin/feedwater", "bench", pipeline, "--config", config, "--json",
             "--seconds", str(self.seconds), *options],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        return json.loads(done.stdout)

    def bare_decode_us(self, cpu: int, photos: Path | None = None) -> float:
        """Return libjpeg-turbo's whole decode of the photos in microseconds an image."""
        done = subprocess.run(
            [BUILD / "tools/decode_kernels", photos or self.photos, "1", str(cpu)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(re.search(r"bare libjpeg-turbo.*?([\d.]+) us/image", done.stdout).group(1))

    @contextlib.contextmanager
    def daemon(self, config: Path, run_on: list[int] | None = None) -> Iterator[str]:
        """Run a daemon, on these CPUs alone if given, and yield its address."""
        address = self.folder / "run"
        command = ["taskset", "-c", cpu_list(run_on)] if run_on else []
        log = self.folder / "daemon.log"
        with open(log, "w") as out:
            daemon = subprocess.Popen(
                [*command, BUILD / "bin/feedwaterd", "--config", config], stderr=out, stdout=out
            )
        try:
            while not (address / "control.sock").exists():
                if daemon.poll() is not None:
                    raise RuntimeError(log.read_text())
                time.sleep(0.01)
            yield str(address)
        finally:
            daemon.terminate()
            daemon.wait()
