"""feedwater materialize: a graph's prefix done once, and a pipeline that gives the same samples."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import time

import numpy as np
import pytest
from command_line import PROGRAM, environment, run, run_on_terminal
from pictures import pixels, png, write_folder

import feedwater

DATASET = "dataset: {format: image_folder, root: data, path: pictures}\n"
# Before the first random op: decode, resize. Behind it: three that draw, each by its own number,
# and two that do not.
TRAIN = (
    "  - decode: {in: data, out: image}\n"
    "  - resize: {in: image, size: [20, 24]}\n"
    "  - random_crop: {in: image, size: [16, 16]}\n"
    "  - random_horizontal_flip: {in: image, p: 0.5}\n"
    "  - color_jitter: {in: image, brightness: 0.4, hue: 0.1}\n"
    "  - normalize: {in: image, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]}\n"
)


def pipeline(graph: str, dataset: str = DATASET, **keys: str) -> str:
    keys = {
        "sampler": "{shuffle: full, seed: 11, last: partial}",
        "batch": "{size: 8}",
        "outputs": "[image, label, sample_id, position, is_real]",
        **keys,
    }
    return (
        "version: 1\n"
        + dataset
        + (f"graph:\n{graph}" if graph else "")
        + "".join(f"{key}: {value}\n" for key, value in keys.items())
    )


def materialize(project, *arguments, out: str = "made", name: str = "train"):
    return run("materialize", name, project.data / out, "--config", project.config, *arguments)


def materialized(project, *arguments, **where) -> dict:
    result = materialize(project, *arguments, "--json", **where)
    assert result.status == 0, result
    return result.document


def epoch_digests(daemon, name: str, epochs: int = 2) -> list[str]:
    """Return a digest over every byte of each epoch, field by field and batch by batch."""
    digests = []
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        for _ in range(epochs):
            digest = hashlib.sha256()
            for batch in loader:
                for field, value in batch.items():
                    is_ragged = isinstance(value, feedwater.Ragged)
                    for array in (value.values, value.offsets) if is_ragged else (value,):
                        array = np.ascontiguousarray(array)
                        digest.update(f"{field} {array.dtype} {array.shape}".encode())
                        digest.update(array.tobytes())
            digests.append(digest.hexdigest())
    return digests


def check_same_samples(daemon, graph: str, *options, expect_status: int = 0, **keys) -> dict:
    """Materialize a pipeline, and compare two epochs of both with a real daemon."""
    daemon.add_pipeline("original", pipeline(graph, **keys))
    out = daemon.data / "made"
    done = run("materialize", "original", out, "--config", daemon.config, "--shard-bytes", "64KiB",
               "--verify", "--json", *options)  # fmt: skip
    assert done.status == expect_status, done
    daemon.add_pipeline("made", (out / "pipeline.yaml").read_text())
    if daemon.process is None:
        daemon.start()
    before = epoch_digests(daemon, "original")
    assert len(set(before)) == 2, "two epochs that are equal show nothing of the draws"
    assert epoch_digests(daemon, "made") == before
    return done.document


@pytest.fixture
def train(project):
    """A project with 30 pictures and a pipeline that trains on them."""
    project.pictures("pictures", 30)
    (project.pipelines / "train.yaml").write_text(pipeline(TRAIN))
    return project


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 60)
    return daemon


def test_both_pipelines_give_the_same_epochs(daemon):
    document = check_same_samples(daemon, TRAIN)
    assert document["ops"] == ["decode", "resize"]
    assert document["converted"] == document["compared"] == 60 and document["shards"] > 1
    text = (daemon.data / "made/pipeline.yaml").read_text()
    assert "decode" not in text.split("graph:")[1]
    assert "draws_as: 2" in text and "draws_as: 4" in text


def test_images_of_any_size_are_stored_as_they_are(daemon):
    graph = TRAIN.replace("  - resize: {in: image, size: [20, 24]}\n", "").replace(
        "random_crop: {in: image, size: [16, 16]}",
        "random_resized_crop: {in: image, size: [16, 16]}",
    )
    assert check_same_samples(daemon, graph)["ops"] == ["decode"]
    with tarfile.open(daemon.data / "made/original-000000.tar") as archive:
        first = np.load(io.BytesIO(archive.extractfile("00000000.image.npy").read()))
    np.testing.assert_array_equal(first, pixels(0))


def test_two_branches_and_names_that_are_written_again(daemon):
    # `image` is two stored values and two that are made later; `view` draws between them.
    graph = (
        "  - decode: {in: data, out: image}\n"
        "  - random_horizontal_flip: {in: image, out: view}\n"
        "  - resize: {in: image, size: [18, 18]}\n"
        "  - random_vertical_flip: {in: image, out: other}\n"
        "  - random_resized_crop: {in: view, out: view, size: [9, 9]}\n"
        "  - random_crop: {in: image, out: image, size: [8, 8]}\n"
        "  - one_hot: {in: label, out: label}\n"
    )
    outputs = "[image, view, other, label, sample_id]"
    assert check_same_samples(daemon, graph, outputs=outputs)["ops"] == ["decode", "resize"]


def test_rows_whose_number_differs_go_on(daemon):
    """Of every fourth record none; as they are, and filled up to a number."""
    lines = [
        {
            "file": f"pictures/{path.parent.name}/{path.name}",
            "boxes": [[number, i, 3 * i, 0.5] for i in range(number % 4)],
            "labels": [10 * number + i for i in range(number % 4)],
        }
        for number, path in enumerate(sorted((daemon.data / "pictures").rglob("*.png")))
    ]
    (daemon.data / "boxes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataset = (
        "dataset: {format: jsonl, root: data, path: boxes.jsonl, fields: {data: {from: file, "
        "file: true}, boxes: {from: boxes, dtype: float32}, labels: labels}}\n"
    )
    outputs = "[image, boxes, {labels: {pad_to: 4, pad_value: -1}}, sample_id]"
    document = check_same_samples(daemon, TRAIN, dataset=dataset, outputs=outputs)
    assert document["ops"] == ["decode", "resize"] and document["compared"] == 60
    with tarfile.open(daemon.data / "made/original-000000.tar") as archive:
        boxes = np.load(io.BytesIO(archive.extractfile("00000003.boxes.npy").read()))
    np.testing.assert_array_equal(boxes, np.array(lines[3]["boxes"], np.float32))


def test_batch_ops_go_on(daemon):
    batch = "{size: 6, graph: [{mixup: {in: [image, label], alpha: 0.4}}]}"
    graph = TRAIN + "  - one_hot: {in: label, out: label}\n"
    check_same_samples(daemon, graph, batch=batch, outputs="[image, label]")


def stripe(image, rng):
    """Change a batch by draws of its own."""
    image[:, rng.integers(image.shape[1])] = rng.integers(256, dtype=np.uint8)
    return image


@pytest.mark.parametrize("behind", ["", TRAIN[TRAIN.index("  - random_crop") :]])
def test_own_ops_on_batches_go_on_and_so_do_draws_behind_them(daemon, behind):
    """`batch: true` moves an op behind `graph:`, and mixup's draws are keyed by its place."""
    graph = (
        "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [16, 16]}\n"
        + behind.partition("  - normalize")[0]
        + "  - python: {name: stripe, in: image, out: image, random: true, batch: true}\n"
    )
    batch = "{size: 6, graph: [{mixup: {in: [image, label], alpha: 0.4}}]}"
    daemon.start()
    with feedwater.serve_op("stripe", stripe, workers=1, address=daemon.address):
        document = check_same_samples(daemon, graph, batch=batch, outputs="[image, label]")
    assert document["ops"] == ["decode", "resize"]
    text = (daemon.data / "made/pipeline.yaml").read_text()
    assert "python: {in: [image], out: [image], name: stripe" in text


