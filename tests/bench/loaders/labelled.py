"""The photos that writers take: paths and labels, in an order that mixes the classes."""

import random
from pathlib import Path


def photos_of(folder: Path) -> list[tuple[Path, int]]:
    """Return the files of an image folder with their labels, mixed, the same way each time."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    found = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
    random.Random(1).shuffle(found)
    return found
