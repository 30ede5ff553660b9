"""Pipelines for private daemons, whose root is a path: commands without a daemon read them with the
user's own rights, unless there is a configuration, named or found.
"""

from __future__ import annotations

import pytest
from command_line import environment, run
from pictures import write_folder

GRAPH = "graph:\n  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"
ALONE = environment(FEEDWATER_ADDRESS="/nonexistent")


@pytest.fixture
def pipeline(project):
    """Return a pipeline whose dataset lies at an absolute path."""
    write_folder(project.data / "pictures", 6)
    path = project.pipelines / "own.yaml"
    path.write_text(
        f"version: 1\ndataset: {{format: image_folder, root: {project.data}, path: pictures}}\n"
        + GRAPH
    )
    return path


def test_commands_read_it_without_a_configuration(project, pipeline):
    done = run("validate", pipeline, "--json", env=ALONE)
    assert done.status == 0, done.out
    assert done.document["records"] == 6
    sheet = project.folder / "sheet.png"
    done = run("preview", pipeline, "-o", sheet, env=ALONE)
    assert done.status == 0, done.err
    assert sheet.exists()
    assert run("describe", pipeline, "--json", env=ALONE).document["records"] == 6
    assert run("verify", pipeline, env=ALONE).status == 0
    assert "6 records" in run("graph", pipeline, env=ALONE).out
    bench = ("bench", pipeline, "--batch-size", 2, "--seconds", 0.2, "--warm-up", 0, "--json")
    done = run(*bench, env=ALONE)
    assert done.status == 0, done.err
    assert done.document["samples"] > 0
    assert done.document["mode"] == "a daemon in this process"


def test_links_that_lead_elsewhere_are_followed(project, pipeline):
    """As of datasets of which a part is chosen by links; a declared root keeps to itself."""
    linked = project.folder / "linked"
    linked.mkdir()
    for folder in (project.data / "pictures").iterdir():  # a link for each class
        (linked / folder.name).symlink_to(folder)
    train = project.folder / "train"
    train.symlink_to(linked)
    for root, path in ((linked, ""), (project.folder, ", path: train")):
        pipeline.write_text(
            f"version: 1\ndataset: {{format: image_folder, root: {root}{path}}}\n" + GRAPH
        )
        assert run("verify", pipeline, env=ALONE).status == 0
        assert run("describe", pipeline, "--json", env=ALONE).document["records"] == 6
    assert '"records": 6' in run("describe", "dataset", train, "--guess", "--json", env=ALONE).out
    (project.data / "linked").symlink_to(linked)
    pipeline.write_text(
        "version: 1\ndataset: {format: image_folder, root: data, path: linked}\n" + GRAPH
    )
    done = run("validate", pipeline, "--config", project.config)
    assert done.status == 2 and "through an absolute link; cure: " in done.err


def test_a_configuration_that_is_named_says_what_may_be_read(project, pipeline):
    done = run("validate", pipeline, "--config", project.config)
    assert done.status == 2
    assert "is an absolute path" in done.err
    assert "FEEDWATER_CONFIG" not in done.err
    other = project.folder / "open.yaml"
    other.write_text(project.config.read_text() + "absolute_roots: true\n")
    assert run("validate", pipeline, "--config", other).status == 0


def reading(project, pipeline) -> list[tuple]:
    """Return commands that read the data."""
    sheet = project.folder / "sheet.png"
    return [
        ("preview", pipeline, "-o", sheet),
        ("verify", pipeline),
        ("index", pipeline),
        ("describe", "pipeline", pipeline, "--cost"),
    ]


@pytest.mark.parametrize("name", [False, True], ids=["path", "name"])
def test_a_configuration_that_is_found_is_not_switched_off(project, pipeline, name):
    """Not by a pipeline out of its own folder either, which its name finds."""
    env = environment(FEEDWATER_ADDRESS="/nonexistent", FEEDWATER_CONFIG=str(project.config))
    asked = "own" if name else pipeline
    for command in reading(project, asked):
        done = run(*command, env=env)
        assert done.status == 2, (command, done)
        words = " ".join(done.err.split())
        assert "root is an absolute path" in words, (command, done.err)
        assert str(project.config) in words and "unset FEEDWATER_CONFIG" in words
    # The file alone is looked at, as with named roots.
    done = run("validate", pipeline, env=env)
    assert done.status == 0, done.err
    assert "the dataset was not looked at" in done.out
    assert run("describe", pipeline, "--json", env=env).document.get("records", -1) == -1
    project.config.write_text(project.config.read_text() + "absolute_roots: true\n")
    for command in reading(project, asked):
        done = run(*command, env=env)
        assert done.status == 0, (command, done)
    assert run("validate", pipeline, "--json", env=env).document["records"] == 6


