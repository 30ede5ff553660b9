"""Runs feedwater migrate on scripts that a test writes."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from command_line import environment, run

PYTHON = environment(PYTHON=sys.executable)


def migrate(*arguments, **changes):
    return run("migrate", *arguments, env={**PYTHON, **changes.pop("env", {})}, **changes)


def beside(file: str) -> str:
    """How a changed script names a pipeline file that lies beside it."""
    return f'os.path.join(os.path.dirname(__file__), "{file}")'


def write(folder: Path, text: str | bytes, name: str = "train.py") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def head(body: str) -> str:
    """A script with the usual imports."""
    return (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        f"from torchvision import datasets, transforms\n\n{body}"
    )


LOADER = head(
    "data = datasets.ImageFolder('/data/photos/train', transforms.Compose([\n"
    "    transforms.CenterCrop(8), transforms.ToTensor()]))\n"
    "loader = DataLoader(data, batch_size=4)\n"
)


def translated(project, body: str) -> dict:
    """The one pipeline of a script, parsed."""
    done = migrate(write(project.folder, head(body)), "--json", cwd=project.folder)
    (text,) = done.document["files"].values()
    return {**yaml.safe_load(text), "notes": done.document}


DATA = "data = datasets.ImageFolder('/d/x', transforms.Compose([transforms.ToTensor()]))"
