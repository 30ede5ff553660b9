"""The example plug-in, built out of the tree against an installed package, in a real daemon.

The pixels are those that NumPy computes, and what `random_vignette` draws is computed here from
seed, epoch and record, as server/base/philox.h says.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD
from installed import build_example, build_project
from pictures import pixels as picture
from pictures import write_folder

import feedwater

RECORDS, SEED = 12, 77
PIPELINE = """version: 1
dataset: {{format: image_folder, root: data, path: pictures}}
sampler: {{shuffle: full, seed: 77}}
graph:
  - decode: {{in: data, out: image}}
  - center_crop: {{size: 8}}
  - {op}
batch: {{size: 4}}
outputs: [image, sample_id]
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    return build_example("plugin", tmp_path_factory.mktemp("plugin")) / "vignette.so"


@pytest.fixture
def start(make_daemon, plugin):
    """Start a daemon that has the plug-in, with these lines in its configuration."""

    def started(more: str, ops: dict[str, str]):
        daemon = make_daemon(config=f"cpus: 2\nmemory: 1GiB\nplugins: [plugins/my.so]\n{more}")
        (daemon.folder / "plugins").mkdir(mode=0o755)
        installed = daemon.folder / "plugins/my.so"
        shutil.copyfile(plugin, installed)
        installed.chmod(0o644)
        write_folder(daemon.data / "pictures", RECORDS)
        for name, op in ops.items():
            daemon.add_pipeline(name, PIPELINE.format(op=op))
        daemon.start()
        return daemon

    return started


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Return the four words of Philox4x32-10."""
    for _ in range(10):
        high, low = zip(
            *(divmod(m * c, 1 << 32) for m, c in zip((0xD2511F53, 0xCD9E8D57), counter[::2]))
        )
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [(key[0] + 0x9E3779B9) % (1 << 32), (key[1] + 0xBB67AE85) % (1 << 32)]
    return counter


def uniforms(seed: int, epoch: int, record: int, op: int) -> list[float]:
    """Return the first four draws from [0, 1) of an op for a record."""
    key = philox([epoch, 0, 0x66656564, 0], [seed, 0])[:2]
    return [word * 2.0**-32 for word in philox([record, 0, op, 0], key)]


def vignette(image, strength, radius, middle_y=0.5, middle_x=0.5):
    """Return what the op makes of an image, in float32 as the op computes it."""
    f = np.float32
    height, width, _ = image.shape
    half = f(0.5) * np.sqrt(f(height * height + width * width))
    x = (np.arange(width, dtype=f) + f(0.5) - f(middle_x) * f(width)) / half
    y = (np.arange(height, dtype=f) + f(0.5) - f(middle_y) * f(height)) / half
    distance = np.sqrt((y * y)[:, None] + (x * x)[None, :])
    beyond = np.maximum(f(0), distance - f(radius))
    factor = np.maximum(f(0), f(1) - f(strength) * beyond * beyond)
    return (factor[..., None] * image.astype(f) + f(0.5)).astype(np.uint8)


def cropped(number: int) -> np.ndarray:
    image = picture(number)
    top, left = round((image.shape[0] - 8) / 2), round((image.shape[1] - 8) / 2)
    return image[top : top + 8, left : left + 8]


def epochs(daemon, name: str, count: int = 2) -> list[dict[int, np.ndarray]]:
    """Return what the first epochs make of each record."""
    seen = []
    with feedwater.Loader(name, address=daemon.address, output="numpy") as loader:
        for _ in range(count):
            seen.append({})
            for image, ids in loader:
                seen[-1].update(zip(ids.tolist(), np.array(image)))
    return seen


def command(*arguments: object) -> subprocess.CompletedProcess:
    words = [str(BUILD / "bin/feedwater"), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True)


OPS = {
    "plain": "vignette: {strength: 2.5, radius: 0.1}",
    "default": "vignette",
    "drawn": "random_vignette: {strength: 3, radius: 0}",
}


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("cache", ["none", "decoded"])
def test_batches_are_those_that_numpy_computes(start, isolation, cache):
    daemon = start(f"isolation: {isolation}\n", {})
    for name, op in OPS.items():
        text = PIPELINE.format(op=op) + f"cache: {{kind: {cache}}}\n"
        daemon.add_pipeline(name, text)
    for seen in epochs(daemon, "plain"):
        assert sorted(seen) == list(range(RECORDS))
        for number, image in seen.items():
            np.testing.assert_array_equal(image, vignette(cropped(number), 2.5, 0.1))
    for number, image in epochs(daemon, "default", 1)[0].items():
        np.testing.assert_array_equal(image, vignette(cropped(number), 0.8, 0.2))
    for epoch, seen in enumerate(epochs(daemon, "drawn")):
        for number, image in seen.items():
            strength, y, x, _ = uniforms(SEED, epoch, number, op=2)
            expected = vignette(cropped(number), 3 * strength, 0, 0.25 + y / 2, 0.25 + x / 2)
            np.testing.assert_array_equal(image, expected)


def test_the_command_line_knows_its_ops(start):
    daemon = start("", {"plain": OPS["plain"]})
    file = daemon.pipelines / "plain.yaml"
    for where in (["--config", daemon.config], ["--address", daemon.address]):
        done = command("describe", "op", "vignette", *where)
        assert done.returncode == 0, done.stderr
        assert "Darkens an image towards its corners." in done.stdout
        assert "version 1" in done.stdout and "my.so" in done.stdout
        assert "random_vignette" in command("describe", "op", *where).stdout
        done = command("validate", file, *where)
        assert done.returncode == 0, done.stderr
        assert "vignette" in done.stdout
        done = command("graph", file, *where)
        assert done.returncode == 0, done.stderr
        assert "vignette" in done.stdout
    wrong = daemon.folder / "wrong.yaml"
    wrong.write_text(PIPELINE.format(op="vignette: {strength: 5}"))
    done = command("validate", wrong, "--config", daemon.config)
    assert done.returncode == 2
    assert f"{wrong}:7:" in done.stderr
    assert "'strength' must be between 0 and 4, not 5" in done.stderr
    done = command("reference", "reference/ops.md", "--config", daemon.config)
    assert "### random_vignette" in done.stdout and "* **Plug-in:** `" in done.stdout
    done = command("reference", "schema/pipeline.schema.json", "--config", daemon.config)
    assert '"random_vignette"' in done.stdout
    done = command("verify", "plain", "--config", daemon.config)
    assert done.returncode == 0, done.stderr


def test_without_its_configuration_nobody_knows_its_ops(start, tmp_path):
    start("", {})
    file = tmp_path / "plain.yaml"
    file.write_text(PIPELINE.format(op=OPS["plain"]))
    done = command("--address", tmp_path, "validate", file)
    assert done.returncode == 2
    assert f"{file}:7:" in done.stderr and "unknown op 'vignette'" in done.stderr


def test_a_pipeline_in_python_takes_its_ops(start):
    daemon = start("", {})
    pipeline = feedwater.Pipeline(
        dataset={"format": "image_folder", "root": "data", "path": "pictures"},
        graph=[{"decode": {}}, {"center_crop": {"size": 8}}, {"vignette": {"strength": 2.5}}],
        batch=4,
        outputs=["image", "sample_id"],
    )
    with feedwater.Loader(pipeline, address=daemon.address, output="numpy") as loader:
        for image, ids in loader:
            for number, one in zip(ids.tolist(), image):
                np.testing.assert_array_equal(one, vignette(cropped(number), 2.5, 0.2))


def test_a_state_of_another_version_of_the_op_is_refused(start, plugin, tmp_path):
    daemon = start("", {"plain": OPS["plain"]})
    with feedwater.Loader("plain", address=daemon.address, output="numpy") as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert daemon.stop() == 0
    built = plugin.parent.parent
    shutil.copytree(built / "source", tmp_path / "source")
    source = tmp_path / "source/vignette.c"
    source.write_text(source.read_text().replace('.version = "1"', '.version = "2"'))
    build_project(tmp_path / "source", tmp_path / "build", built / "prefix")
    shutil.copyfile(tmp_path / "build/vignette.so", daemon.folder / "plugins/my.so")
    daemon.start()
    with feedwater.Loader("plain", address=daemon.address, output="numpy") as loader:
        with pytest.raises(feedwater.FailedPrecondition, match="belongs to another pipeline"):
            loader.load_state_dict(state)
