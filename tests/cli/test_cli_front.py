"""The program `feedwater` itself, which says its version and runs feedwater-commands."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from command_line import PROGRAM


def output(*command) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_both_programs_say_the_same_version():
    version = output(PROGRAM, "--version")
    assert version.startswith("feedwater ")
    assert version == output(PROGRAM.with_name("feedwater-commands"), "--version")


def test_a_link_to_it_finds_the_commands(tmp_path):
    link = tmp_path / "fw"
    link.symlink_to(PROGRAM)
    assert "preview" in output(link, "--help")


def test_alone_it_says_what_it_misses(tmp_path):
    alone = shutil.copy(PROGRAM, tmp_path / "feedwater")
    done = subprocess.run([alone, "--help"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"cannot run {tmp_path}/feedwater-commands" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["feedwater", "--version"],
        ["feedwater", "--help"],
        ["feedwater", "describe", "op", "resize"],
        ["feedwater", "--json", "status", "--all"],
        ["feedwaterd", "--print-config"],
        ["feedwaterd", "--help"],
    ],
    ids=" ".join,
)
def test_what_could_not_be_printed_is_no_success(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM.with_name(command[0]), *command[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "could not be written to stdout" in done.stderr, done.stderr
