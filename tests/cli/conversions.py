"""What tests of `feedwater convert` share: running it, and looking at what it wrote."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
from command_line import run

import feedwater

GRAPH = "  - decode: {in: data, out: image}\n  - center_crop: {in: image, size: [8, 8]}\n"


def members(out: Path) -> list[tuple[str, bytes]]:
    """Return names and bytes of all members of all shards, in order."""
    found = []
    for shard in sorted(out.glob("*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                assert member.isfile() and member.mtime == 0
                found.append((member.name, archive.extractfile(member).read()))
    return found


def records(out: Path) -> dict[int, dict[str, bytes]]:
    """Return the records as the webdataset library groups them, in the order of the shards."""
    grouped: dict[int, dict[str, bytes]] = {}
    for name, data in members(out):
        key, _, extension = name.partition(".")
        grouped.setdefault(int(key), {})[extension] = data
    return grouped


def shards(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.tar"))}


def convert(project, *arguments, out: str = "shards", pipeline: str = "photos"):
    return run("convert", pipeline, project.data / out, "--config", project.config, *arguments)


def converted(project, *arguments, **where) -> dict:
    """Convert, expect success, and return the JSON document."""
    result = convert(project, *arguments, "--json", **where)
    assert result.status == 0, result
    return result.document


def section(out: Path) -> str:
    return (out / "dataset.yaml").read_text()


def batches(daemon, pipeline: str) -> list[dict[str, np.ndarray]]:
    with feedwater.Loader(pipeline, address=daemon.address, output="numpy", as_dict=True) as loader:
        return [{name: np.array(value) for name, value in batch.items()} for batch in loader]


def same_batches(first, second) -> bool:
    return len(first) == len(second) and all(
        a.keys() == b.keys()
        and all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)
        for a, b in zip(first, second)
    )
