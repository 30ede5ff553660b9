"""Records of a table that names files: every command tells them by their own files."""

from __future__ import annotations

import pytest
from command_line import run
from pictures import pixels, png

GRAPH = "  - decode: {in: data, out: image}\n  - resize: {size: [8, 8]}\n"
FIELDS = "{data: {from: path, file: true}, label: {from: kind, classes: auto}}"
NAMES = ("good", "cut", "empty", "missing")


@pytest.fixture
def table(project):
    """A project with a table of four photos, of which one is whole."""
    folder = project.data / "table"
    (folder / "img").mkdir(parents=True)
    whole = png(pixels(0))
    for name, data in (("good", whole), ("cut", whole[:60]), ("empty", b"")):
        (folder / f"img/{name}.png").write_bytes(data)
    rows = [f"img/{name}.png,{name[0]}" for name in NAMES]
    (folder / "train.csv").write_text("\n".join(["path,kind", *rows, ""]))
    project.pipeline(
        "table",
        GRAPH,
        dataset=f"{{format: csv, root: data, path: table, fields: {FIELDS}}}",
        sampler="{shuffle: none}",
        batch="{size: 4}",
    )
    return project


def test_verify_names_the_file_and_tells_a_missing_one_from_an_empty_one(table):
    for _ in ("indexed", "from the saved index"):
        bad = run("verify", "table", "--config", table.config, "--json").document["bad"]
        assert [line["path"] for line in bad] == [f"table/img/{name}.png" for name in NAMES[1:]]
        assert [line["offset"] for line in bad] == [0, 0, 0]
        reasons = [line["reason"] for line in bad]
        named = "field 'data' needs the file 'table/img/{}.png' that column 'path' names, which {}"
        assert reasons[1] == named.format("empty", "is empty")
        assert reasons[2] == named.format("missing", "is not there")


def test_the_ledger_names_files_and_finds_records_by_them(table):
    ledger = ("ledger", "table", "--config", table.config)
    entries = run(*ledger, "--batch", 0, "--json").document["entries"]
    assert [entry["path"] for entry in entries] == [f"table/img/{name}.png" for name in NAMES]
    found = run(*ledger, "--find", "cut.png", "--json").document["entries"]
    assert [entry["record"] for entry in found] == [1]
    assert "table/img/cut.png\n" in run(*ledger, "--find", "cut.png").out, "without an offset"
    assert "4 records fit 'train.csv'" in run(*ledger, "--find", "train.csv").err


def test_preview_says_what_is_wrong_with_the_first_bad_record(table):
    sheet = table.folder / "sheet.png"
    shown = run("preview", "table", "--config", table.config, "-o", sheet)
    assert shown.status == 0, shown.err
    words = " ".join(shown.out.split())
    assert "3 bad, shown in red the first: record 1 (table/img/cut.png): " in words
    rows = run("preview", "table", "--config", table.config, "-o", sheet, "--json").document
    assert {row["path"] for row in rows["samples"]} == {f"table/img/{name}.png" for name in NAMES}
