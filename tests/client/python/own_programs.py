"""Programs that serve a dataset of their own, for tests of what becomes of their processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]  # where own_datasets is
# What a program of a test begins with.
PROGRAM = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import own_datasets as own
import feedwater
"""


def run(text: str, *arguments: str, folder: Path) -> subprocess.Popen:
    """Start a program that is a file."""
    script = folder / "program.py"
    script.write_text(PROGRAM + text)
    return subprocess.Popen(
        [sys.executable, script, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )  # fmt: skip


MINE = """
class Mine(own.Numbers):
    pass

def main():
    served = feedwater.serve_source("mine", Mine(), workers=2, address=sys.argv[1])
    print("serving", flush=True)
    sys.stdin.readline()
"""
