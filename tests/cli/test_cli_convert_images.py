"""feedwater convert: images that are made smaller, baseline, or coefficient documents."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from command_line import run
from conversions import (
    GRAPH,
    batches,
    converted,
    records,
    section,
)
from daemon_process import ROOT
from pictures import pixels, png

sys.path.insert(0, str(ROOT / "tests/testing"))

from bombs import progressive


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG, and check its kind."""
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(
        data[at + 5 : at + 7], "big"
    )


def test_resize_max_makes_large_images_smaller_and_keeps_the_others(project):
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    gradient = np.stack([np.tile(np.arange(200, dtype=np.uint8), (100, 1))] * 3, axis=2)
    wide, tall, small = png(gradient), png(gradient.transpose(1, 0, 2)), png(gradient[:40, :80])
    for number, data in enumerate([wide, tall, small]):
        (folder / f"{number}.png").write_bytes(data)
    project.pipeline("photos", GRAPH)
    converted(project, "--resize-max", 80, "--quality", 95)
    found = records(project.data / "shards")
    assert set(found[0]) == {"jpg", "cls"} and set(found[2]) == {"png", "cls"}
    assert jpeg_size(found[0]["jpg"]) == (80, 40) and jpeg_size(found[1]["jpg"]) == (40, 80)
    assert found[2]["png"] == small
    out = project.data / "shards"
    assert "jpg;png" in section(out)
    path = project.pipelines / "small.yaml"
    path.write_text(
        f"version: 1\n{section(out)}graph:\n  - decode: {{in: data, out: image}}\n"
        "  - center_crop: {in: image, size: [32, 32]}\noutputs: [image]\n"
    )
    assert run("verify", path, "--config", project.config).status == 0


