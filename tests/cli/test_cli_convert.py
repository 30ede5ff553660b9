"""feedwater convert: any dataset as tar shards, and the section that reads the same records."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
from command_line import PROGRAM, environment, run, run_on_terminal
from conversions import (
    GRAPH,
    batches,
    convert,
    converted,
    records,
    same_batches,
    section,
    shards,
)
from daemon_process import ROOT
from pictures import CLASSES, label, pixels, png

sys.path.insert(0, str(ROOT / "tests/testing"))

from bombs import progressive

import feedwater


def bmp(image: np.ndarray) -> bytes:
    """Return an RGB picture as the bytes of a BMP file."""
    height, width, _ = image.shape
    rows = np.zeros((height, (3 * width + 3) // 4 * 4), np.uint8)
    rows[:, : 3 * width] = image[::-1, :, ::-1].reshape(height, -1)
    sizes = [54 + rows.nbytes, 0, 54, 40, width, height]
    head = b"BM" + b"".join(size.to_bytes(4, "little") for size in sizes)
    return head + b"\1\0\x18\0" + bytes(24) + rows.tobytes()


@pytest.fixture
def photos(project):
    """A project with 30 pictures."""
    project.pictures("pictures", 30)
    project.pipeline("photos", GRAPH)
    return project


@pytest.mark.parametrize(
    "command",
    [("convert", "photos", "OUT"), ("materialize", "photos", "OUT"), ("index", "--seek", "photos"),
     ("verify", "photos")],
)  # fmt: skip
def test_the_engine_that_gives_zeros_is_refused(photos, command):
    """Shards of zeros would look like good ones to formats that take any bytes."""
    photos.config.write_text(photos.config.read_text() + 'storage: {engine: "null"}\n')
    out = photos.data / "shards"
    words = [out if word == "OUT" else word for word in command]
    result = run(*words, "--config", photos.config)
    assert result.status != 0 and "gives zeros" in result.err and "engine: auto" in result.err
    assert not list(photos.data.rglob("*.tar")) and not list(photos.data.rglob("dataset.yaml"))


def test_a_pipeline_over_the_shards_gives_identical_batches(make_daemon):
    daemon = make_daemon()
    folder = daemon.data / "pictures"
    kinds = [("png", png), ("bmp", bmp), ("jpg", lambda image: progressive(64))]
    for number in range(40):
        extension, write = kinds[number % 3]
        path = folder / CLASSES[label(number, 40)] / f"{number:06}.{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write(pixels(number)))
    rest = (
        f"sampler: {{shuffle: full, seed: 4}}\ngraph:\n{GRAPH}batch: {{size: 8}}\n"
        "outputs: [image, label, sample_id]\n"
    )
    original = "dataset: {format: image_folder, root: data, path: pictures}\n"
    daemon.add_pipeline("original", f"version: 1\n{original}{rest}")
    out = daemon.data / "made/shards"
    done = run("convert", "original", out, "--config", daemon.config, "--shard-bytes", "64KiB",
               "--json")  # fmt: skip
    assert done.status == 0, done
    assert done.document["converted"] == 40 and done.document["bad"] == 0
    assert done.document["shards"] == len(list(out.glob("original-*.tar"))) > 1
    text = section(out)
    assert "root: data" in text and "path: made/shards" in text
    assert 'from: "jpg;png;bmp"' in text or "from: jpg;png;bmp" in text
    daemon.add_pipeline("shards", f"version: 1\n{text}{rest}")
    checked = run("validate", daemon.pipelines / "shards.yaml", "--config", daemon.config)
    assert checked.status == 0, checked
    daemon.start()
    assert same_batches(batches(daemon, "original"), batches(daemon, "shards"))
    with feedwater.Loader("shards", address=daemon.address) as loader:
        assert list(loader.classes) == list(CLASSES)


def test_fields_of_every_kind_come_back(make_daemon):
    daemon = make_daemon()
    rng = np.random.default_rng(5)
    arrays = {
        "Boxes_x": rng.normal(size=(50, 3, 2)).astype(np.float32),
        "label": rng.integers(-5, 9, 50).astype(np.int32),
        "flag": rng.integers(0, 2, 50).astype(bool),
        "half": rng.normal(size=(50, 4)).astype(np.float16),
    }
    folder = daemon.data / "arrays"
    folder.mkdir()
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    fields = ", ".join(f"{name}: {name}.npy" for name in arrays)
    rest = f"graph: []\nbatch: {{size: 10}}\noutputs: [{', '.join(arrays)}]\n"
    dataset = f"dataset: {{format: npy, root: data, path: arrays, fields: {{{fields}}}}}\n"
    daemon.add_pipeline("original", f"version: 1\n{dataset}{rest}")
    out = daemon.data / "shards"
    done = run("convert", "original", out, "--config", daemon.config)
    assert done.status == 0, done
    for number, record in records(out).items():
        assert set(record) == {"boxes_x.npy", "cls", "flag.npy", "half.npy"}
        assert int(record["cls"]) == arrays["label"][number]
        for name, extension in [("Boxes_x", "boxes_x.npy"), ("half", "half.npy")]:
            value = np.load(io.BytesIO(record[extension]))
            assert value.dtype == arrays[name].dtype
            np.testing.assert_array_equal(value, arrays[name][number])
    daemon.add_pipeline("shards", f"version: 1\n{section(out)}{rest}")
    daemon.start()
    assert same_batches(batches(daemon, "original"), batches(daemon, "shards"))


def test_texts_and_several_images_keep_their_kinds(project):
    folder = project.data / "source"
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(5):
            for extension, data in [
                ("jpg", png(pixels(number))),
                ("mask.png", png(pixels(number + 50))),
                ("txt", f"picture {number}\n".encode()),
                ("title.txt", "tïtle".encode()),
            ]:
                info = tarfile.TarInfo(f"x{number}.{extension}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    dataset = "{format: webdataset, root: data, path: source}"
    project.pipeline("photos", GRAPH, dataset=dataset, outputs="[image]")
    converted(project)
    found = records(project.data / "shards")
    # What was called jpg is a PNG, and is now called so.
    assert set(found[3]) == {"png", "mask.png", "txt", "title.txt"}
    assert found[3]["png"] == png(pixels(3)) and found[3]["title.txt"].decode() == "tïtle"
    again = project.pipelines / "again.yaml"
    again.write_text(
        f"version: 1\n{section(project.data / 'shards')}graph:\n{GRAPH}outputs: [image]\n"
    )
    described = [
        run("describe", "dataset", name, "--config", project.config, "--json").document
        for name in ("photos", again)
    ]
    for was, now in zip(described[0]["fields"], described[1]["fields"], strict=True):
        assert [was[k] for k in ("name", "dtype", "shape", "layout")] == [
            now[k] for k in ("name", "dtype", "shape", "layout")
        ]
    assert described[0]["first"] == described[1]["first"]


def test_tar_reads_the_shards(photos):
    converted(photos)
    out = photos.data / "shards"
    listed = subprocess.run(
        ["tar", "tvf", out / "photos-000000.tar"], capture_output=True, text=True, check=True
    )
    assert listed.stderr == ""
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert names == [f"{i:08}.{x}" for i in range(30) for x in ("png", "cls")]
    assert all("1970-01-01" in line for line in listed.stdout.splitlines())
    found = records(out)
    assert list(found) == list(range(30))
    for number, record in found.items():
        assert record["png"] == png(pixels(number))
        assert int(record["cls"]) == label(number, 30)


def test_large_records_begin_at_four_kibibytes_and_tar_shows_no_padding(project):
    rng = np.random.default_rng(2)
    folder = project.data / "pictures/cat"
    folder.mkdir(parents=True)
    for number in range(6):
        image = rng.integers(0, 256, (200 + number, 170, 3), dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(png(image))
    project.pipeline("photos", GRAPH)
    converted(project)
    shard = project.data / "shards/photos-000000.tar"
    with tarfile.open(shard) as archive:
        images = [member for member in archive if member.name.endswith(".png")]
        assert len(images) == 6
        assert all(member.offset % 4096 == 0 for member in images[1:])
    padded = shard.stat().st_size
    listed = subprocess.run(["tar", "tf", shard], capture_output=True, text=True, check=True)
    assert listed.stdout.count("\n") == 12 and listed.stderr == ""
    data = sum(path.stat().st_size for path in folder.iterdir())
    assert padded < 1.05 * data + 6 * 2048 + 4096


def test_the_bytes_do_not_depend_on_the_jobs(photos):
    made = []
    for jobs in (1, 4):
        converted(photos, "--jobs", jobs, "--shard-bytes", "64KiB", out=f"with-{jobs}")
        made.append(shards(photos.data / f"with-{jobs}"))
    assert made[0] == made[1]
    assert all(len(data) <= 64 << 10 for data in made[0].values())


def test_shuffle_is_the_samplers_permutation(photos):
    converted(photos, "--shuffle", 9, "--shard-bytes", "64KiB")
    order = list(records(photos.data / "shards"))
    assert sorted(order) == list(range(30)) != order
    photos.pipeline("shuffled", GRAPH, sampler="{shuffle: full, seed: 9}", batch="{size: 30}")
    entries = run(
        "ledger", "shuffled", "--config", photos.config, "--batch", 0, "--epoch", 0, "--json"
    ).document["entries"]
    assert order == [entry["record"] for entry in entries]


def test_a_killed_conversion_goes_on_behind_its_whole_shards(project):
    project.pictures("pictures", 3000)
    project.pipeline("photos", GRAPH)
    options = ("--shard-bytes", "64KiB")
    converted(project, *options, out="undisturbed")
    out = project.data / "shards"
    process = subprocess.Popen(
        [PROGRAM, "convert", "photos", out, "--config", project.config, *options],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    third = out / "photos-000002.tar"
    while not third.exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.kill()
    process.wait()
    whole = json.loads((out / ".convert.json").read_text())["shards"]
    assert 2 <= len(whole) < len(shards(project.data / "undisturbed")), "it was not in the middle"
    stamps = {path: path.stat() for path in sorted(out.glob("*.tar"))[: len(whole)]}
    for shard in stamps:
        with tarfile.open(shard) as archive:
            archive.getmembers()
    document = converted(project, *options)
    assert document["kept_shards"] == len(whole) and document["converted"] == 3000
    for path, before in stamps.items():
        now = path.stat()
        assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert shards(out) == shards(project.data / "undisturbed")
    assert section(out) == section(project.data / "undisturbed").replace("undisturbed", "shards")


def test_an_interrupted_conversion_says_how_to_go_on(project):
    project.pictures("pictures", 3000)
    project.pipeline("photos", GRAPH)
    out = project.data / "shards"
    process = subprocess.Popen(
        [PROGRAM, "convert", "photos", out, "--config", project.config, "--shard-bytes", "64KiB"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "photos-000000.tar").exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 1
    assert "interrupted" in told and "the same command continues" in told and "whole shard" in told
    assert not list(out.glob(".*.new"))
    assert converted(project, "--shard-bytes", "64KiB")["converted"] == 3000


def test_a_finished_conversion_is_not_done_again(photos):
    first = converted(photos)
    before = {path: path.stat().st_mtime_ns for path in (photos.data / "shards").glob("*.tar")}
    second = converted(photos)
    assert second["kept_shards"] == first["shards"] == 1
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_shard_that_is_missing_is_made_again(photos):
    converted(photos, "--shard-bytes", "64KiB")
    out = photos.data / "shards"
    before = shards(out)
    (out / "photos-000000.tar").write_bytes(b"cut")
    result = convert(photos, "--shard-bytes", "64KiB")
    assert result.status == 0 and "photos-000000.tar is not as it was written" in result.err
    assert shards(out) == before


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (["--shard-bytes", "1MiB"], "shard-bytes"),
        (["--shuffle", 3], "shuffle"),
        (["--resize-max", 100], "resize-max"),
        (["--jpeg", "baseline"], "jpeg"),
    ],
)
def test_other_options_than_the_folders_are_refused(photos, changes, word):
    converted(photos)
    before = shards(photos.data / "shards")
    result = convert(photos, *changes)
    assert result.status == 2
    assert word in result.err and "rm -r" in result.err and "another folder" in result.err
    assert shards(photos.data / "shards") == before


def test_another_dataset_than_the_folders_is_refused(photos):
    converted(photos)
    photos.pictures("pictures", 31)
    result = convert(photos)
    assert result.status == 2 and "rm -r" in result.err


@pytest.mark.parametrize(
    ("command", "options", "limit"),
    [
        ("convert", ["--jpeg", "baseline"], "max_scans"),
        ("convert", ["--resize-max", "100"], "max_decode_ms"),
        ("materialize", [], "max_sample_ms"),
    ],
)
def test_other_limits_of_what_is_left_out_are_refused(photos, command, options, limit):
    line = (command, "photos", photos.data / "shards", "--config", photos.config, *options)
    assert run(*line).status == 0
    photos.pipeline("photos", GRAPH, limits=f"{{{limit}: 12345}}")
    result = run(*line)
    assert result.status == 2 and f"{limit} = " in result.err and "12345" in result.err
    # Folders of earlier versions do not say it, and go on.
    journal = photos.data / "shards/.convert.json"
    document = json.loads(journal.read_text())
    del document["made_from"][limit]
    journal.write_text(json.dumps(document))
    assert run(*line).status == 0


def test_shards_without_a_journal_are_not_touched(photos):
    out = photos.data / "shards"
    out.mkdir()
    (out / "photos-000000.tar").write_bytes(b"somebody's")
    result = convert(photos)
    assert result.status == 2 and "photos-000000.tar" in result.err
    assert (out / "photos-000000.tar").read_bytes() == b"somebody's"


def test_bad_records_are_listed_and_counted(photos):
    files = sorted((photos.data / "pictures").rglob("*.png"))
    for number in (3, 29):
        os.truncate(files[number], 10)
    result = convert(photos, "--resize-max", "1000")
    assert result.status == 1, result
    assert "2 bad records left out" in result.err
    out = photos.data / "shards"
    lines = [json.loads(line) for line in (out / "bad_records.jsonl").read_text().splitlines()]
    assert [line["record"] for line in lines] == [3, 29]
    assert all(line["reason"] and line["path"].endswith(".png") for line in lines)
    assert list(records(out)) == [i for i in range(30) if i not in (3, 29)]
    assert convert(photos, "--resize-max", "1000", "--allow-bad", 1).status == 1
    document = converted(photos, "--resize-max", "1000", "--allow-bad", 2)
    assert document["bad"] == 2 and document["converted"] == 28
    assert document["bad_records"] == str(out / "bad_records.jsonl")


def test_images_that_must_be_decoded_and_cannot_be_are_bad(project):
    project.pictures("pictures", 12, bad=(4,))
    project.pipeline("photos", GRAPH)
    kept = converted(project, out="kept")
    assert kept["bad"] == 0  # its bytes are kept as they are
    result = convert(project, "--resize-max", 4)
    assert result.status == 1
    lines = (project.data / "shards/bad_records.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [4]
    assert "field 'data'" in lines[0]


def test_a_dataset_without_a_good_record_is_an_error(project):
    project.pictures("pictures", 3, bad=(0, 1, 2))
    project.pipeline("photos", GRAPH)
    result = convert(project, "--resize-max", 4)
    assert result.status == 1 and "no record" in result.err
    assert len((project.data / "shards/bad_records.jsonl").read_text().splitlines()) == 3


def test_a_record_that_nobody_could_read_from_the_shards_is_bad(project):
    size = 100 << 20
    with (project.data / "x.bin").open("wb") as sparse:
        sparse.truncate(size)
    fields = ", ".join(f"{name}: {{shape: [{size}]}}" for name in "abc")
    (project.pipelines / "large.yaml").write_text(
        f"version: 1\ndataset: {{format: raw, root: data, path: x.bin, record_bytes: {size}, "
        f"fields: {{{fields}}}}}\noutputs: [a, b, c]\nbatch: {{size: 1}}\n"
    )
    result = convert(project, pipeline="large")
    assert result.status == 1 and "no record" in result.err, result
    lines = (project.data / "shards/bad_records.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [0]
    assert "bytes in a shard, and a record has 256 MiB at most" in lines[0]


def test_many_or_odd_class_names_survive_in_a_file(project):
    folder = project.data / "pictures"
    names = sorted([f"class {number:05}" for number in range(1001)] + ["a: [b], {c}"])
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "0.png").write_bytes(png(pixels(0)))
    project.pipeline("photos", GRAPH)
    converted(project)
    out = project.data / "shards"
    assert "class_file: classes.txt" in section(out)
    assert (out / "classes.txt").read_text().splitlines() == names
    path = project.pipelines / "again.yaml"
    path.write_text(f"version: 1\n{section(out)}graph:\n{GRAPH}outputs: [image, label]\n")
    described = run("describe", "dataset", path, "--config", project.config, "--json")
    assert described.document["classes"] == names


@pytest.mark.parametrize("named", [[], ["-o"], ["--out"]])
def test_a_folder_outside_every_root_is_told_what_to_declare(photos, tmp_path, named):
    out = tmp_path / "elsewhere"
    result = run("convert", "photos", *named, out, "--config", photos.config)
    assert result.status == 0, result
    assert f"roots: {{photos: {out}}}" in result.err
    assert f"roots: {{photos: {out}}}" in section(out)
    assert "root: photos" in section(out)


def test_two_at_once_are_refused(project):
    project.pictures("pictures", 3000)
    project.pipeline("photos", GRAPH)
    out = project.data / "shards"
    process = subprocess.Popen(
        [PROGRAM, "convert", "photos", out, "--config", project.config, "--shard-bytes", "64KiB"],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    while not (out / "photos-000000.tar").exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.send_signal(signal.SIGSTOP)
    try:
        result = convert(project, "--shard-bytes", "64KiB")
        assert result.status == 1 and "another `feedwater convert`" in result.err
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_told_with_its_cure(project):
    project.pictures("pictures", 600)
    project.pipeline("photos", GRAPH)
    out = project.data / "shards"
    out.mkdir()
    script = (
        f"mount -t tmpfs -o size=300k none {out} || exit 77\n"
        f"{PROGRAM} convert photos {out} --config {project.config} --shard-bytes 100KiB\n"
        f"status=$?; ls {out}; exit $status"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=environment()
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert done.returncode == 1, done
    assert "No space left" in done.stderr and "free some space" in done.stderr
    assert "photos-000001.tar" in done.stdout


def test_the_bar_is_drawn_on_a_terminal_alone(photos):
    seen = run_on_terminal("convert", "photos", photos.data / "shards", "--config", photos.config)
    assert "\r\x1b[K" in seen and "of 30 records" in seen
    assert "30 records in 1 shard" in seen
    assert "\x1b" not in convert(photos, out="other").err


def test_wrong_options_are_status_2(photos):
    for arguments, word in [
        (["--shard-bytes", "12"], "--shard-bytes must be"),
        (["--shard-bytes", "many"], "--shard-bytes"),
        (["--quality", "0"], "--quality"),
        (["--resize-max", "0"], "--resize-max"),
        (["--jobs", "0"], "--jobs"),
    ]:
        result = convert(photos, *arguments)
        assert result.status == 2 and word in result.err, result
        assert not (photos.data / "shards").exists()


def test_the_webdataset_library_reads_the_shards(photos):
    webdataset = pytest.importorskip("webdataset")
    converted(photos, "--shard-bytes", "64KiB")
    out = photos.data / "shards"
    urls = [str(path) for path in sorted(out.glob("*.tar"))]
    assert len(urls) > 1
    seen = list(webdataset.WebDataset(urls, shardshuffle=False).decode())
    assert [sample["__key__"] for sample in seen] == [f"{i:08}" for i in range(30)]
    assert [sample["cls"] for sample in seen] == [label(i, 30) for i in range(30)]
    assert [sample["png"] for sample in seen] == [png(pixels(i)) for i in range(30)]
