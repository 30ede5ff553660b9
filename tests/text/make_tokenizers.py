"""Makes the small tokenizers that tests use, and the ids that the libraries give for texts.

    python tests/text/make_tokenizers.py     # with `pip install tokenizers sentencepiece`

Everything is trained on text that this script makes up, so the files are nobody else's. What it
writes is committed: tests need none of the libraries. tokenizers/ has the files, golden/ids.json
has the ids of TEXTS for each of them. A file that is there stays as it is, since WordPiece's
trainer does not give the same one twice.
"""

from __future__ import annotations

import io
import json
import random
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "tokenizers"
GOLDEN = Path(__file__).resolve().parent / "golden" / "ids.json"

SYLLABLES = [
    "an", "be", "ti", "ro", "ka", "mu", "sel", "dor", "ing", "er", "tion", "the", "wa", "ter",
    "feed", "pump", "boi", "ler", "über", "straße", "größe", "né", "水", "鍋", "炉", "送", "給",
    "mañ", "ça", "Zug", "9", "42",
]  # fmt: skip

# Text, and how often it is repeated.
TEXTS: list[tuple[str, int]] = [
    ("", 1),
    (" ", 5),
    ("\n\n \t", 1),
    ("a", 1 << 20),
    ("the water feeds the boiler. ", 40),
    ("Hello, world! it's WE'LL I'M don'T", 1),
    ("Größe und Straße über Füße, naïve café", 1),
    ("給水 炉 鍋 水中文测试。全角：ＡＢＣ１２３", 1),
    ("😀👨\u200d👩\u200d👧🏽 ok 🇩🇪", 1),
    ("e\u0301a\u0308\u0323q\u0307\u0323 \u0130I\u0307 \u0323\u0307", 1),
    ("한국어 문장 \u1112\u1161\u11ab", 1),
    ("The tion<|endoftext|>water <s> x</s><mask> [MASK] [SEP]<|end_of_text|>", 1),
    ("x" * 100 + " " + "x" * 101, 1),
    ("a\u00a0b\u2003c\u200bd\u0085e\u3000f", 1),
    ("ſ'ſ 'S ﬁ ﷺ ⅷ ² ẞ ς ΑΣ", 1),
    ("12345678 1,000.50 42", 1),
    ("def f(x):\n\n    return x  \n\n\n", 1),
    ("\ufeffmark\x00 \x07bell\ufffd\x7f", 1),
    ("don’t “quote” — dash… $+<=>^`|~", 1),
    ("  two  spaces  ", 1),
    # Ties of paths, which are broken by how sums are rounded.
    ("...", 1),
    ("....", 1),
    ("----", 1),
    ("!!!", 1),
    (".-!,?'", 7),
    ("feedingeringfeeder 鍋水feed鍋", 2),
]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def lines() -> list[str]:
    """Words of syllables, the same every time."""
    draw = random.Random(7)
    made = []
    for _ in range(3000):
        words = []
        for _ in range(draw.randint(3, 12)):
            word = "".join(draw.choice(SYLLABLES) for _ in range(draw.randint(1, 3)))
            words.append(word.capitalize() if draw.random() < 0.2 else word)
        made.append(" ".join(words) + draw.choice([".", "!", "?", " ...", ",", "'s"]))
    return made


def byte_level(size: int, specials: list[str], **options):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(**options))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return tokenizer, trainer


def hugging_face() -> dict:
    """As GPT-2, Llama 3, RoBERTa with NFC, BERT uncased and cased, and whole words."""
    from tokenizers import (
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    made = {}
    tokenizer, trainer = byte_level(480, ["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(lines(), trainer)
    made["gpt2.json"] = tokenizer

    tokenizer, trainer = byte_level(
        480, ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.train_from_iterator(lines(), trainer)
    begin = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{begin} $A",
                pair=f"{begin} $A {begin} $B",
                special_tokens=[(begin, tokenizer.token_to_id(begin))],
            ),
        ]
    )
    made["llama3.json"] = tokenizer

    tokenizer, trainer = byte_level(480, ["<s>", "</s>", "<mask>"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True),
        ]
    )
    tokenizer.train_from_iterator(lines(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    made["roberta.json"] = tokenizer

    for case in ("uncased", "cased"):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=case == "uncased")
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(
            vocab_size=400, special_tokens=specials, show_progress=False
        )
        tokenizer.train_from_iterator(lines(), trainer)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        made[f"bert-{case}.json"] = tokenizer

    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=200, special_tokens=["<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(lines(), trainer)
    made["words.json"] = tokenizer
    return made


def sentence_pieces() -> dict:
    """Unigram and BPE, and both with pieces of users' own."""
    import sentencepiece

    made = {}
    for name in ("unigram", "bpe", "unigram-own", "bpe-own"):
        kind, own = name.split("-")[0], name.endswith("-own")
        own_pieces = {
            "user_defined_symbols": ["feed", "feeder", "er", "ring", "水鍋"],
            "control_symbols": ["鍋", "炉"],
        }  # fmt: skip
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines()),
            model_writer=model,
            model_type=kind,
            vocab_size=300 if own else 400,
            byte_fallback=name == "bpe",
            normalization_rule_name="nmt_nfkc" if name == "unigram" else "identity",
            character_coverage=1.0,
            minloglevel=2,
            num_threads=1,
            **(own_pieces if own else {}),
        )
        made[f"{name}.model"] = model.getvalue()
    return made


def runs(ids: list[int]) -> list:
    """The ids; of many that are the same in a row, [id, how many]."""
    out: list = []
    for value, group in groupby(ids):
        count = len(list(group))
        out += [value] * count if count < 4 else [[value, count]]
    return out


def lines_of(tokenizer) -> str:
    entries = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    return "".join(token + "\n" for token, _ in entries)


def main() -> None:
    import sentencepiece
    import tokenizers

    FOLDER.mkdir(exist_ok=True)
    GOLDEN.parent.mkdir(exist_ok=True)
    texts = [text * count for text, count in TEXTS]
    golden = {}
    for name, tokenizer in hugging_face().items():
        if not (FOLDER / name).exists():
            document = json.loads(tokenizer.to_str())
            (FOLDER / name).write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n")
        tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / name))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        around = tokenizer.encode("", add_special_tokens=True).ids
        golden[name] = {"kind": "auto", "around": around, "ids": [runs(one) for one in ids]}
        if name.startswith("bert"):
            listed = "vocab.txt" if "uncased" in name else "vocab-cased.txt"
            (FOLDER / listed).write_text(lines_of(tokenizer))
            golden[listed] = {
                **golden[name], "kind": "wordpiece", "lowercase": "uncased" in name,
            }  # fmt: skip
    for name, model in sentence_pieces().items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / name))
        golden[name] = {
            "kind": "auto", "around": [], "ids": [runs(processor.encode(text)) for text in texts],
        }  # fmt: skip
    document = {"texts": TEXTS, "tokenizers": golden}
    GOLDEN.write_text(json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
