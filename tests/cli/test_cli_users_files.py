"""What a user has in the folder that convert and materialize write into stays the user's, and what
they write there can be read.
"""

from __future__ import annotations

import os
import resource

import pytest
import yaml
from command_line import run
from conversions import GRAPH, converted, section
from pictures import pixels, png

BESIDE_SHARDS = ["dataset.yaml", "classes.txt", "bad_records.jsonl"]
TRAIN = GRAPH + "  - random_horizontal_flip: {in: image}\n"


@pytest.fixture
def photos(project):
    """A project with 12 pictures, of which one is damaged."""
    project.pictures("pictures", 12, bad=(4,))
    project.pipeline("photos", TRAIN)
    return project


def work(project, command: str, out, pipeline: str = "photos"):
    return run(command, pipeline, out, "--config", project.config, "--allow-bad", 1)


@pytest.mark.parametrize("command", ["convert", "materialize"])
def test_a_users_file_is_neither_replaced_nor_removed(photos, command):
    out = photos.data / "shards"
    out.mkdir()
    names = BESIDE_SHARDS + ["photos-000003.tar", "photos-000000.tar.fwidx"]
    for name in names + ["pipeline.yaml"] * (command == "materialize"):
        (out / name).write_text("somebody's")
        result = work(photos, command, out)
        assert result.status == 2, result
        assert f"holds {name}, " in result.err and f"move {name} away" in result.err
        assert (out / name).read_text() == "somebody's"
        assert not (out / ".convert.json").exists()
        (out / name).unlink()
    (out / "notes.txt").write_text("in nobody's way")
    (out / "photos-1.tar.gz").write_text("nor this")
    assert work(photos, command, out).status == 0
    for name in names:
        assert (out / name).exists() == (name == "dataset.yaml" or name in written(command))
    assert work(photos, command, out).status == 0, "its own files are in nobody's way either"


def written(command: str) -> set[str]:
    """Names beside the section that this command leaves."""
    bad = {"bad_records.jsonl"} if command == "materialize" else set()  # the other keeps the bytes
    return {"photos-000000.tar.fwidx"} | bad


def test_a_pipeline_is_not_replaced_by_what_is_made_of_it(photos):
    folder = photos.data / "own"
    folder.mkdir()
    text = (photos.pipelines / "photos.yaml").read_text()
    (folder / "pipeline.yaml").write_text(text)
    result = run("materialize", "./pipeline.yaml", ".", "--config", photos.config, cwd=folder)
    assert result.status == 2 and "is the pipeline that is read" in result.err, result
    assert (folder / "pipeline.yaml").read_text() == text
    # Behind a journal of its own, too.
    out = folder / "made"
    assert work(photos, "materialize", out, str(folder / "pipeline.yaml")).status == 0
    made = (out / "pipeline.yaml").read_text()
    result = work(photos, "materialize", out, str(out / "pipeline.yaml"))
    assert result.status == 2, result
    assert (out / "pipeline.yaml").read_text() == made
    # And no such file is in the way of `convert`, which writes none.
    result = run("convert", "./pipeline.yaml", ".", "--config", photos.config, cwd=folder)
    assert result.status == 0, result


@pytest.mark.parametrize("command", ["convert", "materialize"])
def test_a_folder_that_no_section_can_name_is_refused_before_anything_is_written(photos, command):
    out = os.fsencode(photos.data) + b"/caf\xe9"
    result = work(photos, command, os.fsdecode(out))
    assert result.status == 2 and "is not UTF-8" in result.err, result
    assert not [name for name in os.listdir(out) if not name.endswith(b".lock")]


def test_what_is_written_is_yaml_for_other_readers(project):
    classes = ["king's", 'a "quoted" \\ one', "no", "True", "1e3", "week: 1 #2", "größe"]
    for number, name in enumerate(classes):
        (project.data / "pictures" / name).mkdir(parents=True)
        (project.data / "pictures" / name / "0.png").write_bytes(png(pixels(number)))
    project.pipeline("photos", TRAIN)
    converted(project, out="it's here/shards")
    out = project.data / "it's here/shards"
    dataset = yaml.safe_load(section(out))["dataset"]
    assert dataset["path"] == "it's here/shards"
    assert dataset["classes"] == sorted(classes, key=str.encode)
    assert work(project, "materialize", project.data / "it's here/made").status == 0
    made = yaml.safe_load((project.data / "it's here/made/pipeline.yaml").read_text())
    assert made["dataset"]["classes"] == dataset["classes"]


def _few_threads() -> None:
    """Leave address space for about three threads' stacks."""
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 30, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (5 << 30, resource.RLIM_INFINITY))


@pytest.mark.parametrize("command", ["convert", "materialize", "verify"])
def test_threads_that_are_not_to_be_had_are_done_without(project, command):
    project.pictures("pictures", 12)
    project.pipeline("photos", TRAIN)
    arguments = ["photos", "--config", project.config, "--jobs", 64]
    if command != "verify":
        arguments.insert(1, project.data / "shards")
    done = run(command, *arguments, before=_few_threads)
    assert done.status == 0, done


@pytest.mark.parametrize("where", ["pictures", "pictures/cat", "pictures/new", ".", "link"])
def test_a_folder_within_or_around_the_dataset_is_refused_before_anything_is_written(photos, where):
    (photos.data / "link").symlink_to("pictures")
    before = sorted(photos.data.rglob("*"))
    for command in ("convert", "materialize"):
        result = run(command, "photos", photos.data / where, "--config", photos.config)
        assert result.status == 2, result
        assert "the dataset" in result.err and "Cure: a folder beside" in result.err
        assert "rm -r" not in result.err
        assert sorted(photos.data.rglob("*")) == before


def test_a_folder_that_holds_files_which_records_name_is_refused(project):
    project.pictures("pictures", 2)
    names = sorted(path.relative_to(project.data) for path in project.data.rglob("*.png"))
    (project.data / "all.csv").write_text("path\n" + "".join(f"{name}\n" for name in names))
    fields = "{data: {from: path, file: true}}"
    project.pipeline(
        "photos",
        GRAPH,
        dataset=f"{{format: csv, root: data, path: all.csv, fields: {fields}}}",
        outputs="[image]",
    )
    for out in ("pictures", str(names[0].parent)):
        result = run("convert", "photos", project.data / out, "--config", project.config)
        assert result.status == 2 and "holds files of the dataset" in result.err, result
    beside = run("convert", "photos", project.data / "pictures/new", "--config", project.config)
    assert beside.status == 0, "it holds none and is in no folder"
