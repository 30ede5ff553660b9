"""A training program forks: DataLoader workers, notebook launchers, a subprocess with another user.

A fork waits for gRPC's own threads (its pthread_atfork handlers), which do not always end while
gRPC is being shut down: such a fork never returned. The programs run by themselves, so that one
that hangs is a failed test.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from pictures import write_folder

PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
sampler: {shuffle: full, seed: 9}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
batch: {size: 4}
outputs: [image, sample_id]
"""

PROGRAM = """
import os, signal, sys
import feedwater

def epoch(**more):
    options = {"address": sys.argv[1], "output": "numpy", **more}
    with feedwater.Loader("pictures", **options) as loader:
        return [ids.tolist() for _, ids in loader]

def in_a_child(action):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if action() else 1)
    assert os.waitpid(child, 0)[1] == 0

expected = epoch()
for turn in range(150):
    with feedwater.Loader("pictures", address=sys.argv[1], output="numpy") as loader:
        next(iter(loader))
        if turn % 2:
            in_a_child(lambda: True)
    in_a_child(lambda: turn % 10 or epoch() == expected)
print("done")
"""


@pytest.mark.parametrize("before", ["", "import grpc; grpc.insecure_channel('unix:/x').close()\n"])
def test_a_program_that_forks_goes_on_and_its_children_open_their_own(make_daemon, before):
    daemon = make_daemon()
    write_folder(daemon.data / "pictures", 16)
    daemon.add_pipeline("pictures", PIPELINE)
    daemon.start()
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM, daemon.address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
