"""`feedwater describe dataset --guess`: what it finds, and that a private daemon's pipeline may say
what it prints.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile

import numpy as np
import pytest
import yaml
from command_line import environment, run
from pictures import pixels, png, write_folder

from feedwater.crc32c import crc32c

ALONE = environment(FEEDWATER_ADDRESS="/nonexistent")


def guess(data, *arguments) -> dict:
    """Return what is found, which must be readable as it is printed, without a configuration."""
    done = run("describe", "dataset", data, "--guess", "--json", *arguments, env=ALONE)
    assert done.status == 0, done.err
    found = done.document
    sections = [found["dataset"], *found["other_parts"]]
    if not arguments:
        for number, section in enumerate(sections):
            pipeline = data.parent / f"guessed-{number}.yaml"
            pipeline.write_text(f"version: 1\n{section}outputs: [sample_id]\n")
            again = run("describe", "dataset", pipeline, "--json", env=ALONE)
            assert again.status == 0, (section, again.err)
            if number == 0:
                assert again.document["first"] == found["first"]
    found["section"], *found["parts"] = (yaml.safe_load(section)["dataset"] for section in sections)
    return found


def test_a_root_is_a_path_where_none_is_declared_and_a_name_where_one_is(project):
    write_folder(project.data / "pictures", 4)
    found = guess(project.data / "pictures")
    real = os.path.realpath(project.data)
    assert found["section"] == {"format": "image_folder", "root": f"{real}/pictures"}
    named = guess(project.data / "pictures", "--config", project.config)["section"]
    assert named == {"format": "image_folder", "root": "data", "path": "pictures"}
    elsewhere = project.folder / "elsewhere"
    write_folder(elsewhere, 4)
    done = run("describe", "dataset", elsewhere, "--guess", "--config", project.config)
    assert f'root: "{os.path.realpath(elsewhere)}"' in done.out
    assert f'roots: {{data: "{os.path.realpath(elsewhere)}"}}' in " ".join(done.out.split())
    # A daemon that takes paths needs nothing declared.
    project.config.write_text(project.config.read_text() + "absolute_roots: true\n")
    done = run("describe", "dataset", elsewhere, "--guess", "--config", project.config)
    assert "roots: {" not in done.out


# --- a folder up


def arrays(folder) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "image.npy", np.zeros((4, 2, 2, 3), np.uint8))


@pytest.mark.parametrize(
    ("names", "write", "format_name"),
    [
        (("train", "val"), lambda folder: write_folder(folder, 4), "image_folder"),
        (("Train", "Test"), lambda folder: write_folder(folder, 4), "image_folder"),
        (("train", "val"), arrays, "npy"),
        (("train",), lambda folder: write_folder(folder, 4), "image_folder"),
    ],
)
def test_of_a_folder_up_the_parts_are_found(folder, names, write, format_name):
    for name in names:
        write(folder / "in" / name)
    (folder / "in/README.txt").write_text("a note")
    found = guess(folder / "in")
    assert (found["section"]["format"], found["section"]["path"]) == (format_name, names[0])
    assert [part["path"] for part in found["parts"]] == list(names[1:])
    done = run("describe", "dataset", folder / "in", "--guess", env=ALONE)
    assert all(f"path: {name}" in done.out for name in names)


def test_a_class_may_be_called_as_a_part_is(folder):
    for name in ("train", "plane"):
        (folder / "in" / name).mkdir(parents=True)
        (folder / "in" / name / "0.png").write_bytes(png(pixels(0)))
    found = guess(folder / "in")
    assert found["classes"] == ["plane", "train"] and found["parts"] == []


# --- MNIST


def mnist(folder, prefix: str, pack=bytes) -> None:
    folder.mkdir(exist_ok=True)
    end = ".gz" if pack is gzip.compress else ""
    images = struct.pack(">IIII", 0x803, 3, 28, 28) + bytes(3 * 784)
    (folder / f"{prefix}-images-idx3-ubyte{end}").write_bytes(pack(images))
    (folder / f"{prefix}-labels-idx1-ubyte{end}").write_bytes(
        pack(struct.pack(">II", 0x801, 3) + b"\0\1\2")
    )


def test_mnists_test_files_are_found(folder):
    mnist(folder / "in", "t10k")
    found = guess(folder / "in")
    assert found["section"]["format"] == "mnist" and found["section"]["split"] == "test"
    assert found["records"] == 3 and found["parts"] == []
    # Beside the others they are the other part.
    mnist(folder / "in", "train")
    found = guess(folder / "in")
    assert "split" not in found["section"]
    assert [part["split"] for part in found["parts"]] == ["test"]
    # Each of the files tells it, too.
    for name, split in (("t10k-labels-idx1-ubyte", "test"), ("train-images-idx3-ubyte", None)):
        section = guess(folder / "in" / name)["section"]
        assert section["format"] == "mnist" and section.get("split") == split, section


def test_mnists_packed_test_files_are_found(folder):
    mnist(folder / "in", "t10k", gzip.compress)
    done = run("describe", "dataset", folder / "in", "--guess", "--json", env=ALONE)
    assert done.status == 0, done.err
    assert "split: test" in done.document["dataset"]


# --- TFRecord files under any names


def tfrecord(label: int) -> bytes:
    """Return a record: an Example whose feature `label` is a number."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    numbers = field(3, field(1, bytes([label])))
    example = field(1, field(1, field(1, b"label") + field(2, numbers)))
    length = struct.pack("<Q", len(example))
    return length + masked(length) + example + masked(example)


