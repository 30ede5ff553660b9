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
import struct
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


def character_map(pairs: dict[str, str]) -> bytes:
    """A precompiled map of characters as SentencePiece has it: a double array and its texts."""
    states: list[dict[int, int]] = [{}]
    values: dict[int, int] = {}
    texts = b""
    for key, becomes in pairs.items():
        state = 0
        for byte in key.encode():
            if byte not in states[state]:
                states[state][byte] = len(states)
                states.append({})
            state = states[state][byte]
        values[state] = len(texts)
        texts += becomes.encode() + b"\0"
    bases: list[int] = []
    taken = {0}
    for state, children in enumerate(states):
        labels = set(children) | ({0} if state in values else set())
        base = 1
        while base in bases or any(base ^ label in taken for label in labels):
            base += 1
        bases.append(base)
        taken |= {base ^ label for label in labels}
    units = [0x800000FF] * ((max(taken) | 0xFF) + 1)
    units[0] = bases[0] << 10
    for state, children in enumerate(states):
        for label, child in children.items():
            at = bases[state] ^ label
            units[at] = (at ^ bases[child]) << 10 | (child in values) << 8 | label
        if state in values:
            units[bases[state]] = 1 << 31 | values[state]
    return struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts


def json_of_sentence_piece() -> dict:
    """As Llama 2, Mistral, Gemma; T5, its later kind, XLM-R, ALBERT; Unigram with bytes."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    made = {}
    mark = "\u2581"
    metaspace = pre_tokenizers.Metaspace
    as_bytes = [f"<0x{byte:02X}>" for byte in range(256)]

    def bpe(name, normalizer, splitter, **options):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, **options))
        tokenizer.pre_tokenizer = metaspace(mark, "always")
        bytes_of_it = as_bytes if options.get("byte_fallback") else []
        trainer = trainers.BpeTrainer(
            vocab_size=200 + len(bytes_of_it),
            special_tokens=["<unk>", "<s>", "</s>", *bytes_of_it],
            limit_alphabet=40,
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines(), trainer)
        document = json.loads(tokenizer.to_str())
        document["added_tokens"] = document["added_tokens"][:3]
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
        made[name] = tokenizer

    def unigram(name, normalizer, splitter, more=(), bytes_too=False):
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
        bytes_of_it = as_bytes if bytes_too else []
        trainer = trainers.UnigramTrainer(
            vocab_size=200 + len(bytes_of_it),
            special_tokens=["<pad>", "</s>", "<unk>", *bytes_of_it],
            unk_token="<unk>",
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines(), trainer)
        document = json.loads(tokenizer.to_str())
        document["added_tokens"] = document["added_tokens"][:3]
        document["model"]["byte_fallback"] = bytes_too
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokenizer.add_tokens(list(more))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
        )
        made[name] = tokenizer

    bpe(
        "llama2.json",
        normalizers.Sequence([normalizers.Prepend(mark), normalizers.Replace(" ", mark)]),
        None,
        byte_fallback=True,
    )
    bpe("mistral.json", None, metaspace(mark, "first", split=False), byte_fallback=True)
    bpe(
        "gemma.json",
        normalizers.Replace(" ", mark),
        pre_tokenizers.Split(" ", "merged_with_previous"),
        byte_fallback=True,
    )
    bpe("bpe-unknown.json", None, metaspace(mark, "never"))

    wide = {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}
    mapped = normalizers.Precompiled(
        character_map(
            wide
            | {"e\u0301": "é", "a\u0308": "ä", "ﬁ": "fi", "½": "1\u20442", "\u00ad": "", "\x07": "",
               "\u00a0": " ", "\u3000": " ", "\n": " ", "\t": " ", "\u200d": " ", "ﷺ": "صلى الله"}
        )
    )  # fmt: skip
    runs = Regex(" {2,}")
    unigram(
        "t5.json",
        normalizers.Sequence(
            [mapped, normalizers.Strip(False, True), normalizers.Replace(runs, mark)]
        ),
        metaspace(mark, "always"),
    )
    unigram(
        "t5-later.json",
        normalizers.Sequence([normalizers.Strip(True, True), mapped]),
        metaspace(mark, "first"),
        [AddedToken("boi", normalized=True), AddedToken("<mask>", lstrip=True, normalized=False)],
    )
    unigram(
        "xlmr.json",
        mapped,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace(mark, "always")]),
    )
    unigram(
        "albert.json",
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.Replace("''", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                mapped,
                normalizers.Replace(runs, " "),
            ]
        ),
        metaspace(mark, "always"),
    )
    unigram("unigram-bytes.json", None, metaspace(mark, "never", split=False), bytes_too=True)
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
    for name, tokenizer in (hugging_face() | json_of_sentence_piece()).items():
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
