"""The real `feedwater` program, and data for it, for tests of the command line.

The program is the one of $FEEDWATER_BUILD_DIR, by default build/release.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from daemon_process import BUILD

PROGRAM = BUILD / "bin/feedwater"

_TIMEOUT_S = 120  # sanitizers and busy machines


@dataclass
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def document(self):
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list:
        """Standard output, which must be lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**changes: str | None) -> dict[str, str]:
    """Return this process's environment without what would change the program's output."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FEEDWATER_") and name != "NO_COLOR"
    }
    for name, value in changes.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    return kept


def run(
    *arguments,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Result:
    """Run the program without a terminal; `before` is called in its process first."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env or environment(),
        timeout=_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        preexec_fn=before,
    )
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    return Result(done.returncode, done.stdout, done.stderr)


def open_terminal() -> tuple[int, int]:
    """Return a pseudo-terminal's two ends; skip the test where there is none, as in a bare root."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be opened here: {error}")


def run_on_terminal(
    *arguments,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    columns: int | None = None,
) -> str:
    """Run the program with a terminal for its output; return all that came there."""
    master, slave = open_terminal()
    if columns is not None:
        termios.tcsetwinsize(slave, (24, columns))
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env=env or environment(TERM="xterm"),
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    process.wait(_TIMEOUT_S)
    return seen.decode(errors="replace")


def read_bmp(path: Path) -> np.ndarray:
    """Return the pixels of a 24 bit BMP file: uint8, (height, width, 3), RGB."""
    data = path.read_bytes()
    assert data[:2] == b"BM"
    start = int.from_bytes(data[10:14], "little")
    width = int.from_bytes(data[18:22], "little")
    height = int.from_bytes(data[22:26], "little")
    assert int.from_bytes(data[28:30], "little") == 24
    stride = (width * 3 + 3) // 4 * 4
    rows = np.frombuffer(data, np.uint8, height * stride, start).reshape(height, stride)
    return rows[::-1, : width * 3].reshape(height, width, 3)[:, :, ::-1]


def find(picture: np.ndarray, sheet: np.ndarray, tolerance: int = 0) -> list[tuple[int, int]]:
    """Return where the picture stands in the sheet, frame pixels left out, as (row, column)."""
    inner = picture[1:-1, 1:-1].astype(np.int16)
    height, width = inner.shape[:2]
    first = np.abs(sheet.astype(np.int16) - inner[0, 0]).max(axis=2) <= tolerance
    last = np.abs(sheet.astype(np.int16) - inner[-1, -1]).max(axis=2) <= tolerance
    near = first[: sheet.shape[0] - height + 1, : sheet.shape[1] - width + 1]
    far = last[height - 1 :, width - 1 :]
    places = []
    for row, column in zip(*np.nonzero(near & far)):
        part = sheet[row : row + height, column : column + width].astype(np.int16)
        if np.abs(part - inner).max() <= tolerance:
            places.append((int(row), int(column)))
    return places
