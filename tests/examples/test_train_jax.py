"""train_jax.py learns."""

from __future__ import annotations

import re

import pytest
from conftest import command, run

pytest.importorskip("jax")
pytest.importorskip("tqdm")


def test_the_loss_falls(daemon, tmp_path):
    output = run(daemon, command("train_jax.py", "shapes", "--epochs", 8), tmp_path)
    epochs = re.findall(r"epoch (\d+): loss ([\d.]+), accuracy ([\d.]+)", output)
    assert [int(epoch) for epoch, *_ in epochs] == list(range(8))
    losses = [float(loss) for _, loss, _ in epochs]
    assert losses[-1] < 0.7 * losses[0], output
    assert float(epochs[-1][2]) > 0.6, output
