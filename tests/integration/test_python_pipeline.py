"""Pipelines written in Python, with a real daemon: the same batches as of a file, errors that show
the line, and transforms of torchvision against torchvision itself where it is installed.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from daemon_process import BUILD
from op_parameters import OF_AUDIO, OF_OPEN_SIZE, OF_TEXT, needed
from pictures import write_folder

import feedwater
from feedwater import Pipeline, ops
from feedwater._pipeline_schema import BATCH_OPS, OPS

COUNT = 24
DATASET = {"format": "image_folder", "root": "data", "path": "pictures"}


@pytest.fixture
def daemon(make_daemon):
    """A daemon with 24 pictures of three classes."""
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", COUNT)
    daemon.start()
    return daemon


def pipeline(**changes) -> Pipeline:
    sections = {
        "dataset": DATASET,
        "sampler": {"shuffle": "full", "seed": 3},
        "graph": [
            ops.decode(),
            ops.random_resized_crop(8, scale=[0.5, 1.0]),
            ops.random_horizontal_flip(),
            ops.normalize([120.0], [60.0]),
        ],
        "batch": {"size": 6, "graph": [ops.mixup(alpha=0.4)]},
        "outputs": ["image", "label", "sample_id"],
    }
    return Pipeline(**{**sections, **changes})


def batches(daemon, source, **options):
    with feedwater.Loader(
        source, address=daemon.address, output="numpy", job=f"job-{id(source)}", **options
    ) as loader:
        return [[np.array(part) for part in batch] for batch in loader]


def test_a_pipeline_in_python_gives_the_batches_of_its_file(daemon, tmp_path):
    path = tmp_path / "train.yaml"
    pipeline().save(path)
    of_file, of_python = batches(daemon, path), batches(daemon, pipeline(name="mine"))
    assert len(of_file) == COUNT // 6
    for one, other in zip(of_file, of_python):
        for left, right in zip(one, other):
            np.testing.assert_array_equal(left, right)


def test_the_command_line_takes_the_file(daemon, tmp_path):
    path = tmp_path / "train.yaml"
    pipeline().save(path)
    done = subprocess.run(
        [BUILD / "bin/feedwater", "validate", path, "--config", daemon.config],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_every_op_with_its_needed_parameters_is_taken(daemon, tmp_path):
    for name, schema in {**OPS, **BATCH_OPS}.items():
        if name in OF_TEXT:
            continue
        op = getattr(ops, name)(**needed(name, schema))
        graph, of_batch = [ops.decode(), ops.center_crop(16)], []
        if name in BATCH_OPS:
            of_batch = [op]
        elif name in OF_AUDIO:
            graph += [ops.decode_audio(16000), ops.crop_audio(16000)]
            graph += [ops.mel_spectrogram(16000), op]
        elif name != "decode":
            graph += [op, ops.resize([8, 8])] if name in OF_OPEN_SIZE else [op]
        made = pipeline(graph=graph, batch={"size": 2, "graph": of_batch})
        made.save(tmp_path / f"{name}.yaml")
        done = subprocess.run(
            [BUILD / "bin/feedwater", "validate", tmp_path / f"{name}.yaml", "--config",
             daemon.config], capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{made.to_yaml()}{done.stderr}"


def test_an_error_of_the_daemon_shows_the_line(daemon):
    with pytest.raises(feedwater.InvalidArgument) as found:
        batches(daemon, pipeline(graph=[ops.decode(), ops.resize(8), {"no_such_op": {}}]))
    text = str(found.value)
    assert text.startswith("<Pipeline>:7:5: ") and "no_such_op" in text
    assert text.endswith("\n  7 |   - no_such_op: {}\n          ^"), text


def test_the_daemon_tells_pipelines_in_python_by_their_names(daemon):
    for made, name in ((pipeline(), "<Pipeline>"), (pipeline(name="my views"), "<my views>")):
        with feedwater.Loader(made, address=daemon.address, output="numpy") as loader:
            assert loader.pipeline == name
    with pytest.raises(
        feedwater.InvalidArgument, match=r"^<mine>:5:5: .*\n  5 \|   - no_such_op\n"
    ):
        batches(daemon, pipeline(graph=["no_such_op"], name="mine"))


def test_it_goes_on_after_a_restart_of_the_daemon(daemon):
    with feedwater.Loader(pipeline(), address=daemon.address, output="numpy") as loader:
        first = [np.array(loader.replay(step)[2]) for step in range(4)]
        steps = iter(loader)
        seen = [np.array(next(steps)[2])]
        daemon.kill()
        daemon.start()
        seen += [np.array(batch[2]) for batch in steps]
    np.testing.assert_array_equal(seen, first)


def test_an_error_without_a_place_is_as_it_was(daemon):
    with pytest.raises(feedwater.Error) as found:
        batches(daemon, pipeline(dataset={**DATASET, "path": "nowhere"}))
    assert "nowhere" in str(found.value)


def test_options_of_the_loader_hold(daemon):
    shapes = [batch[0].shape for batch in batches(daemon, pipeline(), batch_size=4, seed=9)]
    assert shapes == [(4, 3, 8, 8)] * 6


def test_the_transforms_of_torchvision_make_the_same_pixels(daemon):
    """Every picture through a Compose without chance, and through the pipeline made of it."""
    torchvision = pytest.importorskip("torchvision")
    torch = pytest.importorskip("torch")
    transforms, v2 = torchvision.transforms, pytest.importorskip("torchvision.transforms.v2")
    composes = [
        transforms.Compose(
            [
                transforms.Resize(24),
                transforms.CenterCrop(20),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        ),
        v2.Compose(
            [
                v2.Resize((24, 28), interpolation=v2.InterpolationMode.BICUBIC),
                v2.ToImage(),
                v2.CenterCrop(30),
                v2.RandomHorizontalFlip(p=1.0),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5], [0.25]),
            ]
        ),
        transforms.Compose(
            [transforms.Resize((9, 5), v2.InterpolationMode.NEAREST), transforms.PILToTensor()]
        ),
        transforms.Compose(
            [transforms.Resize(9, max_size=10), transforms.CenterCrop(12), transforms.PILToTensor()]
        ),
        v2.Compose([v2.Resize((9, 9)), v2.Grayscale(3), v2.PILToTensor()]),
        transforms.Compose(
            [
                transforms.Grayscale(),
                transforms.Resize((9, 9)),
                transforms.ToTensor(),
                transforms.Normalize([0.5], [0.25]),
            ]
        ),
        v2.Compose([v2.Grayscale(1), v2.Resize((9, 9)), v2.RGB(), v2.PILToTensor()]),
        transforms.Compose(
            [transforms.CenterCrop(8), transforms.ToTensor(), transforms.RandomVerticalFlip(1.0)]
        ),
    ]
    for compose in composes:
        folder = torchvision.datasets.ImageFolder(str(daemon.data / "pictures"), compose)
        made = feedwater.from_torchvision(compose, dataset=DATASET, batch_size=COUNT)
        (batch,) = batches(daemon, made)
        expected = np.stack([np.asarray(image) for image, _ in folder])
        assert batch[0].dtype == expected.dtype and batch[0].shape == expected.shape
        step = 1 if expected.dtype == np.uint8 else 1 / 255 / 0.22
        difference = np.abs(batch[0].astype(np.float64) - expected)
        assert difference.max() <= 1.01 * step, compose
        np.testing.assert_array_equal(batch[1], folder.targets)
