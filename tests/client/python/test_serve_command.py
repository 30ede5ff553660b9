"""`python -m feedwater.serve`: a dataset or an op served from a shell, against a fake daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from fake_asker import MADE
from own_processes import PATIENCE_S, is_alive, processes_of, wait_for
from own_programs import HERE


def test_the_command_serves_until_it_is_ended(daemon):
    for number in (signal.SIGTERM, signal.SIGINT):
        program = subprocess.Popen(
            [sys.executable, "-m", "feedwater.serve", "own_datasets:Numbers", "--as", "source",
             "--name", "mine", "--workers", "2", "--address", str(daemon.directory)],
            cwd=HERE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stderr.readline().startswith("serving <feedwater source 'mine' at")
        wait_for(lambda: daemon.askers[-1].get(3)[0].code == MADE)
        program.send_signal(number)
        _, told = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0 and told == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["import", "dataset", "start"])
def test_the_command_ends_when_it_is_told_to_before_it_serves(daemon, folder, number, where):
    is_here = "fork_server.is_here" if where == "start" else "not fork_server.is_here"
    indent = "    " if where == "dataset" else ""
    (folder / "slow.py").write_text(
        "import os, time\nfrom feedwater import fork_server\nfrom own_datasets import Numbers\n"
        f"def data():\n    pass\n{indent}if {is_here}:\n"
        f"{indent}    open(os.environ['WAITS'], 'w').close()\n{indent}    time.sleep(1000)\n"
        "class Slow(Numbers): pass\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-m", "feedwater.serve", "slow:data" if where == "dataset" else
         "slow:Slow", "--as", "source", "--name", "mine", "--address", str(daemon.directory)],
        cwd=folder, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "WAITS": str(folder / "waits"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        wait_for((folder / "waits").exists)
        mine = processes_of(program.pid)
        program.send_signal(number)
        _, told = program.communicate(timeout=PATIENCE_S)
    finally:
        program.kill()
    assert program.returncode == 0 and told == ""
    wait_for(lambda: not any(map(is_alive, mine)))
    assert daemon.askers == []


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["own_datasets", "--as", "op", "--name", "a"], "is not MODULE:OBJECT"),
        (["own_datasets:nothing", "--as", "op", "--name", "a"], "has no 'nothing'"),
        (["no_such_module:x", "--as", "op", "--name", "a"], "cannot import 'no_such_module'"),
        (["own_datasets:Stream", "--as", "source", "--name", "a"], "is an iterable dataset"),
        (["own_datasets:DARK", "--as", "source", "--name", "a"], "DARK is of type int: a source"),
        (["own_datasets:Large", "--as", "source", "--name", "a"], "cannot make a dataset without"),
        (["own_datasets:double", "--as", "source", "--name", "a"], "cannot make a dataset without"),
        (["own_datasets:DARK", "--as", "op", "--name", "a"], "fn is 60: it is a function"),
        (["own_datasets:double", "--as", "thing", "--name", "a"], "invalid choice: 'thing'"),
    ],
)
def test_the_command_refuses_what_cannot_work(arguments, text):
    done = subprocess.run(
        [sys.executable, "-m", "feedwater.serve", *arguments], cwd=HERE, capture_output=True,
        text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 2 and text in done.stderr


def test_the_command_says_that_its_working_directory_was_removed(tmp_path):
    command = f"{sys.executable} -m feedwater.serve own_datasets:double --as op --name a"
    done = subprocess.run(
        ["sh", "-c", f"mkdir gone && cd gone && rmdir ../gone && {command}"], cwd=tmp_path,
        capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 2 and "was removed: cd elsewhere" in done.stderr
