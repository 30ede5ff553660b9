"""feedwater verify --against: shards compared with the dataset that they were made from."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile

import pytest
from command_line import run
from daemon_process import ROOT

sys.path.insert(0, str(ROOT / "tests/testing"))

from bombs import progressive

GRAPH = "  - decode: {in: data, out: image}\n  - center_crop: {in: image, size: [8, 8]}\n"


@pytest.fixture
def photos(project):
    """A project with 30 pictures."""
    project.pictures("pictures", 30)
    project.pipeline("photos", GRAPH)
    return project


def make(project, *arguments, command: str = "convert"):
    result = run(command, "photos", project.data / "shards", "--config", project.config,
                 "--shard-bytes", "64KiB", *arguments)  # fmt: skip
    assert result.status == 0, result
    return result


def verify(project, *arguments):
    return run("verify", "photos", "--against", project.data / "shards", "--config",
               project.config, *arguments)  # fmt: skip


def rewrite(shard, change) -> None:
    """Write a shard anew; `change` gives a member's bytes, or None where it goes."""
    with tarfile.open(shard) as archive:
        members = [(m, archive.extractfile(m).read()) for m in archive if m.isfile()]
    with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member, data in members:
            data = change(member.name, data)
            if data is None:
                continue
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    journal = shard.parent / ".convert.json"
    document = json.loads(journal.read_text())
    document["shards"][0]["bytes"] = shard.stat().st_size
    journal.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("convert", []),
        ("convert", ["--shuffle", "5"]),
        ("convert", ["--resize-max", "9", "--quality", "80"]),
        ("materialize", []),
    ],
)
def test_what_was_written_is_the_same(photos, command, options):
    make(photos, *options, command=command)
    result = verify(photos, "--json")
    assert result.status == 0, result
    document = result.document
    assert (document["records"], document["same"], document["different"]) == (30, 30, 0)
    assert verify(photos).out == ""


def test_convert_does_it_itself(photos):
    result = make(photos, "--verify")
    assert "all compared with their source" in result.err


def test_baseline_files_have_the_pixels_of_their_progressive_ones(project):
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(progressive(64))
    project.pipeline("photos", GRAPH)
    make(project, "--jpeg", "baseline")
    assert verify(project, "--json").document["same"] == 3


def test_every_difference_is_named(photos):
    make(photos)
    shard = photos.data / "shards/photos-000000.tar"

    def change(name: str, data: bytes) -> bytes:
        if name == "00000004.png":
            return data[:-1] + bytes([data[-1] ^ 1])
        return b"2" if name == "00000007.cls" else data

    rewrite(shard, change)
    result = verify(photos)
    assert result.status == 1 and "2 differences" in result.err
    assert [(line["record"], line["field"]) for line in result.lines] == [(4, "data"), (7, "label")]
    assert "differs from byte" in result.lines[0]["reason"]
    assert result.lines[0]["path"].endswith("000004.png")


def test_records_that_are_missing_or_there_twice_are_differences(photos):
    make(photos)
    shard = photos.data / "shards/photos-000000.tar"
    with tarfile.open(shard) as archive:
        members = [(m, archive.extractfile(m).read()) for m in archive if m.isfile()]
    with tarfile.open(shard, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member, data in members:
            member.name = member.name.replace("00000009.", "00000021.")
            archive.addfile(member, io.BytesIO(data))
    rewrite(shard, lambda _, data: data)
    result = verify(photos)
    reasons = {line["record"]: line["reason"] for line in result.lines}
    assert result.status == 1 and "not in the shards" in reasons[9]
    assert 21 in reasons


def test_bad_records_are_no_differences_where_they_are_listed(photos):
    files = sorted((photos.data / "pictures").rglob("*.png"))
    os.truncate(files[3], 10)
    make(photos, "--resize-max", "1000", "--allow-bad", "1")
    document = verify(photos, "--json").document
    assert (document["same"], document["bad"], document["different"]) == (29, 1, 0)


def test_another_dataset_or_an_unfinished_folder_is_refused(photos):
    result = verify(photos)
    assert result.status == 2 and "no shards of" in result.err
    make(photos)
    photos.pictures("pictures", 31)
    result = verify(photos)
    assert result.status == 2 and "dataset" in result.err
