"""The examples of frameworks learn: one short program for each, as a user runs it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from typing import Any

import pytest
from conftest import PIPELINE, RECORDS, command, environment

EPOCHS = 8


@pytest.fixture
def run_example(daemon, tmp_path):
    """Run an example over `pairs`, which delivers images and labels alone; return its output."""
    daemon.add_pipeline("pairs", PIPELINE.replace("[image, label, position]", "[image, label]"))

    def run_one(script: str, *arguments: object, ranks: int = 0, **variables: str) -> str:
        done = subprocess.run(
            command(script, "pairs", "--epochs", EPOCHS, *arguments, ranks=ranks),
            cwd=tmp_path, env={**environment(daemon), **variables},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run_one


def losses(output: str, epochs: int = EPOCHS) -> list[float]:
    """Return the loss of each epoch, whose numbers are complete; it has to fall."""
    found = re.findall(r"epoch (\d+): loss ([\d.]+)", output)
    assert [int(epoch) for epoch, _ in found] == list(range(EPOCHS))[-epochs:], output
    return [float(loss) for _, loss in found]


def fall(output: str) -> bool:
    values = losses(output)
    return values[-1] < 0.7 * values[0]


def needs(*packages: str) -> None:
    """Skip where one is missing. They are not imported here: Keras wants to know its backend."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package} (scripts/setup --frameworks)")


def test_ddp_on_two_ranks(run_example):
    needs("torch")
    output = run_example("train_ddp.py", ranks=2)
    assert fall(output) and f"over {RECORDS} samples" in output, output


@pytest.mark.parametrize("devices", [1, 2])
def test_lightning_trains_and_resumes_in_the_midst_of_an_epoch(run_example, tmp_path, devices):
    needs("torch", "lightning")
    options = ("--devices", devices, "--save-every", 5)
    output = run_example("train_lightning.py", *options)
    assert fall(output), output
    half = EPOCHS // 2
    shutil.rmtree(tmp_path / "checkpoints")
    run_example("train_lightning.py", *options, "--epochs", half)
    # The last checkpoint is of step 45 of 48, or 20 of 24 on two devices.
    saved = tmp_path / "checkpoints/last.ckpt"
    again = run_example("train_lightning.py", *options, "--resume", saved)
    assert losses(again, half + 1)[1:] == losses(output)[half:]


def test_accelerate_on_two_ranks_goes_on_where_it_was(run_example, tmp_path):
    needs("torch", "accelerate")
    output = run_example("train_accelerate.py", ranks=2)
    assert fall(output) and f"over {RECORDS} samples" in output, output
    # Half the epochs, and then the rest: the same losses.
    state = ("--state", tmp_path / "half")
    first = run_example("train_accelerate.py", "--epochs", EPOCHS // 2, *state, ranks=2)
    rest = run_example("train_accelerate.py", *state, ranks=2)
    assert losses(first + rest) == losses(output)


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_trainer_of_transformers_resumes_in_the_midst_of_an_epoch(run_example, tmp_path, ranks):
    needs("torch", "accelerate", "transformers")

    def logged(output: str) -> list[dict[str, Any]]:
        lines = re.findall(r"^\{.*'loss'.*\}$", output, re.MULTILINE)
        values = [dict(re.findall(r"'(\w+)': '?([\d.e-]+)", line)) for line in lines]
        return [{"epoch": float(v["epoch"]), "loss": float(v["loss"])} for v in values]

    output = run_example("train_transformers.py", "--save-every", 5, ranks=ranks)
    whole = logged(output)
    assert [line["epoch"] for line in whole] == list(range(1, EPOCHS + 1)), output
    assert whole[-1]["loss"] < 0.7 * whole[0]["loss"], output
    for folder in (tmp_path / "trainer").iterdir():
        number = int(folder.name.rpartition("-")[2])
        if number > (40 if ranks == 0 else 20):  # 12 or 6 steps an epoch: both are inside one
            shutil.rmtree(folder)
    resumed = logged(run_example("train_transformers.py", "--resume", ranks=ranks))
    assert [line["epoch"] for line in resumed] == [4, 5, 6, 7, 8]
    assert [line["loss"] for line in resumed][1:] == pytest.approx(
        [line["loss"] for line in whole][4:], rel=1e-3
    )


def test_ray_train_on_two_workers(run_example):
    needs("torch", "pandas", "ray")
    output = run_example("train_ray.py")
    assert fall(output) and f"over {RECORDS} samples" in output, output


def test_jax_with_a_global_array_on_two_devices(run_example):
    needs("jax")
    alone = run_example("train_jax_sharded.py")
    output = run_example(
        "train_jax_sharded.py", XLA_FLAGS="--xla_force_host_platform_device_count=2"
    )
    assert fall(output) and "each batch on 2 devices" in output, output
    assert "each batch on 1 devices" in alone
    assert losses(output) == pytest.approx(losses(alone), abs=1e-3)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_with_either_backend(run_example, backend):
    needs("keras", backend)
    assert fall(run_example("train_keras.py", KERAS_BACKEND=backend))
