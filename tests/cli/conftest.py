"""A project as a user has it: a configuration, a folder of pipelines, and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import PROGRAM
from pictures import write_folder


@dataclass
class Project:
    """Folders of one user."""

    folder: Path
    config: Path
    pipelines: Path
    data: Path
    state: Path

    def pictures(self, name: str, count: int, bad: tuple[int, ...] = ()) -> None:
        """Draw pictures into a folder of the root."""
        write_folder(self.data / name, count, bad)

    def pipeline(self, name: str, graph: str, **keys: str) -> Path:
        """Write a pipeline file over the folder `pictures`."""
        lines = {
            "dataset": "{format: image_folder, root: data, path: pictures}",
            "outputs": "[image, label]",
            **keys,
        }
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        path = self.pipelines / f"{name}.yaml"
        path.write_text(f"version: 1\n{text}graph:\n{graph}")
        return path


@pytest.fixture
def project(tmp_path):
    """A project with nothing in it yet."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built (FEEDWATER_BUILD_DIR says where)")
    made = Project(
        tmp_path,
        tmp_path / "feedwater.yaml",
        tmp_path / "pipelines",
        tmp_path / "data",
        tmp_path / "state",
    )
    for folder in (made.pipelines, made.data, made.state):
        folder.mkdir()
    made.config.write_text(
        f"version: 1\nruntime_dir: {tmp_path / 'run'}\nstate_dir: state\npipelines: [pipelines]\n"
        "roots: {data: data}\ncpus: 2\nmemory: 1GiB\nnuma_node: none\npin_cpus: false\n"
    )
    return made
