"""Commands that read a dataset themselves give its files as they were indexed, or refuse them.

A file that is written to in place changes no folder. Of 3,000 files the saved index has the size
alone, but for those at 1,024 places: ORDINARY and EMPTY are none of these.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import run
from conversions import GRAPH, records
from pictures import pixels, png

FILES, ORDINARY, EMPTY = 3000, 1, 4


@pytest.fixture
def photos(project):
    """An indexed project with files of a thousand bytes, and one without any."""
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"{number:04}.jpg").write_bytes(b"" if number == EMPTY else bytes(1000))
    project.pipeline("photos", GRAPH, on_bad_sample="substitute")
    assert run("index", "photos", "--config", project.config).status == 0
    assert saved(project)
    return project


def saved(project) -> list[Path]:
    return list((project.state / "indexes").glob("*.index"))


def file(project, number: int) -> Path:
    return project.data / f"pictures/cat/{number:04}.jpg"


def grow(project, number: int, more: int = 1000) -> None:
    with file(project, number).open("ab") as grown:
        grown.write(b"\1" * more)


def expect_refused(project, result, number: int, size: int, had: int) -> None:
    assert result.status == 1, result
    path = file(project, number)
    assert f"{path} has {size} bytes and had {had} when the dataset was indexed" in result.err
    assert "run the command again" in result.err
    assert saved(project) == []


@pytest.mark.parametrize(("number", "size", "had"), [(ORDINARY, 2000, 1000), (EMPTY, 1000, 0)])
def test_convert_refuses_a_file_that_has_grown_and_takes_it_when_run_again(
    photos, number, size, had
):
    grow(photos, number)
    out = photos.data / "shards"
    command = ("convert", "photos", out, "--config", photos.config, "--verify", "--allow-bad", 1)
    result = run(*command)
    expect_refused(photos, result, number, size, had)
    assert f"rm -r {out}" in result.err
    shutil.rmtree(out)
    result = run(*command)
    assert result.status == 0, result
    assert size in [len(data) for data in records(out)[number].values()]


def test_a_run_goes_on_only_over_the_files_that_it_began_with(project):
    folder = project.data / "lines"
    folder.mkdir()
    for number in range(FILES):
        line = json.dumps({"number": number, "pad": "x"}) + "\n"
        (folder / f"{number:04}.jsonl").write_text(line.replace("x", "x" * (1001 - len(line))))
    fields = "{number: number}"
    dataset = f"{{format: jsonl, root: data, path: lines, fields: {fields}}}"
    path = project.pipeline("photos", "", dataset=dataset, outputs="[number]")
    path.write_text(path.read_text().replace("graph:\n", ""))

    def digest() -> str:
        indexed = run("index", "photos", "--config", project.config, "--json")
        return indexed.document["indexes"][0]["digest"]

    out = project.data / "shards"
    options = ("--shard-bytes", "64KiB")
    command = ("convert", "photos", out, "--config", project.config, *options)
    assert run(*command).status == 0
    before = digest()
    changed = folder / f"{ORDINARY:04}.jsonl"
    changed.write_text(changed.read_text().replace(f'"number": {ORDINARY}', '"number": 7'))
    assert digest() == before, "it does not look at this file"
    result = run(*command)
    assert result.status == 0 and "have changed" in result.err and "--against" in result.err
    assert "have changed" in run(*command).err, "it is told as long as it is so"
    assert run("verify", "photos", "--against", out, "--config", project.config).status == 1
    sorted(out.glob("*.tar"))[-1].unlink()
    result = run(*command)
    assert result.status == 1, result
    assert "have changed" in result.err and f"rm -r {out}" in result.err
    # A journal of an earlier version does not say it.
    journal = out / ".convert.json"
    document = json.loads(journal.read_text())
    del document["files"]
    for shard in document["shards"]:
        del shard["files"]
    journal.write_text(json.dumps(document))
    assert run(*command).status == 0


def test_materialize_refuses_a_file_that_has_grown(photos):
    grow(photos, ORDINARY)
    result = run("materialize", "photos", photos.data / "made", "--config", photos.config)
    expect_refused(photos, result, ORDINARY, 2000, 1000)


def test_verify_refuses_a_file_that_has_grown(photos):
    grow(photos, ORDINARY)
    result = run("verify", "photos", "--config", photos.config)
    expect_refused(photos, result, ORDINARY, 2000, 1000)


def test_a_comparison_refuses_a_source_that_has_grown(photos):
    out = photos.data / "shards"
    made = run("convert", "photos", out, "--config", photos.config, "--allow-bad", 1)
    assert made.status == 0, made
    grow(photos, ORDINARY)
    result = run("verify", "photos", "--against", out, "--config", photos.config)
    expect_refused(photos, result, ORDINARY, 2000, 1000)


# Each rewritten in place, with as many bytes, in a folder whose digest looks at neither.
EARLY, LATE = 1, 2995


@pytest.fixture
def begun(photos):
    """Shards of which the last one is missing, as after a kill, and the command that goes on."""
    out = photos.data / "shards"
    command = ("convert", "photos", out, "--config", photos.config, "--shard-bytes", "1MiB",
               "--allow-bad", 1)  # fmt: skip
    assert run(*command).status == 0
    assert len(list(out.glob("*.tar"))) > 3
    sorted(out.glob("*.tar"))[-1].unlink()
    return photos, out, command


def is_looked_at(number: int) -> bool:
    """Return whether the digest has bytes of the file: one of 1,024 places lies in it."""
    total = 1000 * (FILES - 1)
    first = 1000 * (number - (number > EMPTY))
    return any(first <= total * k // 1024 < first + 1000 for k in range(1024))


def rewrite(project, number: int) -> None:
    assert not is_looked_at(number)
    with file(project, number).open("r+b") as kept:
        kept.write(b"\2" * 1000)


@pytest.mark.parametrize("shuffle", [[], ["--shuffle", "3"]])
def test_a_run_does_not_go_on_behind_shards_of_images_that_were_written_since(begun, shuffle):
    project, out, command = begun
    if shuffle:
        shutil.rmtree(out)
        command = (*command, *shuffle)
        assert run(*command).status == 0
        sorted(out.glob("*.tar"))[-1].unlink()
        early = next(n for n in records(out) if n != EMPTY and not is_looked_at(n))
    else:
        early = EARLY
    names = [path.name for path in out.glob("*.tar")]
    assert run("index", "photos", "--config", project.config).status == 0
    rewrite(project, early)
    rewrite(project, LATE)
    result = run(*command)
    assert result.status == 1, result
    assert "photos-000000.tar" in result.err and "has changed since" in result.err
    assert str(file(project, early)) in result.err and f"rm -r {out}" in result.err
    assert sorted(path.name for path in out.glob("*.tar")) == sorted(names)
    shutil.rmtree(out)
    assert run(*command, "--verify").status == 0
    assert b"\2" * 1000 in records(out)[early].values()


def test_a_run_goes_on_where_only_images_that_are_still_to_come_were_written(begun):
    project, out, command = begun
    rewrite(project, LATE)
    result = run(*command, "--verify", "--json")
    assert result.status == 0 and "changed" not in result.err, result
    assert result.document["kept_shards"] == result.document["shards"] - 1
    assert b"\2" * 1000 in records(out)[LATE].values()


def test_a_whole_folder_says_as_long_as_it_is_so_that_its_source_has_changed(begun):
    project, out, command = begun
    assert run(*command).status == 0
    rewrite(project, EARLY)
    for _ in range(2):
        result = run(*command)
        assert result.status == 0, result
        assert str(file(project, EARLY)) in result.err and "--against" in result.err
    assert run("verify", "photos", "--against", out, "--config", project.config).status == 1
    sorted(out.glob("*.tar"))[-1].unlink()
    assert run(*command).status == 1


def test_shards_of_an_earlier_version_do_not_say_what_files_they_are_of(begun):
    project, out, command = begun
    journal = out / ".convert.json"
    document = json.loads(journal.read_text())
    assert all(shard.pop("files") for shard in document["shards"])
    journal.write_text(json.dumps(document))
    rewrite(project, EARLY)
    assert run(*command).status == 0
    assert [("files" in shard) for shard in json.loads(journal.read_text())["shards"]] == [
        *[False] * (len(document["shards"]) - 1), True,
    ]  # fmt: skip


def test_materialize_does_not_go_on_either(project):
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"{number:04}.png").write_bytes(png(pixels(number)))
    project.pipeline("photos", GRAPH)
    out = project.data / "made"
    command = ("materialize", "photos", out, "--config", project.config, "--shard-bytes", "1MiB")
    assert run(*command).status == 0
    sorted(out.glob("*.tar"))[-1].unlink()
    # Other rights are another change of the file, whoever made it.
    (folder / f"{EARLY:04}.png").chmod(0o600)
    result = run(*command)
    assert result.status == 1, result
    assert f"{EARLY:04}.png" in result.err and "another folder" in result.err


def test_a_small_folder_is_known_by_its_bytes_alone(project):
    project.pictures("pictures", 60)
    project.pipeline("photos", GRAPH)
    out = project.data / "shards"
    command = ("convert", "photos", out, "--config", project.config, "--shard-bytes", "64KiB")
    assert run(*command).status == 0
    sorted(out.glob("*.tar"))[-1].unlink()
    for path in (project.data / "pictures").rglob("*.png"):
        path.touch()
    result = run(*command)
    assert result.status == 0 and "changed" not in result.err, result
    assert "files" not in (out / ".convert.json").read_text()
