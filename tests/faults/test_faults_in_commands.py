"""Errors of storage in commands that read by themselves: as in the daemon, never a bad record."""

from __future__ import annotations

import errno
import os
import re
import struct
import subprocess

import pytest
from daemon_process import BUILD
from faults import LIBRARY
from pictures import write_folder

COMMANDS = BUILD / "bin/feedwater-commands"
PIPELINE = """version: 1
dataset: {format: image_folder, root: data, path: pictures}
graph:
  - decode: {in: data, out: image}
  - resize: {size: [8, 8]}
outputs: [image]
"""


@pytest.fixture
def call(tmp_path):
    """Return a function that runs a command over twelve pictures of which no read goes well."""
    for program in (COMMANDS, LIBRARY):
        if not program.exists():
            pytest.skip(f"{program} is not built")
    (tmp_path / "state").mkdir()
    write_folder(tmp_path / "data/pictures", 12)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    config = tmp_path / "feedwater.yaml"
    config.write_text(
        "version: 1\nstate_dir: state\npipelines: []\nroots: {data: data}\ncpus: 2\nmemory: 1GiB\n"
        "numa_node: none\npin_cpus: false\nstorage: {engine: pread}\nisolation: none\n"
    )

    def run(*arguments: str, fails: int = 0) -> subprocess.CompletedProcess:
        rules = f"read errno={fails} count=0 path=pictures/ caller=any".encode() if fails else b""
        plan = tmp_path / "faults"  # as struct Board of fault_injection.cc
        plan.write_bytes(struct.pack("<I36xI", 1, len(rules)) + rules)
        os.truncate(plan, 4096)
        command = [COMMANDS, *arguments, "--config", config]
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env={
                **os.environ,
                "LD_PRELOAD": str(LIBRARY),
                "FEEDWATER_FAULT_PLAN": str(plan),
                "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0",
            },
        )

    return run


@pytest.mark.parametrize("command", [["verify"], ["index", "--seek"]])
@pytest.mark.parametrize("name", ["ENXIO", "EUCLEAN"])
def test_an_error_of_storage_ends_the_command(call, command, name):
    good = call(*command, "./p.yaml")
    assert good.returncode == 0, good.stderr
    failed = call(*command, "./p.yaml", fails=getattr(errno, name))
    assert failed.returncode == 1, failed
    assert failed.stdout == "", "no record is bad"
    text = re.escape(os.strerror(getattr(errno, name)))
    assert re.search(rf"record \d+.*{text}", failed.stderr), failed.stderr
