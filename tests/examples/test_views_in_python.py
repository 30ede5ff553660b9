"""views_in_python.py: the pipeline that a loop wrote, with a daemon and as a file."""

from __future__ import annotations

import re
import subprocess

import yaml
from conftest import RECORDS, command, run
from daemon_process import BUILD

ARGUMENTS = ("--root", "data", "--path", "shapes", "--size", "12", "--batch-size", "48")


def test_as_many_views_come_as_are_asked_for(daemon, tmp_path):
    output = run(daemon, command("views_in_python.py", *ARGUMENTS, "--views", 3), tmp_path)
    lines = output.splitlines()
    assert len(lines) == RECORDS // 48
    for step, line in enumerate(lines):
        found = re.fullmatch(
            rf"step {step}: 48 images, views \(3, 12, 12\), deviation from the first (.*)", line
        )
        first, *others = map(float, found[1].split(", "))
        assert first == 0 and len(others) == 2 and all(other > 0.05 for other in others)


def test_the_printed_file_is_a_pipeline(daemon, tmp_path):
    text = run(daemon, command("views_in_python.py", *ARGUMENTS, "--print"), tmp_path)
    (tmp_path / "views.yaml").write_text(text)
    assert yaml.safe_load(text)["outputs"] == ["view_0", "view_1", "label"]
    done = subprocess.run(
        [BUILD / "bin/feedwater", "validate", tmp_path / "views.yaml", "--config", daemon.config],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
