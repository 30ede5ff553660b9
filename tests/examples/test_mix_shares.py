"""mix_shares.py against NumPy over the numbers themselves."""

from __future__ import annotations

import subprocess

import numpy as np
from conftest import command, environment, run

MIX = """version: 1
dataset:
  mix:
    - {format: npy, root: data, path: clean, weight: 3}
    - {format: npy, root: data, path: web, weight: 1}
  stop: 40
sampler: {shuffle: full, seed: 5, last: partial}
batch: {size: 7}
outputs: [x, dataset_id]
"""


def test_each_source_has_its_share_and_its_mean(daemon, tmp_path):
    for name, values in (("clean", np.arange(30)), ("web", np.arange(1000, 1010))):
        (daemon.data / name).mkdir()
        np.save(daemon.data / name / "x.npy", values.astype(np.float32))
    mix = tmp_path / "mix.yaml"
    mix.write_text(MIX)
    lines = run(daemon, command("mix_shares.py", mix, "--field", "x"), tmp_path).splitlines()
    # 40 samples are three quarters and one quarter: each source is whole in each epoch.
    assert lines == [
        line
        for epoch in (0, 1)
        for line in (
            f"epoch {epoch}, source 0: 30 samples, 75.0%, mean 14.500",
            f"epoch {epoch}, source 1: 10 samples, 25.0%, mean 1004.500",
        )
    ]
    # Padding does not count.
    mix.write_text(MIX.replace("partial", "pad").replace("[x,", "[is_real, x,"))
    padded = run(daemon, command("mix_shares.py", mix, "--field", "x"), tmp_path).splitlines()
    assert padded == lines


def test_a_pipeline_without_the_number_is_named(daemon, tmp_path):
    done = subprocess.run(
        command("mix_shares.py", "shapes"),
        env=environment(daemon), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "the pipeline has no output `dataset_id`\n"
