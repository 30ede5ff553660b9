"""The benchmarks' program: names, tables, and the parts of pages that it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from suite import (  # noqa: E402
    RESULTS,
    Figure,
    cpu_list,
    formats,
    has_goals,
    peers_table,
    table,
    write_between,
)  # fmt: skip

DOCUMENT = {
    "name": "decode",
    "machine": {
        "cpu": "A CPU",
        "cores": "4",
        "simd": "AVX2",
        "kernel": "6.1",
        "date": "2026-01-01",
    },
    "data": "400 photos",
    "absent": {"Some loader": "not installed"},
    "figures": [
        Figure("fast", 2.0, 1.0, 1.5, rounds=[1.9, 2.0, 2.1]).__dict__,
        Figure("slow", 900.0, 500, 100, "µs", "less").__dict__,
        Figure("asked of nobody", 3.0).__dict__,
        Figure("for the screen", 4.0, detail=True).__dict__,
    ],
}


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, HERE / "bench.py", *arguments], capture_output=True, text=True
    )


def test_the_list_has_a_line_for_each_benchmark():
    lines = run("--list").stdout.splitlines()
    names = {line.split()[0] for line in lines}
    page = (HERE / "README.md").read_text().partition("| name |")[2].partition("\n\n")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert names == rows, "tests/bench/README.md has a row for each"
    assert all(len(line.split()) > 3 for line in lines)
    assert run().stdout.splitlines() == lines


def test_an_unknown_name_is_refused_with_the_known_ones():
    done = run("decoed")
    assert done.returncode == 2 and "handover" in done.stderr


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path):
    done = run("decode", "--data", str(tmp_path / "potos"))
    assert done.returncode == 2 and str(tmp_path / "potos") in done.stderr


@pytest.mark.parametrize(
    "got, better, verdict",
    [(2, "more", "aim"), (1.2, "more", "must"), (0.5, "more", "missed"),
     (0.5, "less", "aim"), (1.2, "less", "must"), (2, "less", "missed")],
)  # fmt: skip
def test_verdicts(got, better, verdict):
    must, aim = (1.0, 1.5) if better == "more" else (1.5, 1.0)
    assert Figure("what", got, must, aim, better=better).verdict == verdict


def test_the_table_says_what_was_missed_and_where_it_was_measured():
    text = table(DOCUMENT)
    assert "A CPU, 4 cores, AVX2, Linux 6.1, 400 photos, 2026-01-01" in text
    assert "Not measured: Some loader (not installed)." in text
    assert "for the screen" not in text
    assert "| fast | 2x | ≥ 1x | ≥ 1.5x |" in text
    assert "| slow | 900 µs **missed** | ≤ 500 µs | ≤ 100 µs |" in text
    assert "| asked of nobody | 3x |  |  |" in text


def test_figures_that_differ_in_their_column_stand_in_one_line():
    figures = [
        Figure("decoding", 2.0, 1.0, 3.0, column="all"),
        Figure("decoding", 0.5, column="4:2:0"),
        Figure("reading", 7.0, unit="MB/s", column="4:2:0"),
    ]
    text = table({**DOCUMENT, "figures": [figure.__dict__ for figure in figures]})
    assert "| figure | all | 4:2:0 | must | aim |" in text
    assert "| decoding | 2x | 0.5x | ≥ 1x | ≥ 3x |" in text
    assert "| figure | 4:2:0 | must | aim |" in text  # other columns: a table of their own
    assert "| reading | 7 MB/s |  |  |" in text


def test_what_has_no_goal_is_not_for_a_page():
    figures = [Figure("a cost by itself", 2.0, unit="ns").__dict__]
    assert has_goals(DOCUMENT) and not has_goals({**DOCUMENT, "figures": figures})


def test_a_page_keeps_everything_but_its_table(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text("before\n<!-- decode -->\nold\n<!-- /decode -->\nafter\n")
    write_between(page, "decode", table(DOCUMENT))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "old" not in text and "fast" in text


def test_the_page_of_results_has_a_place_for_each_benchmark_with_goals():
    names = {line.split()[0] for line in run("--list").stdout.splitlines()} - {"roofline"}
    text = RESULTS.read_text()
    lacking = [
        name for name in names
        if f"<!-- {name} -->" not in text or f"<!-- /{name} -->" not in text
    ]  # fmt: skip
    assert not lacking, "RESULTS.md needs their marks, between which --table writes"


def test_peers_in_short_are_those_on_one_core():
    figures = [
        Figure(f"Feedwater from {kind} ÷ Slow", got, column=column).__dict__
        for column, scale in (("1 core", 1), ("2 cores", 10))
        for kind, got in (("JPEGs", 6.87 * scale), ("coefficients", 19.7 * scale))
    ]
    text = peers_table({**DOCUMENT, "name": "peers", "figures": figures})
    assert "| Slow | 6.87x | 19.7x |" in text and "197" not in text


def test_a_script_of_a_loader_runs_on_the_cpus_that_it_is_given():
    """They are given as taskset and the daemon take them."""
    one = min(os.sched_getaffinity(0))
    code = "import os, common; print(*common.arguments(), *os.sched_getaffinity(0))"
    done = subprocess.run(
        [sys.executable, "-c", code, "photos", "1", cpu_list([one])],
        capture_output=True, text=True, cwd=HERE / "peers",
    )  # fmt: skip
    assert done.stdout.split() == ["photos", "1", str(one)], done.stderr


def test_a_script_tells_its_first_epoch_apart():
    code = "import common; common.measure(lambda: [3, 4])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE / "peers",
        env={**os.environ, "FEEDWATER_BENCH_SECONDS": "0"},
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["first"]["images"] == 7 and told["images"] == 14, done.stderr


def test_each_format_of_the_bench_has_a_loader_that_writes_it():
    scripts = {path.stem for path in (HERE / "loaders").glob("*.py")}
    for loader in formats.OTHERS:
        assert loader.script.partition(":")[0] in scripts and loader.data in formats.DATA
    for data in formats.DATA.values():
        assert not data.writer or data.writer.partition(":")[0] in scripts


def test_ratios_of_a_format_are_those_of_each_round():
    loader = formats.Loader("Slow", "npy", "memmap_arrays", "numpy", (1, 3))
    rates = [formats.Rate(10.0, 4.0), formats.Rate(20.0, 2.0)]
    own = {("npy", ""): [formats.Rate(20.0, 1.0), formats.Rate(30.0, 1.0)]}
    faster, cheaper = formats.ratios(own, {loader: rates})
    assert faster.what == cheaper.what == "npy ÷ Slow"
    assert faster.rounds == [2.0, 1.5] and cheaper.rounds == [4.0, 2.0]
    assert faster.verdict == "must" and cheaper.verdict == "aim"