def test_views_combinators_limits_and_rules_go_on(daemon):
    graph = (
        "  - decode: {in: data, out: image}\n  - resize: {in: image, size: [20, 24]}\n"
        '  - random_resized_crop: {in: image, out: "view_{0..3}", size: [12, 12]}\n'
        '  - random_horizontal_flip: {in: "view_{0..3}", draws_as: 40}\n'
        "  - one_of: {in: [view_1], ops: [{random_invert: {p: 0.5}}, random_grayscale]}\n"
        "  - apply: {in: [view_2], p: 0.5, ops: [{color_jitter: {brightness: 0.4}}]}\n"
        "  - normalize: {in: view_3, mean: [120], std: [60]}\n"
    )
    check_same_samples(
        daemon, graph,
        outputs="[\"view_{0..3}\", label, sample_id, is_real, position]",
        sampler="{shuffle: full, seed: 5, last: pad}",
        batch="{size: 8, graph: [{cutmix: {in: [view_0, label], out: [view_0, soft]}}]}",
        limits="{max_pixels: 100000, max_decode_ms: 5000, max_sample_ms: 20000}",
        cache="{kind: decoded, ram: 16MiB}",
        on_bad_sample="skip_with_count", max_bad_fraction="0.5",
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["substitute", "skip_with_count"])
def test_bad_records_stay_bad_and_are_replaced_alike(daemon, policy):
    files = sorted((daemon.data / "pictures").rglob("*.png"))
    for number in (5, 6, 41):
        os.truncate(files[number], 40)
    keys = {"on_bad_sample": policy, "max_bad_fraction": "1"}
    document = check_same_samples(daemon, TRAIN, "--allow-bad", 3, **keys)
    assert document["bad"] == 3 and document["converted"] == 57 and document["records"] == 60
    lines = (daemon.data / "made/bad_records.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == [5, 6, 41]
    assert run("materialize", "original", daemon.data / "made", "--config", daemon.config,
               "--shard-bytes", "64KiB").status == 1  # fmt: skip


def test_shuffle_block_keeps_the_datasets_shards(make_daemon):
    daemon = make_daemon()
    folder = daemon.data / "shards"
    folder.mkdir()
    for shard in range(4):
        with tarfile.open(folder / f"s-{shard}.tar", "w") as archive:
            for number in range(shard * 10, shard * 10 + 5 + shard):
                path = daemon.folder / "one.png"
                path.write_bytes(png(pixels(number)))
                archive.add(path, f"{number:04}.png")
    dataset = "dataset: {format: webdataset, root: data, path: shards}\n"
    document = check_same_samples(
        daemon, TRAIN, dataset=dataset, outputs="[image, sample_id]",
        sampler="{shuffle: block, block_records: 8, seed: 3}",
    )  # fmt: skip
    assert document["shards"] == 4


@pytest.mark.parametrize("shard_bytes, is_one", [("1GiB", True), ("64KiB", False)])
def test_shuffle_block_without_shards_says_that_the_order_is_another(train, shard_bytes, is_one):
    (train.pipelines / "train.yaml").write_text(
        pipeline(TRAIN, sampler="{shuffle: block, block_records: 8}")
    )
    done = materialize(train, "--shard-bytes", shard_bytes, "--json")
    assert done.status == 0 and (done.document["shards"] == 1) == is_one
    assert "another order" in done.err
    assert ("smaller --shard-bytes" in done.err) == is_one


def test_a_first_op_that_is_random_is_refused_by_name(project):
    project.pictures("pictures", 3)
    for graph, outputs, word in [
        ("  - random_crop: {in: image, size: [4, 4]}\n", "[image]", "random_crop"),
        ("  - normalize: {in: image, mean: [0], std: [1]}\n", "[image]", "same numbers"),
    ]:
        np.save(project.data / "x.npy", np.zeros((4, 8, 8, 1), np.uint8))
        dataset = "dataset: {format: npy, root: data, fields: {image: x.npy}}\n"
        (project.pipelines / "train.yaml").write_text(pipeline(graph, dataset, outputs=outputs))
        result = materialize(project)
        assert result.status == 2, result
        assert word in result.err and "train.yaml:" in result.err and "convert" in result.err
        assert not (project.data / "made").exists()


def test_a_killed_run_goes_on_behind_its_whole_shards(project):
    project.pictures("pictures", 1500)
    (project.pipelines / "train.yaml").write_text(pipeline(TRAIN))
    options = ("--shard-bytes", "64KiB")
    materialized(project, *options, out="undisturbed")
    out = project.data / "made"
    process = subprocess.Popen(
        [PROGRAM, "materialize", "train", out, "--config", project.config, *options],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    while not (out / "train-000002.tar").exists():
        assert process.poll() is None
        time.sleep(0.0005)
    process.kill()
    process.wait()
    whole = json.loads((out / ".convert.json").read_text())["shards"]
    assert 2 <= len(whole) < len(list((project.data / "undisturbed").glob("*.tar")))
    assert not (out / "pipeline.yaml").exists()
    stamps = {path: path.stat() for path in sorted(out.glob("*.tar"))[: len(whole)]}
    document = materialized(project, *options, "--verify")
    assert document["kept_shards"] == len(whole) and document["compared"] == 1500
    for path, before in stamps.items():
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    for path in sorted((project.data / "undisturbed").glob("*.tar")):
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_the_number_of_threads_changes_no_byte(train):
    made = []
    for jobs in (1, 5):
        materialized(train, "--jobs", jobs, "--shard-bytes", "64KiB", out=f"with-{jobs}")
        made.append(
            [path.read_bytes() for path in sorted((train.data / f"with-{jobs}").glob("*.tar"))]
        )
    assert made[0] == made[1]


def test_another_graph_or_command_is_refused_in_the_same_folder(train):
    materialized(train)
    (train.pipelines / "train.yaml").write_text(pipeline(TRAIN.replace("[20, 24]", "[20, 26]")))
    result = materialize(train)
    assert result.status == 2 and "rm -r" in result.err
    result = run("convert", "train", train.data / "made", "--config", train.config)
    assert result.status == 2 and "rm -r" in result.err
    # What stands behind the first random op may change: the shards are the same.
    (train.pipelines / "train.yaml").write_text(pipeline(TRAIN.replace("p: 0.5", "p: 0.25")))
    assert materialized(train)["kept_shards"] == 1
    assert "p: 0.25" in (train.data / "made/pipeline.yaml").read_text()


def test_a_rest_that_cannot_read_what_is_stored_is_refused_before_anything_is_written(project):
    """A spectrogram of one channel looks like an image in a shard, and no op on it takes one."""
    (project.data / "sounds").mkdir()
    np.save(project.data / "sounds/x.npy", np.ones((3, 1, 4000), np.float32))
    dataset = "dataset: {format: npy, root: data, path: sounds, fields: {audio: x.npy}}\n"
    graph = (
        "  - mel_spectrogram: {sample_rate: 16000, n_mels: 20}\n"
        "  - time_masking: {time_mask_param: 4}\n"
    )
    (project.pipelines / "train.yaml").write_text(pipeline(graph, dataset, outputs="[mel]"))
    result = materialize(project)
    assert result.status == 2, result
    assert "time_masking" in result.err and "kind: decoded" in result.err
    assert not (project.data / "made").exists()


def test_a_mix_is_refused(project):
    project.pictures("pictures", 4)
    one = "{format: image_folder, root: data, path: pictures, weight: 1}"
    (project.pipelines / "train.yaml").write_text(
        pipeline(TRAIN, f"dataset: {{mix: [{one}, {one}], stop: all}}\n")
    )
    result = materialize(project)
    assert result.status == 2 and "mix" in result.err


def test_the_bar_is_drawn_on_a_terminal_alone(train):
    seen = run_on_terminal("materialize", "train", train.data / "made", "--config", train.config)
    assert "\r\x1b[K" in seen and "decode, resize once for each of 30 records" in seen
    result = materialize(train, out="other")
    assert "\x1b" not in result.err and "go on with" in result.err


def test_processes_of_their_own_make_the_same_bytes(train):
    files = sorted((train.data / "pictures").rglob("*.png"))
    os.truncate(files[4], 40)
    made = []
    for isolation in ("none", "process"):
        text = train.config.read_text().partition("isolation:")[0]
        train.config.write_text(text + f"isolation: {isolation}\n")
        document = materialized(train, "--allow-bad", 1, out=isolation)
        assert document["bad"] == 1
        made.append((train.data / isolation / "train-000000.tar").read_bytes())
    assert made[0] == made[1]
