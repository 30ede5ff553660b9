"""Every file of config/pipelines through a real daemon: shapes, labels and pixels of an epoch."""

from __future__ import annotations

import re
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
    """Return the batches of epoch 0 as copies; `name` may be a file."""
    with feedwater.Loader(
        name, batch_size=batch_size, address=served.address, output="numpy", as_dict=True
    ) as loader:
        return [{key: value.copy() for key, value in batch.items()} for batch in loader]


def joined(batches: list[dict], field: str) -> np.ndarray:
    return np.concatenate([batch[field] for batch in batches])


def order(served, tmp_path, name: str) -> np.ndarray:
    """Return the records' numbers in the order of epoch 0: the file's own, with more outputs.

    Every record stands in it once, and the labels are those that the file itself delivers.
    """
    text = (ROOT / f"config/pipelines/{name}.yaml").read_text()
    text, changed = re.subn(
        r"^outputs: \[(.*)\]$", r"outputs: [\1, sample_id, position]", text, flags=re.M
    )
    assert changed == 1
    file = tmp_path / f"{name}.yaml"
    file.write_text(text)
    batches = epoch(served, str(file))
    records = joined(batches, "sample_id")
    assert sorted(records.tolist()) == list(range(RECORDS))
    assert joined(batches, "position").tolist() == list(range(RECORDS))
    assert np.array_equal(joined(batches, "label"), joined(epoch(served, name), "label"))
    return records


def test_no_file_is_without_a_test():
    names = {path.stem for path in (ROOT / "config/pipelines").glob("*.yaml")}
    assert names == {"imagenet-train", "imagenet-val", "simclr", "cifar10", "mnist"}


def test_imagenet_train(served, tmp_path):
    batches = epoch(served, "imagenet-train")
    image = joined(batches, "image")
    assert image.shape == (RECORDS, 3, 224, 224) and image.dtype == np.float32
    assert -2.2 < image.min() < -1 and 1 < image.max() < 2.7, "normalised"
    records = order(served, tmp_path, "imagenet-train")
    assert records.tolist() != list(range(RECORDS)), "shuffled"
    assert joined(batches, "label").tolist() == [label(n, RECORDS) for n in records]
    again = joined(epoch(served, "imagenet-train"), "image")
    assert np.array_equal(image, again), "the seed stands in the file"


def test_imagenet_val_has_every_image_once_and_in_order(served, tmp_path):
    batches = epoch(served, "imagenet-val", batch_size=10)
    assert [len(batch["label"]) for batch in batches] == [10, 10, 10, 6]
    assert joined(batches, "label").tolist() == [label(n, RECORDS) for n in range(RECORDS)]
    assert joined(batches, "is_real").all()
    image = joined(batches, "image")
    assert image.shape == (RECORDS, 3, 224, 224) and image.dtype == np.float32
    assert order(served, tmp_path, "imagenet-val").tolist() == list(range(RECORDS))


def test_simclr_gives_two_different_views_of_the_same_image(served, tmp_path):
    batches = epoch(served, "simclr")
    first, second = joined(batches, "view_a"), joined(batches, "view_b")
    assert first.shape == second.shape == (RECORDS, 3, 224, 224)
    assert first.dtype == second.dtype == np.float32
    assert all(not np.array_equal(a, b) for a, b in zip(first, second))
    records = order(served, tmp_path, "simclr")
    assert joined(batches, "label").tolist() == [label(n, RECORDS) for n in records]


def test_cifar10_is_its_pictures_shifted_or_mirrored(served, tmp_path):
    batches = epoch(served, "cifar10")
    image, labels = joined(batches, "image"), joined(batches, "label")
    assert image.shape == (RECORDS, 3, 32, 32) and image.dtype == np.float32
    pictures, expected = served.cifar10
    records = order(served, tmp_path, "cifar10")
    assert records.tolist() != list(range(RECORDS)), "shuffled"
    assert labels.tolist() == expected[records].tolist()
    mean = np.array([125.3, 123.0, 113.9], np.float32)[:, None, None]
    std = np.array([63.0, 62.1, 66.7], np.float32)[:, None, None]
    seen = set()
    for row, number in zip(image, records):
        raw = np.rint(row * std + mean).astype(np.uint8)
        padded = np.pad(pictures[number], ((0, 0), (4, 4), (4, 4)))
        found = [
            (y, x, mirrored)
            for y in range(9)
            for x in range(9)
            for mirrored in (False, True)
            if np.array_equal(
                raw[:, :, ::-1] if mirrored else raw, padded[:, y : y + 32, x : x + 32]
            )
        ]
        assert len(found) == 1, f"record {number}"
        seen.add(found[0])
    assert len(seen) > 10 and {mirrored for _, _, mirrored in seen} == {False, True}


def test_mnist_is_its_pictures_normalised(served, tmp_path):
    batches = epoch(served, "mnist")
    image, labels = joined(batches, "image"), joined(batches, "label")
    pictures, expected = served.mnist
    assert image.shape == (RECORDS, 1, 28, 28) and image.dtype == np.float32
    records = order(served, tmp_path, "mnist")
    assert records.tolist() != list(range(RECORDS)), "shuffled"
    assert labels.tolist() == expected[records].tolist()
    raw = np.rint(image * np.float32(78.5675) + np.float32(33.3184)).astype(np.uint8)
    assert np.array_equal(raw[:, 0], pictures[records])
