"""The C++ consumer, built as a user would: against an installed client, by find_package alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import RECORDS, environment
from daemon_process import BUILD
from installed import build_example
from pictures import pattern


def compiler() -> list[str]:
    """Return the options that choose the compiler and flags of the build under test."""
    wanted = ("CMAKE_CXX_COMPILER:", "CMAKE_CXX_FLAGS:", "CMAKE_BUILD_TYPE:")
    cache = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return ["-D" + line for line in cache if line.startswith(wanted)]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The program, from the client that `cmake --install` puts into an empty folder."""
    folder = tmp_path_factory.mktemp("consumer")
    return build_example("consumer", folder, *compiler()) / "channel_means"


def test_it_prints_the_means_of_all_channels(program, daemon):
    done = subprocess.run(
        [program, "pixels"], env=environment(daemon), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == f"{RECORDS} images"
    assert [line.split()[:3] for line in lines] == [["channel", str(c), "mean"] for c in range(3)]
    pictures = np.stack([pattern(number, RECORDS) for number in range(RECORDS)])
    means = [float(line.split()[3]) for line in lines]
    np.testing.assert_allclose(means, pictures.reshape(-1, 3).mean(axis=0), rtol=1e-5)


def test_channels_in_front_are_told_from_channels_at_the_end(program, daemon):
    """`shapes` is float32 CHW: (value - 127) / 64 of the same pixels."""
    done = subprocess.run(
        [program, "shapes"], env=environment(daemon), capture_output=True, text=True
    )
    pictures = np.stack([pattern(number, RECORDS) for number in range(RECORDS)])
    expected = (pictures.reshape(-1, 3).mean(axis=0) - 127) / 64
    means = [float(line.split()[3]) for line in done.stdout.splitlines()[1:]]
    np.testing.assert_allclose(means, expected, rtol=1e-3)


def test_errors_say_what_to_do(program, daemon, folder):
    environ = environment(daemon)
    done = subprocess.run([program, "shape"], env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("channel_means: ") and "shapes" in done.stderr
    environ["FEEDWATER_ADDRESS"] = str(folder / "nowhere")
    done = subprocess.run([program, "shapes"], env=environ, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no feedwaterd at" in done.stderr and "FEEDWATER_ADDRESS" in done.stderr
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: channel_means PIPELINE\n")


def test_a_picture_that_cannot_be_decoded_is_named(program, daemon):
    path = daemon.data / "shapes/dog/000100.png"
    path.write_bytes(path.read_bytes()[:100])
    done = subprocess.run(
        [program, "pixels"], env=environment(daemon), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "record 100, " in done.stderr and "dog/000100.png" in done.stderr
    assert "on_bad_sample: substitute" in done.stderr
