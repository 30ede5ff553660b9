"""feedwater describe dataset: a pipeline's data, and folders of which nothing else is known."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import tarfile
import time

import numpy as np
import pytest
import yaml
from command_line import PROGRAM, environment, run
from pictures import pixels, png, write_folder

NO_DAEMON = {"FEEDWATER_ADDRESS": "/nonexistent"}


def tar(path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def shards(folder) -> None:
    folder.mkdir()
    tar(
        folder / "s.tar", {"a.txt": b"a dog", "a.cls": b"3", "b.txt": b"\x1b[31mcat", "b.cls": b"1"}
    )


def arrays(folder) -> None:
    folder.mkdir()
    np.save(folder / "image.npy", np.arange(48, dtype=np.uint8).reshape(4, 2, 2, 3))
    np.save(folder / "label.npy", np.arange(4, dtype=np.int16))


GUESSES = {
    "shards": (shards, "webdataset", 2, {"txt": "uint8", "label": "int64"}),
    "arrays": (arrays, "npy", 4, {"image": "uint8", "label": "int64"}),
    "photos": (
        lambda folder: write_folder(folder, 4),
        "image_folder",
        4,
        {"data": "uint8", "label": "int64"},
    ),
}


@pytest.mark.parametrize("kind", GUESSES)
def test_a_folder_is_told_what_it_is_and_what_is_printed_reads_it(folder, kind):
    make, format_name, records, fields = GUESSES[kind]
    make(folder / "in")
    done = run(
        "describe", "dataset", folder / "in", "--guess", "--json", env=environment(**NO_DAEMON)
    )
    assert done.status == 0, done.err
    assert {field["name"]: field["dtype"] for field in done.document["fields"]} == fields
    assert done.document["records"] == records
    root = os.path.realpath(folder / "in")
    assert done.document["dataset"] == f'dataset: {{format: {format_name}, root: "{root}"}}\n'
    # What it says is a pipeline's section, as a private daemon reads it.
    pipeline = folder / "p.yaml"
    pipeline.write_text(
        f"version: 1\n{done.document['dataset']}outputs: [label]\nbatch: {{size: 1}}\n"
    )
    again = run("describe", "dataset", pipeline, "--json", env=environment(**NO_DAEMON))
    assert again.status == 0, again.err
    assert again.document["fields"] == done.document["fields"]
    assert again.document["first"] == done.document["first"]


def coco(folder, images: str, boxes: list) -> dict:
    """Write a picture below the folder; return a file of annotations that names it."""
    (folder / images).mkdir(parents=True)
    (folder / images / "0.png").write_bytes(png(pixels(0)))
    return {
        "images": [{"id": 7, "file_name": "0.png"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": i, "image_id": 7, "category_id": 1, "bbox": box}
                        for i, box in enumerate(boxes)],
    }  # fmt: skip


@pytest.mark.parametrize(("images", "annotations"), [
    ("train2017", "annotations/instances_train2017.json"),
    ("images/train", "annotations/a.json"),
    ("", "_annotations.coco.json"),
])  # fmt: skip
def test_coco_is_found_with_its_annotations_and_images(folder, images, annotations):
    data = folder / "in"
    found = coco(data, images, [[1, 2, 3, 4]])
    (data / "annotations").mkdir(exist_ok=True)
    (data / "annotations/captions.json").write_text('{"images": [], "annotations": []}')
    (data / "broken.json").write_text("{")
    (data / annotations).write_text(json.dumps(found))
    done = run("describe", "dataset", data, "--guess", "--json", env=environment(**NO_DAEMON))
    assert done.status == 0, done.err
    section = yaml.safe_load(done.document["dataset"])["dataset"]
    assert section["format"] == "coco"
    assert section["root"] == os.path.realpath(data)
    assert section.get("path", "") == images
    assert section["annotations"] == annotations
    assert done.document["records"] == 1 and done.document["classes"] == ["cat"]
    assert "[1, 2, 4, 6]" in done.document["first"][0]


def test_annotations_whose_images_are_elsewhere_are_told(folder):
    found = coco(folder / "elsewhere", "", [])
    (folder / "in").mkdir()
    (folder / "in/a.json").write_text(json.dumps(found))
    done = run("describe", "dataset", folder / "in", "--guess", env=environment(**NO_DAEMON))
    assert done.status == 2
    words = " ".join(done.err.split())
    assert "coco: 'a.json'" in words and "names the image '0.png', which lies in no" in words


def test_what_is_printed_to_copy_is_as_people_write_it(project):
    (project.data / "t.csv").write_text("path,n\nt.csv,1\n")
    fields = "{data: {from: path, file: true}, n: {dtype: float32, optional: false}}"
    path = project.pipeline("t", "", dataset=f"{{format: csv, root: data, fields: {fields}}}")
    path.write_text(path.read_text().replace("graph:\n", "").replace("image, label", "n"))
    done = run("describe", "dataset", path, "--config", project.config)
    assert done.status == 0, done.err
    assert f"dataset: {{format: csv, root: data, fields: {fields}}}\n" in done.out


def test_the_first_records_are_shown_and_cannot_move_the_cursor(folder):
    shards(folder / "in")
    done = run("describe", "dataset", folder / "in", env=environment(**NO_DAEMON))
    assert done.status == 0, done.err
    assert "2 records" in done.out
    assert "'a dog'" in done.out and "\x1b[31m" not in done.out
    root = os.path.realpath(folder / "in")
    assert f'root: "{root}"}}' in done.out
    assert f'roots: {{data: "{root}"}}' in " ".join(done.out.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_unpacked_for_a_look_goes_with_ctrl_c(folder, number):
    (folder / "in").mkdir()
    (folder / "tmp").mkdir()
    with gzip.open(folder / "in/a.csv.gz", "wb", compresslevel=1) as packed:
        packed.write(b"n\n")
        for _ in range(300):
            packed.write(b"12345678\n" * 100_000)
    process = subprocess.Popen(
        [PROGRAM, "describe", "dataset", folder / "in", "--guess"],
        env=environment(**NO_DAEMON, TMPDIR=str(folder / "tmp")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((folder / "tmp").glob("feedwater-describe-*/staged")):
        assert process.poll() is None, "nothing was unpacked"
        time.sleep(0.001)
    process.send_signal(number)
    _, told = process.communicate()
    assert process.returncode == 1 and "interrupted" in told
    assert not list((folder / "tmp").iterdir())


def test_what_no_format_reads_is_told_with_the_reasons(folder):
    (folder / "in").mkdir()
    (folder / "in/broken.npy").write_bytes(b"no array")
    done = run("describe", "dataset", folder / "in", "--guess", env=environment(**NO_DAEMON))
    assert done.status == 2
    assert (
        "no format reads" in done.err and "broken.npy" in done.err and "tokens (length)" in done.err
    )
    missing = run("describe", "dataset", folder / "nothing", "--guess")
    assert missing.status == 2 and "nothing" in missing.err
    assert run("describe", "op", "--guess").status == 2
