"""What benchmarks share: figures, data, the machine, daemons on chosen CPUs."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import socket
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
RESULTS, README = ROOT / "tests/bench/RESULTS.md", ROOT / "README.md"
MADE = "made photos"

TRAIN = """\
version: 1
dataset: {dataset}
sampler: {{shuffle: full, seed: 42, last: drop}}
{graph}batch: {{size: {batch}}}
outputs: [{outputs}]
cache: {cache}
"""
PHOTOS = "{format: image_folder, root: photos}"
AUGMENTED = """\
graph:
  - decode: {in: data, out: image}
  - random_resized_crop: {in: image, size: [224, 224], scale: [0.08, 1.0]}
  - random_horizontal_flip: {in: image, p: 0.5}
  - normalize: {mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], layout: CHW}
"""
NO_CACHE, COEFFICIENTS = "{kind: none}", "{kind: coefficients}"
_INSTRUCTIONS = ("avx2", "bmi2", "avx512f", "avx512bw", "avx512_vbmi", "avx512_vnni", "asimd")


@dataclass
class Figure:
    """One measured number beside what it must and should be.

    `better` says which way is good: "more" or "less". `rounds` are the single measurements. Figures
    that differ in `column` alone stand in one line of a page's table; a `detail` stands only on
    the screen and in the JSON.
    """

    what: str
    got: float
    must: float | None = None
    aim: float | None = None
    unit: str = "x"
    better: str = "more"
    rounds: list[float] = field(default_factory=list)
    note: str = ""
    column: str = ""
    detail: bool = False

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
    names = [
        f"{figure.what} [{figure.column}]" if figure.column else figure.what for figure in figures
    ]
    width = max(map(len, names), default=0)
    print(f"{'':{width}}  {'got':>14} {'must':>10} {'aim':>10}  verdict  p10..p90")
    for name, figure in zip(names, figures):
        print(
            f"{name:{width}}  {number(figure.got, figure.unit):>14} "
            f"{number(figure.must, figure.unit):>10} {number(figure.aim, figure.unit):>10}  "
            f"{figure.verdict:7}  {spread(figure)}  {figure.note}",
            flush=True,
        )


def machine() -> dict[str, str]:
    """Return what a figure depends on."""
    about = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", about)
    flags = re.search(r"(?:flags|Features)\s*: (.*)", about)
    known = flags.group(1).split() if flags else []
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
        "flags": " ".join(name for name in _INSTRUCTIONS if name in known),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "date": datetime.date.today().isoformat(),
    }


def _tables(figures: list[Figure]) -> list[str]:
    """Return the lines of the tables: figures of one name side by side, a column each, and a table
    for each set of columns.
    """
    rows: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        note = f" ({figure.note})" if figure.note else ""
        rows.setdefault(figure.what + note, {})[figure.column] = figure
    tables: dict[tuple[str, ...], list[str]] = {}
    for what, cells in rows.items():
        asked = next((c for c in cells.values() if c.verdict), next(iter(cells.values())))
        bound = "≥ " if asked.better == "more" else "≤ "
        goals = [
            bound + number(goal, asked.unit) if goal is not None else ""
            for goal in (asked.must, asked.aim)
        ]
        got = [
            number(cell.got, cell.unit) + (" **missed**" if cell.verdict == "missed" else "")
            for cell in cells.values()
        ]
        lines = tables.setdefault(tuple(cells), [])
        if not lines:
            heads = [column or "got" for column in cells]
            lines += [
                f"| figure | {' | '.join(heads)} | must | aim |",
                f"|{'---|' * (len(heads) + 3)}",
            ]
        lines.append(f"| {' | '.join([what, *got, *goals])} |")
    return "\n\n".join("\n".join(lines) for lines in tables.values()).split("\n")


def has_goals(document: dict) -> bool:
    """Return whether a benchmark's results are for a page."""
    return any(Figure(**entry).verdict for entry in document["figures"])


def _measured_on(document: dict) -> str:
    about = document["machine"]
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['simd']}, Linux {about['kernel']}, "
        f"{document['data']}, {about['date']}"
    )


def table(document: dict) -> str:
    """Return a benchmark's results as Markdown."""
    figures = [Figure(**entry) for entry in document["figures"]]
    absent = [f"\nNot measured: {name} ({why})." for name, why in document["absent"].items()]
    return "\n".join(
        [
            f"`scripts/bench {document['name']}`; {_measured_on(document)}",
            "",
            *_tables([figure for figure in figures if not figure.detail]),
            *absent,
        ]
    )


def peers_table(document: dict) -> str:
    """Return the peers' results in short: those on one core, a line for each of the first five."""
    rows: dict[str, dict[str, float]] = {}
    for entry in document["figures"]:
        match = re.fullmatch(r"Feedwater from (JPEGs|coefficients) ÷ (.+)", entry["what"])
        if match and entry["column"] == "1 core":
            rows.setdefault(match[2], {})[match[1]] = entry["got"]
    lines = [
        f"| {peer} | {number(got['JPEGs'], 'x')} | {number(got['coefficients'], 'x')} |"
        for peer, got in rows.items()
        if len(got) == 2
    ][:5]
    return "\n".join(
        [
            "| images a second on one core, Feedwater ÷ | from JPEGs | from the cache |",
            "|---|---|---|",
            *lines,
            f"\n{_measured_on(document)}.",
        ]
    )


