"""The README's five minutes, typed as they stand there: its YAML, its commands, its Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from daemon_process import BUILD, ROOT
from pictures import write_patterns

PHOTOS = 192
ENDLESS = "status --watch"  # a person ends it with Ctrl-C


def blocks() -> dict[str, list[str]]:
    """Return the tour's code blocks by language; commands have none."""
    text = (ROOT / "README.md").read_text()
    tour = text[text.index("\n## Five minutes") :]
    tour = tour[: tour.index("\n## ", 1)]
    found: dict[str, list[str]] = {}
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", tour, re.MULTILINE | re.DOTALL):
        found.setdefault(language, []).append(textwrap.dedent(block))
    return found


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder where the tour's files have been written, with photos and the programs."""
    write_patterns(tmp_path / "photos", PHOTOS)
    config, pipeline = blocks()["yaml"]
    assert "/data/photos" in config
    (tmp_path / "feedwater.yaml").write_text(
        config.replace("/data/photos", str(tmp_path / "photos"))
    )
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/train.yaml").write_text(pipeline)
    (tmp_path / "build/release").mkdir(parents=True)
    (tmp_path / "build/release/bin").symlink_to(BUILD / "bin")
    return tmp_path


def type_in(folder: Path, commands: str) -> str:
    """Run commands as one pasted block; return what they said. Each must succeed."""
    own = {name: str(folder / name) for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")}
    for path in own.values():
        Path(path).mkdir(mode=0o700, exist_ok=True)
    script = f"set -e\ntrap 'kill %1 && wait %1' EXIT\n{commands}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def commands() -> str:
    """Return the tour's commands; the one without an end is ended after two seconds."""
    lines = next(block for block in blocks()[""] if "feedwaterd --config" in block).splitlines()
    assert sum(ENDLESS in line for line in lines) == 1
    ended = (f"timeout 2 {line} || [ $? = 124 ]" if ENDLESS in line else line for line in lines)
    return "\n".join(ended)


def test_the_commands_of_the_tour_work_as_one_block(folder):
    said = type_in(folder, commands())
    assert (folder / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "samples/s" in said
    assert str(PHOTOS) in said


def test_the_training_of_the_tour_runs_and_continues(folder):
    pytest.importorskip("torch")
    (training,) = blocks()["python"]
    (folder / "train.py").write_text(training)
    resume = 'import feedwater, torch\nloader = feedwater.Loader("train")\n'
    resume += 'loader.load_state_dict(torch.load("checkpoint.pt")["data"])\n'
    resume += "print('goes on with epoch', loader.epoch, 'and', len(list(loader)), 'batches')\n"
    (folder / "resume.py").write_text(resume)
    said = type_in(folder, f"{commands()}\n{sys.executable} train.py\n{sys.executable} resume.py")
    losses = [float(line.split()[1]) for line in said.splitlines() if re.match(r"[012] \d", line)]
    assert len(losses) == 3
    assert f"goes on with epoch 3 and {PHOTOS // 64} batches" in said