@pytest.fixture
def boxes(project):
    """A project with one picture of 100 x 100 pixels and what COCO says of it."""
    folder = project.data / "images"
    folder.mkdir()
    (folder / "0.png").write_bytes(png(np.full((100, 100, 3), 128, np.uint8)))
    annotations = {
        "images": [{"id": 7, "file_name": "0.png", "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    }
    (project.data / "a.json").write_text(json.dumps(annotations))
    (project.data / "a.jsonl").write_text(
        '{"file": "images/0.png", "box": [1, 2, 3, 4], "place": [0.5, 0.25]}\n'
    )
    return project


COCO = "format: coco, root: data, path: images, annotations: a.json"
LINES = "format: jsonl, root: data, path: a.jsonl"


@pytest.mark.parametrize(
    ("dataset", "fields", "refused"),
    [
        (COCO, "{data: {from: file_name, file: true}, corners: boxes}", "corners"),
        (COCO, "{data: {from: file_name, file: true}, w: width}", "w"),
        (COCO, "{data: {from: file_name, file: true}, area: area}", "area"),
        (COCO, "{data: {from: file_name, file: true}, labels: labels}", None),
        (LINES, "{data: {from: file, file: true}, box: box}", "box"),
        (LINES, "{data: {from: file, file: true}, place: place}", None),
    ],
)
def test_images_do_not_shrink_beside_what_is_in_their_pixels(boxes, dataset, fields, refused):
    boxes.pipeline("photos", GRAPH, dataset=f"{{{dataset}, fields: {fields}}}", outputs="[image]")
    out = boxes.data / "shards"
    command = ("convert", "photos", out, "--config", boxes.config)
    result = run(*command, "--resize-max", 50)
    if refused is None:
        assert result.status == 0, result
        return
    assert result.status == 2, result
    assert f"field '{refused}'" in result.err and "in pixels" in result.err
    assert "resize in the graph" in result.err and "`fields`" in result.err
    assert not out.exists()
    named = run(*command, "--resize-max", 50, "--resize-fields", "data")
    assert named.status == (2 if dataset is COCO else 0), "of COCO it is known, else it seems so"
    if dataset is COCO:
        assert run(*command).status == 0, "images that keep their size keep their boxes"


@pytest.fixture
def masks(project):
    """A project with photos and masks of 100 x 100 pixels: the first record's is small."""
    folder = project.data / "pairs"
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as archive:
        for record in range(3):
            side = 40 if record == 0 else 100
            mask = (np.arange(side * side) % 251).astype(np.uint8).reshape(side, side)
            for name, data in (
                ("png", png(np.full((side, side, 3), 128, np.uint8))),
                ("mask.png", png(mask)),
            ):
                member = tarfile.TarInfo(f"{record}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    (project.pipelines / "photos.yaml").write_text(
        "version: 1\ndataset: {format: webdataset, root: data, path: pairs, fields: {image: png, "
        "mask: mask.png}}\ngraph:\n  - decode: {in: image, out: a}\n"
        "  - resize: {in: a, size: [8, 8]}\n  - decode: {in: mask, out: b}\n"
        "  - resize: {in: b, size: [8, 8]}\n"
        "batch: {size: 1}\noutputs: [a, b]\n"
    )
    return project


def test_a_mask_is_not_made_a_jpeg_unless_it_is_named(masks):
    out = masks.data / "shards"
    command = ("convert", "photos", out, "--config", masks.config, "--resize-max", 50)
    result = run(*command)
    assert result.status == 2, result
    assert "record 1: field 'mask' seems to be a mask" in result.err
    assert "--resize-fields" in result.err
    result = run(*command, "--resize-fields", "imag")
    assert result.status == 2 and "did you mean 'image'" in result.err
    result = run(*command[:-2], "--resize-fields", "image")
    assert result.status == 2 and "--resize-max" in result.err
    result = run(*command, "--resize-fields", "image", "--verify")
    assert result.status == 0, result
    found = records(out)
    assert jpeg_size(found[1]["jpg"]) == (50, 50)
    source = masks.data / "pairs/a.tar"
    with tarfile.open(source) as archive:
        assert found[1]["mask.png"] == archive.extractfile("1.mask.png").read()
    against = run("verify", "photos", "--against", out, "--config", masks.config)
    assert against.status == 0, against
    result = run(*command, "--resize-fields", "image,mask")
    assert result.status == 2 and "resize-fields" in result.err, "the folder's are others"
    shutil.rmtree(out)
    assert run(*command, "--resize-fields", "image,mask").status == 0
    assert jpeg_size(records(out)[1]["mask.jpg"]) == (50, 50)


def test_a_mask_that_comes_late_is_a_bad_record(masks):
    with tarfile.open(masks.data / "pairs/a.tar") as archive:
        data = {m.name: archive.extractfile(m).read() for m in archive}
    with tarfile.open(masks.data / "pairs/a.tar", "w") as archive:
        for record in range(20):
            source = 1 if record == 19 else 0
            for name in ("png", "mask.png"):
                member = tarfile.TarInfo(f"{record:02}.{name}")
                member.size = len(data[f"{source}.{name}"])
                archive.addfile(member, io.BytesIO(data[f"{source}.{name}"]))
    document = converted(masks, "--resize-max", 50, "--allow-bad", 1)
    assert document["converted"] == 19
    bad = (masks.data / "shards/bad_records.jsonl").read_text()
    assert "seems to be a mask" in bad and '"record":19' in bad.replace(" ", "")


def test_an_image_that_was_turned_stays_turned(project):
    exif = b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
    jpeg = progressive(64)
    turned = jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    (folder / "0.jpg").write_bytes(turned)
    project.pipeline("photos", GRAPH)
    for options in (["--resize-max", 32], ["--jpeg", "baseline"]):
        out = "with" + options[0]
        converted(project, *options, out=out)
        found = records(project.data / out)[0]["jpg"]
        assert b"\x01\x12\0\x03\0\0\0\x01\0\x06" in found or exif in found


def test_jpeg_baseline_keeps_every_pixel(make_daemon):
    daemon = make_daemon()
    folder = daemon.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(progressive(64, is_complete=True))
    photos = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared/data"))
    real = [
        path
        for path in sorted((photos / "images").rglob("*.jp*g"))
        if b"\xff\xc2" in path.read_bytes()
    ][:20]
    for path in real:
        shutil.copy(path, folder / f"real-{path.name}")
    rest = (
        "on_bad_sample: substitute\ngraph:\n  - decode: {in: data, out: image}\n"
        "  - resize: {size: [64, 64]}\nbatch: {size: 1}\noutputs: [image, sample_id]\n"
    )
    dataset = "dataset: {format: image_folder, root: data, path: pictures}\n"
    daemon.add_pipeline("original", f"version: 1\n{dataset}{rest}")
    out = daemon.data / "shards"
    done = run("convert", "original", out, "--config", daemon.config, "--jpeg", "baseline",
               "--allow-bad", 100, "--json")  # fmt: skip
    assert done.status == 0, done
    found = records(out)
    assert len(found) == done.document["converted"] >= 4
    assert all(b"\xff\xc2" not in record["jpg"][:600] for record in found.values())
    daemon.add_pipeline("shards", f"version: 1\n{section(out)}{rest}")
    daemon.start()
    by_record = {int(b["sample_id"][0]): b["image"] for b in batches(daemon, "original")}
    for key, batch in zip(sorted(found), batches(daemon, "shards")):
        np.testing.assert_array_equal(batch["image"], by_record[key])


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_jpeg_coefficients_keep_every_pixel_and_need_no_cache(make_daemon, isolation):
    daemon = make_daemon(config=f"cpus: 2\nmemory: 1GiB\nisolation: {isolation}\n")
    folder = daemon.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(progressive(64, is_complete=True))
    (folder / "picture.png").write_bytes(png(pixels(0)))
    photos = Path(os.environ.get("FEEDWATER_TEST_DATA", ROOT.parent / "shared/data"))
    for path in sorted((photos / "images").rglob("*.jp*g"))[:20]:
        shutil.copy(path, folder / f"real-{path.name}")
    rest = (
        "on_bad_sample: substitute\ncache: {kind: none}\n"
        "graph:\n  - decode: {in: data, out: image}\n"
        "  - resize: {size: [64, 64]}\nbatch: {size: 1}\noutputs: [image, sample_id]\n"
    )
    dataset = "dataset: {format: image_folder, root: data, path: pictures}\n"
    daemon.add_pipeline("original", f"version: 1\n{dataset}{rest}")
    out = daemon.data / "shards"
    done = run("convert", "original", out, "--config", daemon.config, "--jpeg", "coefficients",
               "--verify", "--allow-bad", 100, "--json")  # fmt: skip
    assert done.status == 0, done
    found = records(out)
    assert len(found) == done.document["converted"] >= 5
    packed = [record for record in found.values() if "fwcs" in record]
    assert len(packed) >= 4 and all(record["fwcs"][:4] == b"FWCS" for record in packed)
    assert sum("png" in record for record in found.values()) == 1
    daemon.add_pipeline("shards", f"version: 1\n{section(out)}{rest}")
    daemon.start()
    by_record = {int(b["sample_id"][0]): b["image"] for b in batches(daemon, "original")}
    again = {int(b["sample_id"][0]): b["image"] for b in batches(daemon, "shards")}
    keys = sorted(found)  # one that cannot be decoded is in neither: another one stands there
    assert {keys[record] for record in again} == set(by_record) and len(again) >= 5
    for record, image in again.items():
        np.testing.assert_array_equal(image, by_record[keys[record]])


@pytest.mark.parametrize("options", [[], ["--resize-max", 32]])
def test_two_images_of_a_record_become_two_documents(project, options):
    folder = project.data / "pairs"
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as archive:
        for record in range(3):
            for name, side in (("left", 64), ("right", 128)):
                data = progressive(side, is_complete=True)
                member = tarfile.TarInfo(f"{record}.{name}.jpg")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    dataset = (
        "dataset: {format: webdataset, root: data, path: pairs, fields: {left: left.jpg, right: "
        "right.jpg}}\n"
    )
    rest = (
        "graph:\n  - decode: {in: left, out: a}\n  - resize: {in: a, size: [16, 16]}\n"
        "  - decode: {in: right, out: b}\n  - resize: {in: b, size: [16, 16]}\n"
        "batch: {size: 1}\noutputs: [a, b]\n"
    )
    (project.pipelines / "photos.yaml").write_text(f"version: 1\n{dataset}{rest}")
    converted(project, "--jpeg", "coefficients", "--verify", *options)
    for record in records(project.data / "shards").values():
        documents = [record["fwcs"], record["right.fwcs"]]
        sizes = [struct.unpack_from("<Q", document, 16)[0] for document in documents]
        assert sizes == [len(document) for document in documents]
        widths = [struct.unpack_from("<I", document, 24)[0] for document in documents]
        assert widths == ([32, 32] if options else [64, 128])
    path = project.pipelines / "again.yaml"
    path.write_text(f"version: 1\n{section(project.data / 'shards')}{rest}")
    result = run("verify", path, "--config", project.config)
    assert result.status == 0, result


def test_a_flipped_bit_in_a_coefficient_document_is_a_bad_record(project):
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(progressive(64, is_complete=True))
    project.pipeline("photos", GRAPH)
    converted(project, "--jpeg", "coefficients")
    out = project.data / "shards"
    shard = next(out.glob("*.tar"))
    content = bytearray(shard.read_bytes())
    content[content.index(b"FWCS") + 700] ^= 1
    shard.write_bytes(content)
    path = project.pipelines / "again.yaml"
    path.write_text(f"version: 1\n{section(out)}graph:\n{GRAPH}outputs: [image]\n")
    result = run("verify", path, "--config", project.config, "--json")
    assert result.status == 1, result
    assert len(result.document["bad"]) == 1
    assert "checksum" in result.document["bad"][0]["reason"]
