"""train_parquet.py over pictures in Parquet files, with labels as numbers and as texts."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from conftest import command, environment, run
from daemon_process import BUILD
from pictures import CLASSES, label, png

pa = pytest.importorskip("pyarrow", reason="the writer of Parquet files")
pq = pytest.importorskip("pyarrow.parquet", reason="the writer of Parquet files")

pytestmark = pytest.mark.skipif(
    not (BUILD / "bin/feedwater-columnar").exists(),
    reason="built without feedwater-columnar (scripts/setup --parquet)",
)

ROWS = 90


@pytest.fixture
def tinted(make_daemon):
    """A daemon over Parquet files of pictures that differ in what is brightest in them."""
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(2))
    rows = []
    for number in range(ROWS):
        kind = label(number, ROWS)
        picture = random.integers(60, 160, (16, 16, 3))
        picture[..., kind] += 60
        image = {"bytes": png(picture.astype(np.uint8)), "path": f"{number}.png"}
        rows.append({"image": image, "label": kind, "kind": CLASSES[kind]})
    (daemon.data / "tinted").mkdir()
    for part in range(2):
        table = pa.Table.from_pylist(rows[part::2])
        pq.write_table(table, daemon.data / f"tinted/train-{part}.parquet", row_group_size=20)
    daemon.start()
    return daemon


@pytest.mark.parametrize(
    "labels", [["--classes", 3], ["--label", "kind", "--text-labels"]], ids=["numbers", "texts"]
)
def test_it_learns_what_the_pictures_show(tinted, tmp_path, labels):
    output = run(
        tinted,
        command("train_parquet.py", "--root", "data", "--path", "tinted", "--size", 8, *labels,
                "--batch-size", 12, "--epochs", 4),
        tmp_path,
    )  # fmt: skip
    lines = [
        re.fullmatch(r"epoch \d: loss ([\d.]+), accuracy ([\d.]+) over 90 rows", line)
        for line in output.splitlines()
    ]
    assert len(lines) == 4 and all(lines)
    assert float(lines[-1][1]) < float(lines[0][1]) / 2 and float(lines[-1][2]) > 0.9


def test_labels_without_classes_are_refused(tinted, tmp_path):
    done = subprocess.run(
        command("train_parquet.py", "--root", "data", "--path", "tinted"),
        cwd=tmp_path, env=environment(tinted), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2 and "--classes" in done.stderr
