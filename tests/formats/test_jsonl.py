"""A real daemon reads what Python's json module wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pictures import pixels, png

import feedwater

REST = "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
TEXTS = ["plain", 'in "quotes"', "two\nlines", "", "é", "\U0001f600", "\\", "\x01"]


def samples(count: int) -> list[dict]:
    random = np.random.Generator(np.random.PCG64(6))
    return [
        {
            "id": int(random.integers(-(2**63), 2**63 - 1)),
            "real": float(random.standard_normal() * 10.0 ** random.integers(-300, 300)),
            "mixed": i if i % 3 else i / 2,
            "flag": i % 3 == 0,
            "meta": {"text": TEXTS[i % len(TEXTS)], "deep": {"n": i}},
            "ids": random.integers(0, 1000, 5).tolist(),
            "boxes": random.standard_normal((2, 4)).tolist(),
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("options", [{}, {"ensure_ascii": False, "separators": (",", ":")}])
def test_lines_are_what_the_json_module_was_given(make_daemon, options):
    daemon = make_daemon()
    given = samples(60)
    (daemon.data / "d").mkdir()
    for part in range(2):
        lines = [json.dumps(sample, **options) for sample in given[part * 30 : part * 30 + 30]]
        (daemon.data / f"d/{part}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: jsonl, root: data, path: d, fields: {id: id, real: real, "
        "mixed: mixed, flag: flag, text: {from: meta.text, classes: auto}, n: meta.deep.n, "
        "ids: ids, boxes: boxes}}\noutputs: [id, real, mixed, flag, text, n, ids, boxes]\n" + REST,
    )
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        batches = [{key: np.array(value) for key, value in batch.items()} for batch in loader]
    held = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    names = sorted(TEXTS, key=str.encode)
    for key, dtype in (
        ("id", np.int64),
        ("real", np.float64),
        ("mixed", np.float64),
        ("flag", np.bool_),
        ("ids", np.int64),
        ("boxes", np.float64),
    ):
        assert held[key].dtype == dtype, key
        assert held[key].tolist() == [sample[key] for sample in given], key
    assert held["n"].tolist() == list(range(60))
    assert [names[i] for i in held["text"]] == [sample["meta"]["text"] for sample in given]


@pytest.mark.parametrize("kind", ["bytes", "none"])
def test_a_record_without_a_file_does_not_end_its_job(make_daemon, kind):
    """It names none, or a folder."""
    daemon = make_daemon()
    names = [{"path": "a.png"}, {}, {"path": "sub"}, {"path": "b.png"}] * 5
    (daemon.data / "sub").mkdir()
    for name in ("a.png", "b.png"):
        (daemon.data / name).write_bytes(png(pixels(1)))
    (daemon.data / "rows.jsonl").write_text(
        "".join(json.dumps({"id": i, **name}) + "\n" for i, name in enumerate(names))
    )
    for optional in ("true", "false"):
        daemon.add_pipeline(
            f"optional_{optional}",
            "version: 1\ndataset: {format: jsonl, root: data, files: [rows.jsonl], fields: "
            f"{{id: id, photo: {{from: path, file: true, optional: {optional}}}}}}}\n"
            "on_bad_sample: substitute\nmax_bad_fraction: 0.9\noutputs: [id, sample_id]\n"
            f"cache: {{kind: {kind}}}\n{REST}",
        )
    daemon.start()
    for _ in range(2):  # the second time perhaps from the cache
        with feedwater.Loader("optional_true", address=daemon.address, output="numpy") as loader:
            ids = np.concatenate([np.array(batch[0]) for batch in loader])
        assert ids.tolist() == list(range(20))
    with pytest.raises(feedwater.InvalidArgument, match=r"record 1 .*column 'path' is missing"):
        feedwater.Loader("optional_false", address=daemon.address)


def test_floats_that_are_no_numbers_and_halves_of_pairs_are_read_as_json_dumps_writes_them(
    make_daemon,
):
    daemon = make_daemon()
    reals = [1.5, float("nan"), float("inf"), -float("inf"), -0.0, 2]
    texts = ["a", "x\ud83dy", "\udc80", "\U0001f600\ud83d", "NaN", "\ude00\ud83d"]
    lines = [
        json.dumps({"real": real, "list": [real, 1], "text": text})
        for real, text in zip(reals, texts, strict=True)
    ]
    (daemon.data / "d").mkdir()
    (daemon.data / "d/x.jsonl").write_text("\n".join(lines))
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: jsonl, root: data, path: d, fields: {real: real, "
        "list: list, text: {from: text, classes: auto}}}\noutputs: [real, list, text]\n" + REST,
    )
    daemon.start()
    with feedwater.Loader("d", address=daemon.address, output="numpy", as_dict=True) as loader:
        (batch,) = [{key: np.array(value) for key, value in batch.items()} for batch in loader]
    assert batch["real"].tobytes() == np.array(reals, np.float64).tobytes()
    assert np.array_equal(batch["list"], [[real, 1] for real in reals], equal_nan=True)
    known = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    assert [sorted(set(known), key=str.encode)[number] for number in batch["text"]] == known
