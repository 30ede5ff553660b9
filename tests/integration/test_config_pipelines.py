"""Every file of config/pipelines through a real daemon: shapes, labels and pixels of an epoch."""

from __future__ import annotations

import io
import json
import re
import shutil
import struct
import wave

import numpy as np
import pytest
from daemon_process import ROOT
from pictures import label, png, write_folder

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


def write_speech_commands(folder) -> tuple[list[np.ndarray], list[str]]:
    """Write WAV files of half a second to a second in folders of words, and train.csv."""
    folder.mkdir()
    random = np.random.Generator(np.random.PCG64(3))
    words, lines, waveforms = ["no", "on", "yes"], ["path,word"], []
    for number in range(RECORDS):
        word = words[number % 3]
        frames = int(random.integers(8000, 16001))
        hz = 200 + 300 * (number % 3) + 10 * number
        tone = np.sin(2 * np.pi * hz * np.arange(frames) / 16000)
        samples = (8000 * tone + random.normal(0, 300, frames)).astype("<i2")
        (folder / word).mkdir(exist_ok=True)
        data = io.BytesIO()
        with wave.open(data, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes(samples.tobytes())
        (folder / word / f"{number}.wav").write_bytes(data.getvalue())
        lines.append(f"{word}/{number}.wav,{word}")
        waveforms.append(samples.astype(np.float32) / 32768)
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    return waveforms, words


def write_scenes(folder) -> None:
    """Write grey images with a light rectangle each, its mask and its box; the last has none."""
    for name in ("img", "mask"):
        (folder / name).mkdir(parents=True)
    random = np.random.Generator(np.random.PCG64(4))
    lines = []
    for number in range(RECORDS):
        mask = np.zeros((80, 100), dtype=np.uint8)
        left, top = (int(n) for n in random.integers(0, 40, 2))
        right, bottom = left + int(random.integers(20, 60)), top + int(random.integers(20, 40))
        has_box = number + 1 < RECORDS
        mask[top:bottom, left:right] = (1 + number % 20) * has_box
        image = np.where(mask[..., None] > 0, (200, 210, 220), (40, 50, 60)).astype(np.uint8)
        (folder / f"img/{number}.png").write_bytes(png(image))
        (folder / f"mask/{number}.png").write_bytes(png(mask))
        boxes = [[left, top, right, bottom]] * has_box
        line = {"image": f"img/{number}.png", "mask": f"mask/{number}.png", "boxes": boxes}
        lines.append(json.dumps({**line, "labels": [1 + number % 20] * has_box}) + "\n")
    (folder / "train.jsonl").write_text("".join(lines))


def write_text(folder) -> None:
    """Write texts with classes, and the tokenizers that the files name."""
    shutil.copytree(ROOT / "tests/text/tokenizers", folder / "tokenizers")
    words = "<pad>\n<unk>\nwater\nboiler\n"
    (folder / "tokenizers/words.txt").write_text(words)
    (folder / "text/train").mkdir(parents=True)
    rows = [f"water boiler {'tank ' * (n % 7)},{n % 3}" for n in range(64)]
    (folder / "text/train/texts.csv").write_text("text,label\n" + "\n".join(rows) + "\n")


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
    daemon.speech_commands = write_speech_commands(folder / "speech_commands")
    write_scenes(folder / "scenes")
    write_text(folder)
    names = ("imagenet", "cifar10", "mnist", "speech_commands", "scenes", "text", "tokenizers")
    roots = ", ".join(f"{name}: {folder / name}" for name in names)
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
        return [{key: copied(value) for key, value in batch.items()} for batch in loader]


def copied(value):
    """Return a copy of an array, or of the rows of each sample."""
    return [row.copy() for row in value] if isinstance(value, feedwater.Ragged) else value.copy()


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
    pictures = {"imagenet-train", "imagenet-val", "simclr", "dino", "cifar10", "mnist"}
    texts = {"text-bert", "text-pack", "text-sentencepiece", "text-words"}
    assert names == pictures | texts | {"segmentation", "speech-commands"}


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


def test_dino_gives_ten_different_views_of_the_same_image(served, tmp_path):
    batches = epoch(served, "dino")
    views = [joined(batches, f"view_{i}") for i in range(10)]
    assert [view.shape[1:] for view in views] == [(3, 224, 224)] * 2 + [(3, 96, 96)] * 8
    assert all(view.dtype == np.float32 for view in views)
    assert len({view.tobytes() for view in views[2:]}) == 8, "each view draws for itself"
    records = order(served, tmp_path, "dino")
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


def test_segmentation_moves_images_masks_and_boxes_together(served):
    seen = []
    for batch in epoch(served, "segmentation"):
        assert batch["image"].shape[1:] == (3, 512, 512) and batch["image"].dtype == np.float32
        assert batch["mask"].shape[1:] == (512, 512, 1) and batch["mask"].dtype == np.uint8
        for image, mask, boxes, labels in zip(*(batch[name] for name in batch)):
            grey, mask = image[0] * 58.395 + 123.675, mask[..., 0]
            assert len(boxes) == len(labels) <= 1
            assert np.mean((grey > 120) != (mask > 0)) < 0.05, "but for the rectangle's edges"
            seen.extend(labels.tolist())
            if len(boxes) == 0:
                continue
            assert set(np.unique(mask)) <= {0, labels[0]}, "no class that was not there"
            rows, columns = np.nonzero(mask)
            around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert np.abs(boxes[0] - around).max() < 16, "within a pixel of the image, enlarged"
    assert len(seen) > RECORDS / 2 and len(set(seen)) > 10


def log_mel(waveform: np.ndarray) -> np.ndarray:
    """Return what the graph of speech-commands.yaml makes before its masks, by the formulas."""
    padded = np.pad(waveform.astype(np.float64), 200, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160]
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hz = np.linspace(0, 8000, 201)
    up = (hz[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    down = (edges[2:] - hz[:, None]) / np.diff(edges)[1:]
    decibels = 10 * np.log10(np.maximum(power @ np.maximum(0, np.minimum(up, down)), 1e-10)).T
    return np.maximum(decibels, decibels.max() - 80)


def test_speech_commands_are_spectrograms_with_masks(served, tmp_path):
    batches = epoch(served, "speech-commands")
    mel = joined(batches, "mel")
    assert mel.shape == (RECORDS, 40, 101) and mel.dtype == np.float32
    records = order(served, tmp_path, "speech-commands")
    assert records.tolist() != list(range(RECORDS)), "shuffled"
    assert joined(batches, "label").tolist() == [int(n) % 3 for n in records]
    assert np.array_equal(mel, joined(epoch(served, "speech-commands"), "mel"))
    # A masked frame has one number in all bands.
    masked = sum(bool((row == row[0]).all(axis=0).any()) for row in mel)
    assert masked > RECORDS / 2


def test_speech_commands_without_what_is_random_are_their_waveforms_spectrograms(served, tmp_path):
    text = (ROOT / "config/pipelines/speech-commands.yaml").read_text()
    text, crops = re.subn("random_crop_audio", "crop_audio", text)
    text, masks = re.subn(r"^  - spec_augment.*\n", "", text, flags=re.M)
    text, outputs = re.subn(r"\[mel, label\]", "[mel, audio, sample_id]", text)
    assert (crops, masks, outputs) == (1, 1, 1)
    file = tmp_path / "plain.yaml"
    file.write_text(text)
    batches = epoch(served, str(file))
    waveforms, _ = served.speech_commands
    for mel, audio, number in zip(*(joined(batches, f) for f in ("mel", "audio", "sample_id"))):
        waveform = waveforms[number]
        expected = np.pad(waveform, (0, 16000 - len(waveform)))
        assert np.array_equal(audio, expected), "16 bits come out as they were written"
        # Where the window holds nothing but rounding, decibels are far apart.
        right = log_mel(expected)
        loud = right > right.max() - 70
        assert np.abs(mel - right)[loud].max() < 1e-2, f"record {number}"


def test_text_pack_gives_windows_with_each_text_once(served):
    (batch,) = epoch(served, "text-pack", batch_size=64)
    windows, segments, positions = (
        batch[key].reshape(-1, 2048) for key in ("tokens", "segment_ids", "positions")
    )
    assert windows.shape == (8, 2048) and windows.dtype == np.int32
    assert batch["packed"].all()
    assert ((segments > 0) & (positions == 0)).sum() == 64, "the texts"
    first = segments[0]
    assert (np.diff(first[first > 0]) >= 0).all() and first.max() > 8
    assert not segments[-1].any(), "short texts fill the first windows"


def test_text_bert_puts_each_text_between_its_tokens(served):
    batches = epoch(served, "text-bert", batch_size=32)
    tokens, mask = joined(batches, "tokens"), joined(batches, "mask")
    assert tokens.shape == mask.shape == (64, 128) and mask.dtype == bool
    assert (tokens[:, 0] == 2).all() and (tokens[~mask] == 0).all()
    ends = tokens[np.arange(64), mask.sum(1) - 1]
    assert (ends == 3).all()


def test_text_sentencepiece_is_ragged_and_ends_each_text(served):
    batches = epoch(served, "text-sentencepiece", batch_size=32)
    rows = [row for batch in batches for row in batch["tokens"]]
    assert len(rows) == 64 and len({len(row) for row in rows}) == 7
    assert all(row[-1] == 2 for row in rows), "</s>"


def test_text_words_knows_the_words_of_its_list(served):
    tokens = joined(epoch(served, "text-words", batch_size=32), "tokens")
    assert tokens.shape == (64, 64)
    assert (tokens[:, :2] == [2, 3]).all() and set(np.unique(tokens)) == {0, 1, 2, 3}
