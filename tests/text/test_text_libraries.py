"""Ids against the libraries themselves, for random texts, where they are installed
(`pip install tokenizers sentencepiece`); golden/ids.json has what they gave for a few.
"""

from __future__ import annotations

import csv
import random
import shutil

import numpy as np
import pytest
from daemon_process import ROOT

import feedwater

FOLDER = ROOT / "tests/text/tokenizers"
ALPHABET = [
    *range(32, 127), *range(32, 127), *range(0xA0, 0x250), *range(0x300, 0x530),
    *range(0x900, 0x980), *range(0x1E00, 0x2000), *range(0x3000, 0x3100), *range(0x4E00, 0x4E80),
    *range(0xAC00, 0xAC80), *range(0x1F600, 0x1F650), *[32] * 300, *[9, 10] * 10, 0x200D, 0xFE0F,
]  # fmt: skip
COUNT = 2000
RUNS = [
    ".", "...", "-", "!", "a", "er", "feed", "ring", "the", "ti", "水", "鍋", "炉", "'", " ",
    "▁", "<s>", "</s>", "<unk>", "<mask>", "boi", "e\u0301", "ﬁ\u0300", "½", "\u00ad", "``",
]  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Of many characters, and of runs of few, where paths of equal scores are many."""
    draw = random.Random(3)
    made = ["".join(map(chr, draw.choices(ALPHABET, k=draw.randint(1, 60)))) for _ in range(COUNT)]
    for _ in range(COUNT):
        few = draw.sample(RUNS, draw.randint(1, 4))
        made.append(
            "".join(draw.choice(few) * draw.randint(1, 6) for _ in range(draw.randint(1, 12)))
        )
    return made


def ids_of_feedwater(daemon, texts: list[str], name: str) -> list[list[int]]:
    folder = daemon.data / "texts"
    folder.mkdir(exist_ok=True)
    with (folder / "texts.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["text"])
        writer.writerows([text] for text in texts)
    shutil.copy(FOLDER / name, daemon.data / name)
    path = daemon.data / "text.yaml"
    path.write_text(f"""version: 1
dataset: {{format: csv, root: data, path: texts, fields: {{text: {{from: text}}}}}}
sampler: {{shuffle: none, last: partial}}
graph: [{{tokenize: {{tokenizer: {name}, max_length: 1000, add_special_tokens: false}}}}]
batch: {{size: 100}}
outputs: [tokens]
""")
    rows: list[list[int]] = []
    with feedwater.Loader(
        str(path), address=daemon.address, output="numpy", as_dict=True
    ) as loader:
        for batch in loader:
            rows += [np.array(row).tolist() for row in batch["tokens"]]
    return rows


def differing(expected: list[list[int]], found: list[list[int]], texts: list[str]) -> list[str]:
    assert len(expected) == len(found) == len(texts)
    return [text for text, one, other in zip(texts, expected, found) if one != other]


@pytest.mark.parametrize(
    "name",
    [
        "gpt2.json", "llama3.json", "roberta.json", "bert-uncased.json", "words.json",
        "llama2.json", "mistral.json", "gemma.json", "bpe-unknown.json", "t5.json",
        "t5-later.json", "xlmr.json", "albert.json", "unigram-bytes.json",
    ],
)  # fmt: skip
def test_the_ids_are_those_of_tokenizers(make_daemon, texts, name):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    if not hasattr(tokenizers, "Tokenizer"):  # the folder of this name beside this file
        pytest.skip("tokenizers is not installed")
    daemon = make_daemon()
    daemon.start()
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / name))
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert differing(expected, ids_of_feedwater(daemon, texts, name), texts) == []


@pytest.mark.parametrize(
    "name", ["unigram.model", "bpe.model", "unigram-own.model", "bpe-own.model"]
)
def test_the_ids_are_those_of_sentencepiece(make_daemon, texts, name):
    library = pytest.importorskip("sentencepiece", "0.2.3", reason="sentencepiece is not installed")
    daemon = make_daemon()
    daemon.start()
    processor = library.SentencePieceProcessor(model_file=str(FOLDER / name))
    expected = processor.encode(texts)
    assert differing(expected, ids_of_feedwater(daemon, texts, name), texts) == []
