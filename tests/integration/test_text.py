"""Text to ids through a real daemon: what a loader gets, in this process and in decoders; and a
vocabulary that changes, which must not go unnoticed.
"""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from daemon_process import ROOT

import feedwater

TOKENIZERS = ROOT / "tests/text/tokenizers"
TEXTS = [f"the {word} feeds boiler {n}! " * (n % 5 + 1) for n, word in enumerate(["water"] * 40)]


def write_texts(folder, texts: list[str] = TEXTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "texts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([text, n % 3] for n, text in enumerate(texts))


@pytest.fixture
def daemon(make_daemon):
    """A daemon with texts and the tests' tokenizers below its root."""
    daemon = make_daemon()
    write_texts(daemon.data / "texts")
    shutil.copytree(TOKENIZERS, daemon.data / "tokenizers")
    return daemon


def pipeline(
    tokenizer: str = "tokenizers/gpt2.json", more: str = "", batch: str = "size: 8"
) -> str:
    return f"""version: 1
dataset: {{format: csv, root: data, path: texts, fields: {{text: {{from: text}}}}}}
sampler: {{shuffle: none, last: partial}}
graph:
  - tokenize: {{tokenizer: {tokenizer}, max_length: 64, pad_token: "<|endoftext|>"{more}}}
batch: {{{batch}}}
outputs: [tokens, mask]
"""


def epoch(daemon, path, **options) -> list[dict]:
    with feedwater.Loader(
        str(path), address=daemon.address, output="numpy", as_dict=True, **options
    ) as loader:
        return [{key: value.copy() for key, value in batch.items()} for batch in loader]


def joined(batches: list[dict], field: str) -> np.ndarray:
    return np.concatenate([batch[field] for batch in batches])


def write(daemon, text: str):
    path = daemon.data / "text.yaml"
    path.write_text(text)
    return path


def with_fewer_merges(file, count: int) -> None:
    """Make another vocabulary of the file, in its place."""
    document = json.loads(file.read_text())
    document["model"]["merges"] = document["model"]["merges"][:count]
    file.write_text(json.dumps(document))


def test_decoders_give_the_ids_of_the_daemon(make_daemon):
    ids = {}
    for isolation in ("none", "process"):
        daemon = make_daemon(config=f"isolation: {isolation}\n")
        write_texts(daemon.data / "texts")
        shutil.copytree(TOKENIZERS, daemon.data / "tokenizers")
        daemon.start()
        ids[isolation] = epoch(daemon, write(daemon, pipeline()))
    for one, other in zip(ids["none"], ids["process"], strict=True):
        np.testing.assert_array_equal(one["tokens"], other["tokens"])
        np.testing.assert_array_equal(one["mask"], other["mask"])


def test_a_decoder_has_the_memory_that_a_long_text_takes(make_daemon):
    """Byte pair encoding takes many times the text's bytes, more than ordinary samples have."""
    text = pipeline(more=", truncation: right")
    ids = {}
    for isolation in ("none", "process"):
        daemon = make_daemon(config=f"isolation: {isolation}\nmemory: 2GiB\n")
        write_texts(daemon.data / "texts", [*TEXTS[:8], "the water feeds the boiler " * 30000])
        shutil.copytree(TOKENIZERS, daemon.data / "tokenizers")
        daemon.start()
        ids[isolation] = joined(epoch(daemon, write(daemon, text)), "tokens")
    np.testing.assert_array_equal(ids["none"], ids["process"])


def test_a_named_pipelines_vocabulary_may_come_after_the_start(daemon):
    """A start reads no file of an op: who opens the pipeline is told, with the place."""
    (daemon.data / "tokenizers/gpt2.json").unlink()
    (daemon.pipelines / "text.yaml").write_text(pipeline())
    daemon.start()
    with pytest.raises(feedwater.Error) as found:
        epoch(daemon, "text")
    assert "'tokenizer'" in str(found.value) and "text.yaml:5:" in str(found.value)
    shutil.copy(TOKENIZERS / "gpt2.json", daemon.data / "tokenizers/gpt2.json")
    assert len(joined(epoch(daemon, "text"), "tokens")) == len(TEXTS)


def test_another_vocabulary_is_another_pipeline(daemon):
    daemon.start()
    path = write(daemon, pipeline(more=", truncation: right"))
    with feedwater.Loader(str(path), address=daemon.address, output="numpy") as loader:
        next(iter(loader))
        state = loader.state_dict()
    before = joined(epoch(daemon, path), "tokens")
    with_fewer_merges(daemon.data / "tokenizers/gpt2.json", 20)
    after = joined(epoch(daemon, path), "tokens")
    assert not np.array_equal(before, after), "the new file is read"
    with feedwater.Loader(str(path), address=daemon.address, output="numpy") as loader:
        with pytest.raises(feedwater.Error, match="pipeline"):
            loader.load_state_dict(state)
            next(iter(loader))


def test_a_named_pipeline_follows_its_vocabulary(daemon):
    (daemon.pipelines / "text.yaml").write_text(pipeline(more=", truncation: right"))
    daemon.start()
    before = joined(epoch(daemon, "text"), "tokens")
    with_fewer_merges(daemon.data / "tokenizers/gpt2.json", 20)
    after = joined(epoch(daemon, "text"), "tokens")
    assert not np.array_equal(before, after), "the new file is read"
    shutil.copy(TOKENIZERS / "gpt2.json", daemon.data / "tokenizers/gpt2.json")
    np.testing.assert_array_equal(before, joined(epoch(daemon, "text"), "tokens"))


def test_a_file_outside_of_the_roots_is_not_read(daemon, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a\nb\n")
    daemon.start()
    for file in (secret, "../../secret.txt", "{root: elsewhere, path: secret.txt}"):
        with pytest.raises(feedwater.Error) as found:
            epoch(daemon, write(daemon, pipeline(str(file), ", kind: words")))
        assert "'tokenizer'" in str(found.value) and ":5:" in str(found.value)


def test_windows_are_packed_alike_after_a_resume(daemon):
    daemon.start()
    outputs = "[tokens, segment_ids, positions, packed]"
    pack = f"{{out: {outputs}, length: 128, samples: 4, overflow: leave_out}}"
    text = pipeline(batch=f"size: 8, graph: [{{pack: {pack}}}]").replace("[tokens, mask]", outputs)
    path = write(daemon, text)
    whole = epoch(daemon, path)
    for batch in whole:
        windows = batch["tokens"].reshape(-1, 128)
        segments, positions = (batch[key].reshape(-1, 128) for key in ("segment_ids", "positions"))
        assert windows.shape == (2, 128) and segments.max() > 1
        starts = (segments > 0) & (positions == 0)
        assert starts.sum() == batch["packed"].sum()
    with feedwater.Loader(
        str(path), address=daemon.address, output="numpy", as_dict=True
    ) as loader:
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
    with feedwater.Loader(
        str(path), address=daemon.address, output="numpy", as_dict=True
    ) as loader:
        loader.load_state_dict(state)
        for expected, batch in zip(whole[2:], loader, strict=True):
            for key, value in batch.items():
                np.testing.assert_array_equal(value, expected[key])


def test_padding_is_in_no_window(daemon):
    """In the last batch the padding's places are those of the texts."""
    write_texts(daemon.data / "texts", TEXTS[:20])
    daemon.start()
    outputs = "[tokens, segment_ids, packed, is_real, sample_id]"
    pack = "{out: [tokens, segment_ids, positions, packed], length: 504, samples: 8}"
    text = pipeline(batch=f"size: 8, graph: [{{pack: {pack}}}]").replace("[tokens, mask]", outputs)
    text = text.replace("last: partial", "last: pad")
    batches = epoch(daemon, write(daemon, text))
    assert [len(batch["packed"]) for batch in batches] == [8, 8, 8]
    for batch in batches:
        np.testing.assert_array_equal(batch["packed"], batch["is_real"])
        assert batch["segment_ids"].max() == batch["is_real"].sum(), "all are in one window"
    assert batches[-1]["is_real"].sum() == 4
