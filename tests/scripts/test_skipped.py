"""What scripts/test says of skipped tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "skipped.py"
GOOGLETEST = """<testsuites><testsuite name="Arena">
  <testcase name="Grows" status="run" result="completed" classname="Arena" />
  <testcase name="Locks" status="run" result="skipped" classname="Arena">
    <skipped message="tests/transport/arena_test.cc:12&#x0A;only root can lock&#x0A;memory" />
  </testcase></testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite>
  <testcase classname="tests.test_torch" name="test_pins">
    <skipped message="only root can lock memory" /></testcase>
  <testcase classname="" name="tests.test_jax">
    <skipped message="could not import 'jax'" /></testcase></testsuite></testsuites>"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, folder, *arguments], capture_output=True, text=True
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "release").mkdir()
    (tmp_path / "release/arena_test.xml").write_text(GOOGLETEST)
    (tmp_path / "pytest.xml").write_text(PYTEST)
    return tmp_path


def test_skips_are_counted_by_reason(results):
    done = run(results)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "3 of 4 tests skipped:",
        "     2  only root can lock memory  (tests.test_torch.test_pins and 1 more)",
        "     1  could not import 'jax'  (tests.test_jax)",
    ]


def test_strict_makes_a_skip_a_failure(results):
    assert run(results, "--strict").returncode == 1
    (results / "pytest.xml").unlink()
    (results / "release/arena_test.xml").write_text(
        '<testsuite><testcase name="Grows" classname="Arena" /></testsuite>'
    )
    strict = run(results, "--strict")
    assert strict.returncode == 0
    assert strict.stdout == "0 of 1 tests skipped\n"


def test_no_result_is_a_failure(tmp_path):
    assert run(tmp_path).returncode == 1
