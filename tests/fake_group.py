"""A process group of torch's for ranks that have no torch: its ranks and its key-value store, in
files.
"""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.parse
from types import SimpleNamespace


class FileStore:
    """As torch's: who comes first sets a key."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set the key if there is none; return what it has."""
        assert expected == ""
        path = os.path.join(self._folder, urllib.parse.quote(key, safe=""))
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(desired)
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
        os.unlink(file.name)
        with open(path, "rb") as found:
            return found.read()


def join(rank: int, world_size: int, folder: str) -> None:
    """Let this process be a rank of an initialised group."""
    dist = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    c10d = SimpleNamespace(_get_default_store=lambda: FileStore(folder))
    sys.modules["torch.distributed"] = dist  # type: ignore[assignment]
    sys.modules["torch.distributed.distributed_c10d"] = c10d  # type: ignore[assignment]
