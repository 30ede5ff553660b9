"""train_tokens.py over drawn tokens whose entropy is known."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from conftest import command, environment, run

VOCABULARY, LENGTH, WINDOWS = 20, 64, 400
PIPELINE = f"""version: 1
dataset: {{format: tokens, root: data, path: train.bin, length: {LENGTH}, targets: true}}
sampler: {{shuffle: full, seed: 4}}
batch: {{size: 16}}
outputs: [tokens, targets]
"""
LINE = re.compile(r"epoch (\d+): loss ([\d.]+) at first, ([\d.]+) at last, over (\d+) tokens")


@pytest.fixture
def chain(make_daemon):
    """A daemon over tokens of a Markov chain, and the least loss that a model can have there."""
    daemon = make_daemon()
    random = np.random.Generator(np.random.PCG64(6))
    odds = random.dirichlet(np.full(VOCABULARY, 0.2), VOCABULARY)
    tokens = np.zeros(WINDOWS * LENGTH + 1, "<u2")
    for place, chance in enumerate(random.random(WINDOWS * LENGTH)):
        behind = np.searchsorted(odds[tokens[place]].cumsum(), chance)
        tokens[place + 1] = min(behind, VOCABULARY - 1)
    tokens.tofile(daemon.data / "train.bin")
    daemon.add_pipeline("chain", PIPELINE)
    daemon.start()
    share = np.bincount(tokens, minlength=VOCABULARY) / len(tokens)
    own = -(odds * np.log(np.maximum(odds, 1e-300))).sum(axis=1)
    return daemon, float(share @ own)


def test_the_loss_falls_to_the_entropy_of_the_tokens(chain, tmp_path):
    daemon, entropy = chain
    output = run(
        daemon,
        command("train_tokens.py", "chain", "--vocabulary", VOCABULARY, "--epochs", 5),
        tmp_path,
    )
    epochs = [tuple(map(float, found)) for found in LINE.findall(output)]
    assert [number for number, *_ in epochs] == list(range(5)), output
    assert all(tokens == WINDOWS * LENGTH for *_, tokens in epochs)
    assert epochs[0][1] == pytest.approx(np.log(VOCABULARY), abs=0.001), "it knows nothing yet"
    assert 0.9 * entropy < epochs[-1][2] < 1.15 * entropy, (entropy, output)


@pytest.mark.parametrize(
    ("change", "vocabulary", "message"),
    [
        ({", targets: true": "", ", targets]": "]"}, VOCABULARY, "no output `targets`"),
        ({}, VOCABULARY - 5, "beyond --vocabulary 15"),
    ],
)
def test_what_it_cannot_train_on_is_said(chain, tmp_path, change, vocabulary, message):
    daemon, _ = chain
    text = PIPELINE
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "other.yaml").write_text(text)
    done = subprocess.run(
        command("train_tokens.py", tmp_path / "other.yaml", "--vocabulary", vocabulary),
        env=environment(daemon), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and message in done.stderr
