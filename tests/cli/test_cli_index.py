"""feedwater index: saved indexes ahead of time."""

from __future__ import annotations

import os

import pytest
from command_line import run
from pictures import pixels, png

GRAPH = "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"


@pytest.fixture
def indexed(project):
    """A project with two pipelines over one dataset."""
    project.pictures("pictures", 20)
    project.pipeline("one", GRAPH)
    project.pipeline("two", GRAPH)
    return project


def entries(result) -> list[dict]:
    assert result.status == 0, result.err
    return result.document["indexes"]


def test_it_builds_once_and_finds_it_again(indexed):
    (first,) = entries(run("index", "one", "--config", indexed.config, "--json"))
    assert (first["state"], first["records"], first["pipeline"]) == ("built", 20, "one")
    assert first["index_bytes"] > 0 and len(first["digest"]) == 32
    assert list((indexed.state / "indexes").glob("*.index"))
    (second,) = entries(run("index", "one", "--config", indexed.config, "--json"))
    assert second["state"] == "fresh"
    assert second["digest"] == first["digest"]


def test_a_changed_dataset_is_indexed_anew_and_force_always(indexed):
    run("index", "one", "--config", indexed.config)
    (indexed.data / "pictures/zebra").mkdir()
    (indexed.data / "pictures/zebra/new.png").write_bytes(png(pixels(9)))
    (changed,) = entries(run("index", "one", "--config", indexed.config, "--json"))
    assert (changed["state"], changed["records"]) == ("built", 21)
    (forced,) = entries(run("index", "one", "--config", indexed.config, "--force", "--json"))
    assert forced["state"] == "built"


def test_all_pipelines_of_the_configuration(indexed):
    both = entries(run("index", "--all", "--config", indexed.config, "--json"))
    assert [entry["pipeline"] for entry in both] == ["one", "two"]
    assert [entry["state"] for entry in both] == ["built", "fresh"], "they share the dataset"


def test_what_is_left_out_is_counted_and_named(indexed):
    pictures = indexed.data / "pictures"
    some = min(path for path in pictures.iterdir() if path.is_dir())
    for name in ("notes.txt", ".hidden.png", "scan.gif"):
        (some / name).write_text("no image")
    text = run("index", "one", "--config", indexed.config)
    said = f"left out: 2 files without an image's extension ({some.name}/notes.txt, "
    assert said in text.out and f"1 hidden file or folder ({some.name}/.hidden.png)" in text.out
    (entry,) = entries(run("index", "one", "--config", indexed.config, "--json"))
    assert entry["records"] == 20 and said in entry["notes"]


def test_text_and_errors(indexed):
    text = run("index", "one", "--config", indexed.config)
    assert text.status == 0 and "20 records" in text.out and "built" in text.out
    assert run("index", "--config", indexed.config).status == 2
    missing = indexed.pipeline(
        "gone", GRAPH, dataset="{format: image_folder, root: data, path: gone}"
    )
    result = run("index", missing, "--config", indexed.config)
    assert result.status == 2 and "gone" in result.err and "data" in result.err


def fresh_config(project, state):
    config = project.folder / "later.yaml"
    text = project.config.read_text()
    config.write_text(text.replace("state_dir: state", f"state_dir: {state}"))
    return config


def test_ahead_of_the_first_start_the_state_folder_is_made(indexed):
    config = fresh_config(indexed, "var/lib/0")
    state = indexed.folder / "var/lib/0"
    (first,) = entries(run("index", "one", "--config", config, "--json"))
    assert (first["state"], first["state_dir"]) == ("built", str(state))
    assert list((state / "indexes").glob("*.index"))
    (second,) = entries(run("index", "one", "--config", config, "--json"))
    assert second["state"] == "fresh"


def test_the_state_folder_of_a_daemons_command_line_may_be_given(indexed):
    elsewhere = indexed.folder / "else: where"
    for more in ((), ("--seek",)):
        given = ("--state-dir", elsewhere.name, *more, "--json")
        done = run("index", "--all", "--config", indexed.config, *given, cwd=indexed.folder)
        assert {entry["state_dir"] for entry in entries(done)} == {str(elsewhere)}
    assert list((elsewhere / "indexes").glob("*.index"))
    assert not indexed.state.exists() or not list(indexed.state.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give a folder away")
@pytest.mark.parametrize("below", ["", "/missing"])
@pytest.mark.parametrize("more", [(), ("--seek",), ("--force",)])
def test_what_could_not_be_saved_is_not_built(indexed, below, more):
    theirs = indexed.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    config = fresh_config(indexed, f"{theirs}{below}")
    # A dataset that cannot be indexed: nothing is said of it, for nothing was looked at.
    path = indexed.pipeline("gone", GRAPH, dataset="{format: image_folder, root: data, path: gone}")
    for pipeline in ("one", path):
        done = run("index", pipeline, "--config", config, *more)
        assert done.status == 1, done
        for words in ("could not be saved", str(theirs), "runuser -u feedwater", "--state-dir DIR"):
            assert words in done.err, (words, done.err)
    assert list(theirs.iterdir()) == []
