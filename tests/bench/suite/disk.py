"""What fio reads from the disk below TMPDIR, to compare with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from . import Context

FILE_BYTES = 2 << 30


def pinned(cpu: int, *command: object) -> str:
    """Run a command on a CPU and return what it prints."""
    whole = ["taskset", "-c", str(cpu), *map(str, command)]
    return subprocess.run(whole, capture_output=True, text=True, check=True).stdout


def big_file(context: Context) -> Path:
    """Return a file to read from."""
    path = context.folder / "file"
    if not path.exists():
        with open(path, "wb") as file:
            for _ in range(FILE_BYTES >> 24):
                file.write(os.urandom(1 << 20) * 16)
    return path


def fio(
    context: Context, cpu: int, block: int, depth: int, order: str, direct: int, seconds: float
) -> float:
    """Return bytes a second of fio with io_uring; `order` is sequential or random."""
    text = pinned(
        cpu, "fio", "--name=read", f"--filename={big_file(context)}", "--ioengine=io_uring",
        f"--bs={block}", f"--iodepth={depth}",
        f"--rw={'read' if order == 'sequential' else 'randread'}", f"--direct={direct}",
        "--time_based", f"--runtime={seconds:.1f}", "--output-format=json", "--invalidate=0",
        "--readonly",
    )  # fmt: skip
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"]