def write_between(path: Path, name: str, text: str) -> None:
    """Put text between a page's marks of that name, and leave all else as it is."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, rest = path.read_text().split(start)
    _, tail = rest.split(end)
    path.write_text(f"{head}{start}\n{text}\n{end}{tail}")


def cpu_list(cpus: list[int]) -> str:
    """Return CPUs as taskset and the daemon take them."""
    return ",".join(f"{cpu}-{cpu}" for cpu in cpus)  # a single number would be a count


@dataclass
class Daemon:
    """A running daemon: where it listens, its process, and how long it took to get ready."""

    address: str
    pid: int
    ready_s: float


class Context:
    """Data and patience of one run."""

    def __init__(self, data: Path | None, quick: bool, pythons: list[Path] = ()) -> None:
        if data is not None and not data.is_dir():
            raise FileNotFoundError(f"--data {data}: no such folder")
        self.quick = quick
        self.pythons = list(pythons)  # that have other loaders
        self.rounds = 2 if quick else 7
        self.seconds = 1.0 if quick else 4.0
        self.absent: dict[str, str] = {}  # what could not be measured, and why
        self._folder = tempfile.TemporaryDirectory(prefix="fw-bench-")
        self.folder = Path(self._folder.name)
        self._data = data

    @property
    def data_name(self) -> str:
        """What the images are, for tables."""
        count = sum(1 for path in self.photos.rglob("*.*") if not path.name.startswith("."))
        return f"{count} {'made ' if self.photos == self._made else ''}photos"

    @property
    def photos(self) -> Path:
        """An image folder: the given one, real photos, or photos made here."""
        photos = (self._data or DATA / "photos").resolve()
        return photos if photos.exists() else self.made_photos()

    @property
    def sets(self) -> dict[str, Path]:
        """Image folders by name: the given one alone, or real photos beside made ones."""
        sets = {MADE if self.photos == self._made else "photos": self.photos}
        return sets if self._data is not None else {**sets, MADE: self.made_photos()}

    @property
    def _made(self) -> Path:
        return self.folder / "made"

    def made_photos(self) -> Path:
        """Draw photos, and return their folder."""
        command = [BUILD / "tools/make_photos", self._made, "--count", "400"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return self._made

    def many(self, photos: Path, images: int) -> Path:
        """Return a folder with the photos so many times that there are `images`.

        A comment makes every copy of a JPEG another content: what is kept of one, such as its seek
        index, must not serve the next.
        """
        files = [path for path in sorted(photos.glob("*/*")) if not path.name.startswith(".")]
        folder = self.folder / f"{photos.name}-{images}"
        for copy in range(-(-images // len(files)) if not folder.exists() else 0):
            comment = b"\xff\xfe\x00\x06" + copy.to_bytes(4, "big")
            for path in files:
                data = path.read_bytes()
                if data[:2] == b"\xff\xd8":
                    data = data[:2] + comment + data[2:]
                into = folder / path.parent.name / f"{copy:03}-{path.name}"
                into.parent.mkdir(parents=True, exist_ok=True)
                into.write_bytes(data)
        return folder

    def train_pipeline(
        self,
        name: str,
        cache: str = NO_CACHE,
        batch: int = 64,
        dataset: str = PHOTOS,
        outputs: str = "image, label",
        is_augmented: bool = True,
    ) -> Path:
        """Write the classic ImageNet training pipeline, by default over the photos."""
        path = self.folder / f"{name}.yaml"
        graph = AUGMENTED if is_augmented else ""
        path.write_text(
            TRAIN.format(dataset=dataset, graph=graph, batch=batch, outputs=outputs, cache=cache)
        )
        return path

    def config(self, cpus: list[int], photos: Path | None = None, more: str = "") -> Path:
        """Write the configuration of a daemon with these workers and a state folder of its own."""
        name = time.monotonic_ns()
        path = self.folder / f"feedwater-{name}.yaml"
        path.write_text(
            f"version: 1\nruntime_dir: {self.folder}/run\nstate_dir: {self.folder}/state-{name}\n"
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

    def tool(self, name: str, *arguments: object) -> dict:
        """Run a program of the build's tools and return its JSON document."""
        command = [BUILD / "tools" / name, *map(str, arguments)]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    @contextlib.contextmanager
    def daemon(self, config: Path, run_on: list[int] | None = None) -> Iterator[Daemon]:
        """Run a daemon, on these CPUs alone if given."""
        address = self.folder / "run"
        command = ["taskset", "-c", cpu_list(run_on)] if run_on else []
        log = self.folder / "daemon.log"
        start = time.monotonic()
        with open(log, "w") as out:
            daemon = subprocess.Popen(
                [*command, BUILD / "bin/feedwaterd", "--config", config], stderr=out, stdout=out
            )
        try:
            while not _accepts(address / "control.sock"):
                if daemon.poll() is not None:
                    raise RuntimeError(log.read_text())
                time.sleep(0.001)
            yield Daemon(str(address), daemon.pid, time.monotonic() - start)
        finally:
            daemon.terminate()
            daemon.wait()


def _accepts(path: Path) -> bool:
    """Return whether somebody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
