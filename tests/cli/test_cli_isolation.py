"""Commands that decode by themselves do so where the daemon would."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from command_line import PROGRAM, environment, run

GRAPH = "  - decode: {in: data, out: image}\n  - random_resized_crop: {size: 24}\n"


def isolate(project, mode: str) -> None:
    text = project.config.read_text()
    project.config.write_text(text.partition("isolation:")[0] + f"isolation: {mode}\n")


def test_the_same_reports_and_pictures_either_way(project):
    project.pictures("pictures", 24, bad=(7,))
    project.pipeline("some", GRAPH)
    reports, sheets = [], []
    for mode in ("none", "process"):
        isolate(project, mode)
        report = run("verify", "some", "--config", project.config, "--json").document
        reports.append(report["bad"])
        sheet = project.folder / f"{mode}.png"
        done = run("preview", "some", "--config", project.config, "-o", sheet)
        assert done.status == 0, done.err
        sheets.append(sheet.read_bytes())
    assert [bad["record"] for bad in reports[0]] == [7]
    assert reports[1] == reports[0]
    assert sheets[1] == sheets[0]


@pytest.mark.parametrize("command", ["verify", "preview"])
def test_without_a_decoder_they_refuse(project, command):
    project.pictures("pictures", 4)
    project.pipeline("some", GRAPH)
    isolate(project, "process")
    alone = project.folder / "alone/feedwater-commands"
    alone.parent.mkdir()
    shutil.copy(PROGRAM.with_name("feedwater-commands"), alone)
    arguments = [alone, command, "some", "--config", project.config]
    if command == "preview":
        arguments += ["-o", project.folder / "sheet.png"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode != 0
    assert "isolation needs it beside" in done.stderr
