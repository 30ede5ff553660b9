"""mypy over the client and the examples that write pipelines, and over a program with mistakes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from daemon_process import ROOT

pytest.importorskip("mypy")

MISTAKES = """\
import feedwater
from feedwater import Pipeline, ops

good = Pipeline(dataset={"format": "mnist", "root": "r"}, graph=[ops.resize(8)], batch=4)
ops.resize("big")
ops.resize(size=8, interpolation="linear")
ops.center_crop()
ops.normalize(mean=0.5, std=[1])
Pipeline(dataset="mnist")
feedwater.Loader(good).no_such_method()
text: int = good.to_yaml()
"""


def mypy(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ".mypy.ini", *arguments],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_the_client_and_its_examples_have_no_wrong_types(tmp_path):
    done = mypy("--cache-dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_that_use_it_are_told_their_mistakes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MISTAKES)
    done = mypy("--cache-dir", tmp_path / "cache", program)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line]
    assert sorted(set(lines)) == list(range(5, 12)), done.stdout + done.stderr
