"""What the tests of client/examples share: a daemon with learnable pictures, and programs run as a
user runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import ROOT
from pictures import write_patterns

EXAMPLES = ROOT / "client/examples"
RECORDS = 192

PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: shapes}
sampler: {shuffle: full, seed: 5, last: drop}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: 16}
  - random_horizontal_flip: {in: image}
  - normalize: {in: image, mean: [127, 127, 127], std: [64, 64, 64], dtype: float32, layout: CHW}
batch: {size: 16}
outputs: [image, label, position]
"""

RAW = """version: 1
dataset: {format: image_folder, root: data, path: shapes}
sampler: {shuffle: none, last: partial}
graph:
  - decode: {in: data, out: image}
  - center_crop: {in: image, size: 16}
batch: {size: 50}
outputs: [image, is_real]
"""


@pytest.fixture
def daemon(make_daemon):
    """A daemon that serves 192 pictures of three classes as `shapes`, and raw as `pixels`."""
    daemon = make_daemon()
    write_patterns(daemon.data / "shapes", RECORDS)
    daemon.add_pipeline("shapes", PIPELINE)
    daemon.add_pipeline("pixels", RAW)
    daemon.start()
    return daemon


def command(script: str, *arguments: object, ranks: int = 0, restarts: int = 0) -> list[str]:
    """Return the command line of an example; `ranks` of 0 is a plain process without a launcher."""
    begin = [sys.executable]
    if ranks:
        begin += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        begin += [f"--max-restarts={restarts}"]
    return [*begin, str(EXAMPLES / script), *map(str, arguments)]


def environment(daemon) -> dict[str, str]:
    """Return the environment of a trainer."""
    return {
        **os.environ,
        "FEEDWATER_ADDRESS": daemon.address,
        "OMP_NUM_THREADS": "1",  # sums are the same in every run
        "JAX_PLATFORMS": "cpu",  # each process would take most of a GPU's memory
        # torch 2.13 gives restarted ranks the store of those before them, with the addresses of
        # dead processes in it, unless this is set.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def run(daemon, arguments: list[str], cwd: Path) -> str:
    """Run to the end; return what it printed."""
    done = subprocess.run(
        arguments, cwd=cwd, env=environment(daemon), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout
