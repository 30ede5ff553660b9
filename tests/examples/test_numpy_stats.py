"""numpy_stats.py against NumPy over the pictures themselves."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from conftest import PIPELINE, RAW, RECORDS, command, environment, run
from pictures import pattern

pytest.importorskip("tqdm")
LINE = re.compile(r"- normalize: {in: image, mean: \[(.*)\], std: \[(.*)\]}\n")


def values(output: str) -> tuple[list[float], list[float]]:
    (found,) = LINE.findall(output)
    mean, std = ([float(x) for x in part.split(", ")] for part in found)
    return mean, std


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    pictures = np.stack([pattern(number, RECORDS) for number in range(RECORDS)]).reshape(-1, 3)
    return np.stack([pictures.mean(axis=0), pictures.std(axis=0)])


def test_the_values_are_those_of_all_pixels(daemon, tmp_path, expected):
    output = run(daemon, command("numpy_stats.py", "pixels"), tmp_path)
    np.testing.assert_allclose(values(output), expected, atol=0.0006)


def test_padding_does_not_count(daemon, tmp_path, expected):
    """192 pictures in batches of 50: the last one is filled up with 8 that came before."""
    padded = tmp_path / "padded.yaml"
    padded.write_text(RAW.replace("last: partial", "last: pad"))
    output = run(daemon, command("numpy_stats.py", padded), tmp_path)
    np.testing.assert_allclose(values(output), expected, atol=0.0006)


def test_a_normalize_with_its_values_leaves_mean_0_and_deviation_1(daemon, tmp_path):
    op = run(daemon, command("numpy_stats.py", "pixels"), tmp_path).strip()
    op = op.replace("}", ", dtype: float32, layout: CHW}")
    normalized = tmp_path / "normalized.yaml"
    normalized.write_text(RAW.replace("batch:", f"  {op}\nbatch:"))
    done = subprocess.run(
        command("numpy_stats.py", normalized),
        env=environment(daemon), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "normalize" not in done.stdout, "these are no values that a pipeline wants"
    mean, std = values(f"- normalize: {{in: image, {done.stdout.strip()}}}\n")
    np.testing.assert_allclose(mean, 0, atol=0.001)
    np.testing.assert_allclose(std, 1, atol=0.001)
    assert "take `normalize` out" in done.stderr


def test_images_that_were_left_out_are_told(daemon, tmp_path):
    dropping = tmp_path / "dropping.yaml"
    dropping.write_text(RAW.replace("last: partial", "last: drop"))
    done = subprocess.run(
        command("numpy_stats.py", dropping),
        env=environment(daemon), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "note: 150 images of 192" in done.stderr


def test_a_pipeline_without_images_is_named(daemon, tmp_path):
    labels = tmp_path / "labels.yaml"
    labels.write_text(PIPELINE.replace("[image, label, position]", "[label]"))
    done = subprocess.run(
        command("numpy_stats.py", labels), env=environment(daemon), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "the pipeline has no output `image` with channels\n"