def test_the_cure_of_a_found_configuration_that_refuses_works(project, pipeline):
    env = environment(FEEDWATER_ADDRESS="/nonexistent", FEEDWATER_CONFIG=str(project.config))
    own = project.folder / "own-config.yaml"
    own.write_text("{version: 1, pipelines: [], roots: {}, absolute_roots: true}")
    err = run("verify", pipeline, env=env).err
    assert f"`{own.read_text()}`" in " ".join(err.split())
    done = run("verify", pipeline, "--config", own, env=env)
    assert done.status == 0, done.err
    env.pop("FEEDWATER_CONFIG")
    assert run("verify", pipeline, env=env).status == 0


def test_a_batch_that_does_not_fit_is_not_valid(project, pipeline):
    text = pipeline.read_text().replace("[8, 8]", "[4000, 4000]")
    pipeline.write_text(text + "batch: {size: 60000}\n")  # 2.9 TB
    done = run("validate", pipeline, env=ALONE)
    assert done.status == 2, done.out
    assert "batch.size 60000" in done.err


def test_sources_of_a_mix_may_have_them_too(project, pipeline):
    source = f"{{format: image_folder, root: {project.data}, path: pictures}}"
    pipeline.write_text(f"version: 1\ndataset: {{mix: [{source}, {source}]}}\n" + GRAPH)
    assert run("validate", pipeline, "--json", env=ALONE).document["records"] == 12


def test_where_the_data_is_not_the_file_alone_is_checked(project, pipeline):
    pipeline.write_text(pipeline.read_text().replace(str(project.data), "/nonexistent/data"))
    done = run("validate", pipeline, env=ALONE)
    assert done.status == 0, done.err
    assert "the dataset was not looked at\n" in done.out and "--config" not in done.out
    column = pipeline.read_text().splitlines()[1].index("/nonexistent") + 1
    assert (
        f"warning: {pipeline}:2:{column}: the root '/nonexistent/data' cannot be read" in done.err
    )
    assert "No such file or directory" in done.err
    done = run("preview", pipeline, "-o", project.folder / "sheet.png", env=ALONE)
    assert done.status == 2
    assert "/nonexistent/data" in done.err


def test_each_root_that_is_not_here_is_warned_of(project, pipeline):
    (project.folder / "file").write_text("no folder")
    places = [project.data, "/nonexistent/a", project.folder / "file"]
    sources = ", ".join(f"{{format: image_folder, root: {place}}}" for place in places)
    pipeline.write_text(f"version: 1\ndataset: {{mix: [{sources}]}}\n" + GRAPH)
    done = run("validate", pipeline, "--json", env=ALONE)
    assert done.status == 0, done.err
    first, second = done.document["warnings"]
    assert "'/nonexistent/a' cannot be read here: No such file or directory" in first
    assert f"'{places[2]}' cannot be read here: it is no folder" in second
    assert "records" not in done.document


def test_a_root_with_a_name_needs_a_configuration_still(project):
    project.pictures("pictures", 2)
    path = project.pipeline("some", "  - decode: {in: data, out: image}\n")
    for command in (("preview", path, "-o", project.folder / "sheet.png"), ("bench", path)):
        done = run(*command, env=ALONE)
        assert done.status == 2
        assert "no configuration" in done.err


def converted_to(project, pipeline, command: str, *arguments):
    out = project.folder / "out" / command
    done = run(command, pipeline, out, "--verify", *arguments, env=ALONE)
    assert done.status == 0, done.err
    return out, done


@pytest.mark.parametrize("command", ["convert", "materialize"])
def test_shards_of_an_absolute_root_have_one_too(project, pipeline, command):
    """And so the section can be read by whatever reads the source, wherever the shards lie."""
    out, done = converted_to(project, pipeline, command)
    assert "roots:" not in done.err
    section = (out / "dataset.yaml").read_text()
    assert f'\n  root: "{out}"\n' in section and "roots:" not in section and "path:" not in section
    reader = out / "pipeline.yaml"
    if command == "convert":
        reader = project.folder / "reader.yaml"
        reader.write_text(f"version: 1\n{section}{GRAPH}")
    checked = run("verify", reader, env=ALONE)
    assert checked.status == 0, checked.err
    assert run("validate", reader, "--json", env=ALONE).document["records"] == 6
    # Shards that were moved are compared where they lie now.
    moved = out.with_name("moved")
    out.rename(moved)
    against = run("verify", pipeline, "--against", moved, env=ALONE)
    assert against.status == 0, against.err


def test_a_configuration_that_admits_paths_needs_no_other_root(project, pipeline):
    """A source of a declared root, and shards that no declared root holds."""
    project.config.write_text(project.config.read_text() + "absolute_roots: true\n")
    project.pipeline("named", "  - decode: {in: data, out: image}\n", outputs="[label]")
    out, done = converted_to(project, "named", "convert", "--config", project.config)
    assert f'root: "{out}"\n' in (out / "dataset.yaml").read_text() and "roots:" not in done.err
    # Where a declared root holds them, its name is told.
    inside = project.data / "inside"
    done = run("convert", "named", inside, "--config", project.config, env=ALONE)
    assert "root: data\n  path: inside\n" in (inside / "dataset.yaml").read_text()
