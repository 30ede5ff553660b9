"""Every file of config/pipelines through a real daemon: shapes, labels and pixels of an epoch."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from daemon_process import ROOT
from pictures import label, write_folder

import feedwater

RECORDS = 36


def images(seed: int, *shape: int) -> np.ndarray:
    """Return pictures that follow from the seed."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, shape, dtype=np.uint8)


def write_cifar10(folder) -> tuple[np.ndarray, np.ndarray]:
    """Write a training set in CIFAR-10's binary format; return its pictures (NCHW) and labels."""
    folder.mkdir()
    pictures, labels = images(1, RECORDS, 3, 32, 32), np.arange(RECORDS, dtype=np.uint8) % 10
    records = np.concatenate([labels[:, None], pictures.reshape(RECORDS, -1)], axis=1)
    for part, chunk in enumerate(np.array_split(records, 5), 1):
        (folder / f"data_batch_{part}.bin").write_bytes(chunk.tobytes())
    names = [f"class {number}" for number in range(10)]
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n")
    return pictures, labels


def write_mnist(folder) -> tuple[np.ndarray, np.ndarray]:
    """Write a training set in idx files; return its pictures (NHW) and labels."""
    folder.mkdir()
    pictures, labels = images(2, RECORDS, 28, 28), np.arange(RECORDS, dtype=np.uint8) % 10
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, RECORDS, 28, 28) + pictures.tobytes()
    )
    (folder / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">II", 0x801, RECORDS) + labels.tobytes()
    )
    return pictures, labels


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A daemon with the files of config/pipelines as they are, and data for their roots."""
    from daemon_process import DAEMON, DaemonProcess

    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built")
    folder = tmp_path_factory.mktemp("p")
    for split in ("train", "val"):
        write_folder(folder / "imagenet" / split, RECORDS)
    daemon = DaemonProcess(folder / "d")
    daemon.cifar10 = write_cifar10(folder / "cifar10")
    daemon.mnist = write_mnist(folder / "mnist")
    roots = ", ".join(f"{name}: {folder / name}" for name in ("imagenet", "cifar10", "mnist"))
    text = daemon.config.read_text()
    text = text.replace(f"roots: {{data: {daemon.data}}}", f"roots: {{{roots}}}")
    text = text.replace(f"[{daemon.pipelines}]", f"[{ROOT / 'config/pipelines'}]")
    daemon.config.write_text(text)
    daemon.start()
    yield daemon
    assert daemon.stop() == 0


def epoch(served, name: str, batch_size: int = 6) -> list[dict]:
    """Return the batches of epoch 0 as copies."""
    with feedwater.Loader(
        name, batch_size=batch_size, address=served.address, output="numpy", as_dict=True
    ) as loader:
        return [{key: value.copy() for key, value in batch.items()} for batch in loader]


def joined(batches: list[dict], field: str) -> np.ndarray:
    return np.concatenate([batch[field] for batch in batches])


def test_no_file_is_without_a_test():
    names = {path.stem for path in (ROOT / "config/pipelines").glob("*.yaml")}
    assert names == {"imagenet-train", "imagenet-val", "simclr", "cifar10", "mnist"}


def test_imagenet_train(served):
    batches = epoch(served, "imagenet-train")
    image = joined(batches, "image")
    assert image.shape == (RECORDS, 3, 224, 224) and image.dtype == np.float32
    assert -2.2 < image.min() < -1 and 1 < image.max() < 2.7, "normalised"
    expected = sorted(label(number, RECORDS) for number in range(RECORDS))
    assert sorted(joined(batches, "label").tolist()) == expected
    again = joined(epoch(served, "imagenet-train"), "image")
    assert np.array_equal(image, again), "the seed stands in the file"


def test_imagenet_val_has_every_image_once_and_in_order(served):
    batches = epoch(served, "imagenet-val", batch_size=10)
    assert [len(batch["label"]) for batch in batches] == [10, 10, 10, 6]
    assert joined(batches, "label").tolist() == [label(n, RECORDS) for n in range(RECORDS)]
    assert joined(batches, "is_real").all()
    assert joined(batches, "image").shape == (RECORDS, 3, 224, 224)


def test_simclr_gives_two_different_views_of_the_same_image(served):
    batches = epoch(served, "simclr")
    first, second = joined(batches, "view_a"), joined(batches, "view_b")
    assert first.shape == second.shape == (RECORDS, 3, 224, 224)
    assert all(not np.array_equal(a, b) for a, b in zip(first, second))


def test_cifar10(served):
    batches = epoch(served, "cifar10")
    image, labels = joined(batches, "image"), joined(batches, "label")
    assert image.shape == (RECORDS, 3, 32, 32) and image.dtype == np.float32
    assert sorted(labels.tolist()) == sorted(served.cifar10[1].tolist())


def test_mnist_is_its_pictures_normalised(served):
    batches = epoch(served, "mnist")
    image, labels = joined(batches, "image"), joined(batches, "label")
    pictures, expected = served.mnist
    found = {tuple(row.ravel()[:40]): number for number, row in enumerate(pictures)}
    assert image.shape == (RECORDS, 1, 28, 28)
    for row, its_label in zip(image, labels):
        raw = np.rint(row * np.float32(78.5675) + np.float32(33.3184)).astype(np.uint8)
        number = found[tuple(raw.ravel()[:40])]
        assert np.array_equal(raw[0], pictures[number])
        assert its_label == expected[number]