@pytest.mark.parametrize(
    ("names", "files", "others"),
    [
        (("a.data", "b.data"), ["*.data"], []),
        (("train.tfrecords-00000-of-00002", "train.tfrecords-00001-of-00002"), None, []),
        # One of several, as somebody copies them to have a look.
        (("t.tfrecords-00000-of-00010",), ["t.tfrecords-*-of-00010"], []),
        (("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"),
         ["train-*-of-00002"], [["validation-*-of-00001"]]),
        (("test-1.bin", "train-1.bin", "train-2.bin"), ["train*.bin"], [["test*.bin"]]),
        (("part-00", "part-01"), ["part-*"], []),
        (("records",), ["records"], []),
    ],
)  # fmt: skip
def test_tfrecord_files_are_known_by_their_first_length(folder, names, files, others):
    (folder / "in").mkdir()
    for number, name in enumerate(names):
        (folder / "in" / name).write_bytes(tfrecord(number) + tfrecord(number + 10))
    (folder / "in/notes.md").write_text("no records")
    found = guess(folder / "in")
    assert found["section"]["format"] == "tfrecord" and found["section"].get("files") == files
    assert [part["files"] for part in found["parts"]] == others
    assert [field["name"] for field in found["fields"]] == ["label"]


@pytest.mark.parametrize("name", ["a.data", "t.tfrecords-00000-of-00010", "records"])
def test_a_single_tfrecord_file_may_have_any_name(folder, name):
    (folder / name).write_bytes(tfrecord(1))
    found = guess(folder / name)
    assert found["section"]["format"] == "tfrecord" and found["section"]["path"] == name
    assert found["records"] == 1


def test_what_only_seems_to_be_a_tfrecord_is_none(folder):
    (folder / "in").mkdir()
    (folder / "in/a.data").write_bytes(bytes(64))
    done = run("describe", "dataset", folder / "in", "--guess", env=ALONE)
    assert done.status == 2 and "no format reads" in done.err


def test_a_tar_with_pax_headers_is_no_text(folder):
    with tarfile.open(folder / "photos.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(4):
            for suffix, data in (("png", png(pixels(number))), ("txt", b"a, b\n")):
                member = tarfile.TarInfo(f"{number:04}.{suffix}")
                member.size, member.mtime = len(data), 0.5  # which only a PAX header can hold
                tar.addfile(member, io.BytesIO(data))
    found = guess(folder / "photos.tar")
    assert found["section"]["format"] == "webdataset" and found["records"] == 4


# --- tables


@pytest.mark.parametrize(
    ("text", "quotes", "records"),
    [
        ("label\ttext\n1\tgood\n0\tin, between\n", None, 2),
        # As GLUE has it, and by the rules of quoting: a value of two lines.
        ('label\ttext\n1\tgood\n0\t"a mess\n1\tfine\n0\tawful"\n', False, 4),
        ('path\tsentence\na.mp3\t""Come in,"" she said.\nb.mp3\tend\n', False, 2),
        ('label\ttext\n1\t"never closed', False, 1),
        ('text\tlabel\n"a ""word""\nand more"\t1\n"x"\t2\n', None, 2),
    ],
)
@pytest.mark.parametrize("is_folder", [False, True])
def test_of_a_tsv_the_tabs_and_the_quotes_are_found(folder, text, quotes, records, is_folder):
    (folder / "in").mkdir()
    (folder / "in/dev.tsv").write_text(text)
    section = guess(folder / "in" if is_folder else folder / "in/dev.tsv")["section"]
    assert (section["format"], section["delimiter"]) == ("csv", "\t")
    assert section.get("quotes") is quotes
    assert guess(folder / "in/dev.tsv")["records"] == records


# --- COCO's annotations


@pytest.mark.parametrize(
    ("images", "annotations"),
    [
        ("train2017", "annotations/instances_train2017.json"),
        ("set", "set/_annotations.coco.json"),
        ("images/train", "labels/train.json"),
    ],
)
def test_a_file_of_annotations_finds_its_images(folder, images, annotations):
    (folder / "in" / images).mkdir(parents=True)
    (folder / "in" / images / "0.png").write_bytes(png(pixels(0)))
    file = folder / "in" / annotations
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({
        "images": [{"id": 7, "file_name": "0.png"}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    }))  # fmt: skip
    found = guess(file)
    assert found["section"] == {
        "format": "coco", "root": os.path.realpath(folder / "in"), "path": images,
        "annotations": annotations,
    }  # fmt: skip
    assert found["records"] == 1 and found["classes"] == ["cat"]
