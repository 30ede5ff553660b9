"""Arenas opened again through /proc and kept in every way, by a listed user who hangs up each time,
over 200 sessions, while another one trains.
"""

from __future__ import annotations

import json
import subprocess
import sys

import arena_hoard
from daemon_process import OTHER_USER

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 200, "release": 5000}  # sessions


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    command = [sys.executable, arena_hoard.__file__, siege.daemon.address, OTHER_USER, "photos",
               stage.settings.count]  # fmt: skip
    with siege.attack("arenas kept") as counts:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            stage.wrong("attackers that ended badly", done.stderr[-500:])
        counts.update(json.loads(done.stdout or "{}"))
    stage.done = counts["sessions"]
    stage.check("sessions", stage.done == stage.settings.count, stage.done, stage.settings.count)
    stage.check("sessions refused meanwhile", counts["refused"] > 0, counts["refused"], "> 0")
    siege.end()
