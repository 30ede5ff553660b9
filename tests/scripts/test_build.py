"""scripts/build on a small project: a line for each stage, and what the compiler says."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from daemon_process import ROOT


@pytest.fixture
def build(tmp_path):
    """Runs the script in a project of one program, which it can write before."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/build", tmp_path / "scripts")
    setup = tmp_path / "scripts/setup"
    setup.write_text("#!/bin/sh\n")
    setup.chmod(0o755)
    shutil.copy(ROOT / "CMakePresets.json", tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(small CXX)\n"
        "add_executable(small small.cc)\nadd_executable(other small.cc)\n"
    )

    def run(source: str, *arguments: str) -> subprocess.CompletedProcess:
        (tmp_path / "small.cc").write_text(source)
        return subprocess.run(
            [tmp_path / "scripts/build", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    run.folder = tmp_path / "build/release"
    return run


def test_each_stage_is_one_line_with_its_time(build):
    first = build("int main() {}")
    assert re.fullmatch(
        r"build/release: configure \d+ s\nbuild/release: compile and link \d+ s\n", first.stdout
    )
    assert (build.folder / "small").exists() and (build.folder / "other").exists()
    (build.folder.parents[1] / "CMakeLists.txt").touch()  # which is configured again, in silence
    again = build("int main() { return 0; }")
    assert re.fullmatch(r"build/release: compile and link \d+ s\n", again.stdout)


def test_v_prints_a_line_for_every_command(build):
    shown = build("int main() {}", "-v", "release", "small")
    assert re.search(r"\[\d/2\] Building CXX object .*small.cc.o\n", shown.stdout)
    assert not (build.folder / "other").exists()


def test_what_the_compiler_says_is_shown_and_an_error_ends_it(build):
    warned = build("#warning deprecated since today\nint main() {}")
    assert warned.returncode == 0
    assert "deprecated since today" in warned.stdout
    failed = build("int main() { return nothing; }")
    assert failed.returncode != 0
    assert "nothing" in failed.stdout and "compile and link" not in failed.stdout
