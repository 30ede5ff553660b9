"""A real daemon reads what Python's csv module and pandas (PyPI) wrote."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest
from pictures import pixels, png

import feedwater

REST = "sampler: {shuffle: none, last: partial}\nbatch: {size: 7}\n"
TEXTS = [
    "plain",
    'in "quotes"',
    "a,b",
    "two\nlines",
    "two\r\nlines",
    "",
    " spaces ",
    "é",
    '"',
    "\t",
]


def read(daemon, name: str) -> dict[str, np.ndarray]:
    """Return all records of a pipeline, by output."""
    with feedwater.Loader(name, address=daemon.address, output="numpy", as_dict=True) as loader:
        batches = [{key: np.array(value) for key, value in batch.items()} for batch in loader]
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_rows_are_what_the_csv_module_was_given(make_daemon, delimiter, end):
    daemon = make_daemon()
    rows = [(i - 20, i / 7, TEXTS[i % len(TEXTS)]) for i in range(60)]
    (daemon.data / "d").mkdir()
    for part in range(2):
        with open(daemon.data / f"d/{part}.csv", "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
            writer.writerow(["id", "real", "text"])
            writer.writerows(rows[part * 30 : part * 30 + 30])
    daemon.add_pipeline(
        "d",
        f'version: 1\ndataset: {{format: csv, root: data, path: d, delimiter: "{delimiter}", '
        "fields: {id: id, real: real, text: {from: text, classes: auto}}}\n"
        f"outputs: [id, real, text]\n{REST}".replace("\t", "\\t"),
    )
    daemon.start()
    held = read(daemon, "d")
    names = sorted(TEXTS, key=str.encode)
    assert held["id"].dtype == np.int64 and held["id"].tolist() == [row[0] for row in rows]
    assert held["real"].dtype == np.float64 and held["real"].tolist() == [row[1] for row in rows]
    assert [names[number] for number in held["text"]] == [row[2] for row in rows]


@pytest.mark.parametrize("delimiter", ["|", "\t"])
def test_lines_without_quoting_are_what_the_csv_module_reads(make_daemon, delimiter):
    daemon = make_daemon()
    texts = ['"a mess', 'awful"', '"x" y', '""', '"', 'in "quotes"', "a,b", "", "é", "'", "\\"]
    rows = [[str(i), text] for i, text in enumerate(texts * 3)]
    (daemon.data / "d").mkdir()
    lines = [delimiter.join(row) for row in [['"id"', "text"], *rows]]
    (daemon.data / "d/x.csv").write_text("\n".join(lines), newline="")
    with open(daemon.data / "d/x.csv", newline="") as file:
        header, *known = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    assert (header, known) == (['"id"', "text"], rows)
    daemon.add_pipeline(
        "d",
        f'version: 1\ndataset: {{format: csv, root: data, path: d, delimiter: "{delimiter}", '
        "quotes: false, fields: {id: '\"id\"', text: {from: text, classes: auto}}}\n"
        f"outputs: [id, text]\n{REST}".replace("\t", "\\t"),
    )
    daemon.start()
    held = read(daemon, "d")
    names = sorted(set(texts), key=str.encode)
    assert held["id"].tolist() == [int(row[0]) for row in known]
    assert [names[number] for number in held["text"]] == [row[1] for row in known]


def test_frames_are_what_pandas_was_given(make_daemon):
    pandas = pytest.importorskip("pandas", reason="the writer of PyPI's pandas")
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(4))
    frame = pandas.DataFrame(
        {
            "wide": random.integers(-(2**63), 2**63 - 1, 50),
            "real": random.standard_normal(50),
            "text": [TEXTS[i % len(TEXTS)] + "." for i in range(50)],
            "gaps": [np.nan if i % 5 == 0 else i / 3 for i in range(50)],
        }
    )
    (daemon.data / "d").mkdir()
    frame.to_csv(daemon.data / "d/x.csv")
    daemon.add_pipeline(
        "d",
        "version: 1\ndataset: {format: csv, root: data, path: d, fields: {index: c0, wide: wide, "
        "real: real, text: {from: text, classes: auto}, gaps: {from: gaps, dtype: float64, "
        f"optional: true}}}}}}\noutputs: [index, wide, real, text, gaps]\n{REST}",
    )
    daemon.start()
    held = read(daemon, "d")
    names = sorted((text + "." for text in TEXTS), key=str.encode)
    assert held["index"].tolist() == list(range(50))
    assert held["wide"].tolist() == frame["wide"].tolist()
    assert held["real"].tolist() == frame["real"].tolist()
    assert [names[number] for number in held["text"]] == frame["text"].tolist()
    assert held["gaps"].tolist() == frame["gaps"].fillna(0).tolist()


def test_pictures_of_a_table_are_those_of_their_folders(make_daemon):
    daemon = make_daemon()
    (daemon.data / "d").mkdir()
    with open(daemon.data / "d/list.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "kind"])
        for number in range(10):
            kind = ("bee", "ant")[number % 2]
            (daemon.data / "d" / kind).mkdir(exist_ok=True)
            (daemon.data / "d" / kind / f"{number}.png").write_bytes(png(pixels(number)))
        for path in sorted((daemon.data / "d").glob("*/*.png")):
            writer.writerow([f"{path.parent.name}/{path.name}", path.parent.name])
    rest = (
        f"graph: [{{decode: {{}}}}, {{resize: {{size: [8, 8]}}}}]\noutputs: [image, label]\n{REST}"
    )
    daemon.add_pipeline(
        "folders",
        f"version: 1\ndataset: {{format: image_folder, root: data, path: d}}\n{rest}",
    )
    daemon.add_pipeline(
        "table",
        "version: 1\ndataset: {format: csv, root: data, path: d, fields: {data: {from: file, "
        f"file: true}}, label: {{from: kind, classes: auto}}}}}}\n{rest}",
    )
    daemon.start()
    folders, table = read(daemon, "folders"), read(daemon, "table")
    for name in ("image", "label"):
        assert np.array_equal(folders[name], table[name])


def test_compressed_files_are_read_unpacked(make_daemon):
    daemon = make_daemon()
    (daemon.data / "d").mkdir()
    (daemon.data / "d/0.csv.gz").write_bytes(gzip.compress(b"n\n1\n2\n"))
    (daemon.data / "d/1.csv").write_bytes(b"n\n3\n")
    daemon.add_pipeline(
        "d", f"version: 1\ndataset: {{format: csv, root: data, path: d}}\noutputs: [n]\n{REST}"
    )
    daemon.start()
    assert read(daemon, "d")["n"].tolist() == [1, 2, 3]
