"""`loader.dataset` tells where each record lies, and its label, as the daemon reads them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import feedwater
from feedwater.dataset import _PAGE

IMAGES = (
    "version: 1\ndataset: {format: image_folder, root: data, path: images}\n"
    "outputs: [sample_id]\nbatch: {size: 4}\ncache: {kind: none}\n"
)
CIFAR = IMAGES.replace("image_folder", "cifar10").replace("images", "cifar")


def write(daemon, names):
    for name in names:
        path = daemon.data / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not looked into")


def open_images(daemon, name="images"):
    return feedwater.Loader(name, address=daemon.address, output="numpy")


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    daemon.add_pipeline("images", IMAGES)
    daemon.add_pipeline("cifar", CIFAR)
    return daemon


def test_paths_and_labels_are_those_of_torchvision(daemon):
    names = ["ant/1.jpg", "ant/deep/er/0.png", "bee/Ä 7.jpg", "bee/a.jpg", "bee/b.jpg", "cow/1.bmp"]
    write(daemon, names)
    daemon.start()
    with open_images(daemon) as loader:
        dataset = loader.dataset
        assert dataset.class_to_idx == {"ant": 0, "bee": 1, "cow": 2}
        # As torchvision's ImageFolder lists them: by class, then by path, by bytes.
        wanted = sorted(names, key=os.fsencode)
        folder = os.path.realpath(daemon.data / "images")
        assert [(os.path.relpath(path, folder), label) for path, label in dataset.samples] == [
            (name, ["ant", "bee", "cow"].index(name[:3])) for name in wanted
        ]
        assert all(os.path.isfile(path) for path, _ in dataset)
        assert dataset.targets == [label for _, label in dataset]
        assert dataset[-1] == dataset.samples[5] == dataset.imgs[5] == dataset[5]
        assert dataset[1:3] == [dataset[1], dataset[2]]
        for wrong in (6, -7):
            with pytest.raises(IndexError, match="there are 6"):
                dataset[wrong]


def test_a_name_that_is_no_utf8_leads_to_its_file(daemon):
    write(daemon, [os.fsdecode(b"ant/\xe9t\xe9.jpg"), "ant/plain.jpg"])
    daemon.start()
    with open_images(daemon) as loader:
        assert all(os.path.isfile(path) for path, _ in loader.dataset.samples)


def test_a_dataset_of_several_pages(daemon):
    count = 2 * _PAGE + 3
    write(daemon, (f"{'ab'[i % 2]}/{i:06d}.jpg" for i in range(count)))
    daemon.start()
    with open_images(daemon) as loader:
        names = [os.path.basename(path) for path, _ in loader.dataset]
        evens, odds = ([f"{i:06d}.jpg" for i in range(n, count, 2)] for n in (0, 1))
        assert names == evens + odds
        assert loader.dataset.targets == [0] * len(evens) + [1] * len(odds)


def test_a_label_that_stands_in_the_record_is_none(daemon):
    folder = daemon.data / "cifar"
    folder.mkdir(parents=True)
    for part in range(1, 6):
        records = np.random.default_rng(part).integers(0, 10, (7, 3073), dtype=np.uint8)
        (folder / f"data_batch_{part}.bin").write_bytes(records.tobytes())
    daemon.start()
    with open_images(daemon, "cifar") as loader:
        assert len(loader.dataset) == 35
        path, label = loader.dataset[8]
        assert (os.path.basename(path), label) == ("data_batch_2.bin", None)


def test_after_the_loader_is_closed_the_daemon_knows_no_more(daemon):
    write(daemon, ["a/1.jpg", "a/2.jpg"])
    daemon.start()
    loader, kept = open_images(daemon), open_images(daemon)
    first = kept.dataset[0]
    loader.close()
    with pytest.raises(feedwater.NotFound, match=f"no job '{loader.job}'"):
        loader.dataset[0]
    kept.close()
    assert kept.dataset[1][0].endswith("a/2.jpg") and kept.dataset[0] == first, "its page is known"


def test_another_dataset_under_the_jobs_name_is_refused(daemon):
    write(daemon, ["a/1.jpg", "a/2.jpg"])
    daemon.start()
    loader = feedwater.Loader("images", address=daemon.address, output="numpy", job="mine")
    loader.close()
    write(daemon, ["a/3.jpg"])
    with feedwater.Loader("images", address=daemon.address, output="numpy", job="mine") as other:
        assert len(other.dataset.samples) == 3
        with pytest.raises(feedwater.FailedPrecondition, match="reads another dataset"):
            loader.dataset[0]
