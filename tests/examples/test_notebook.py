"""A notebook's habits: `Out` keeps what each cell shows, cells are interrupted and run again."""

from __future__ import annotations

import sys

import pytest
from conftest import run

pytest.importorskip("torch")
pytest.importorskip("IPython")

# Runs cells as a notebook's kernel does: a cell's last expression is shown, and kept in `Out`.
KERNEL = """
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()


def cell(text):
    return shell.run_cell(text, store_history=True)


def works(text):
    result = cell(text)
    assert result.success, result


works("import feedwater, os, signal, threading")
works("loader = feedwater.Loader('shapes'); batches = iter(loader)")
for step in range(10):
    works("image, label, position = next(batches); image")
works("assert len(Out) == 10")
works("again = [loader.replay(step)[0] for step in range(10)]")
works("assert all((a == b).all() for a, b in zip(Out.values(), again))")

loop = Path("loop.py").read_text()
works("interrupt = True")
assert isinstance(cell(loop).error_in_exec, KeyboardInterrupt)
works("interrupt = False")
works(loop)
works("assert sorted(seen) == list(range(192))")

works("everything = list(loader)")
works("assert sorted(p for batch in everything for p in batch[2].tolist()) == list(range(192))")
works("assert loader.stats()['spilled'] > 0")
print("every cell ran")
"""

LOOP = """
seen = []
if interrupt:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
for image, label, position in loader:
    seen.extend(position.tolist())
    if interrupt:
        threading.Event().wait(0.1)
"""


def test_a_notebook_session_does_not_stall_and_leaves_nothing(daemon, tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    (tmp_path / "loop.py").write_text(LOOP)
    opened = daemon.settled_file_descriptors()
    for _ in range(2):  # the kernel is restarted
        said = run(daemon, [sys.executable, str(script)], tmp_path)
        assert said.endswith("every cell ran\n")
    left = daemon.settled_file_descriptors() - opened
    assert not [name for name in left if "arena" in name or "socket" in name], left
