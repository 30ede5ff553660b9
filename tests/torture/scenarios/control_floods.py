"""Every flood of control.sock, one after the other, by a listed user while another one trains."""

from __future__ import annotations

import subprocess
import sys

import control_flood
from bombs import write_links
from daemon_process import OTHER_USER

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 4, "release": 60}  # seconds of each


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    write_links(siege.daemon.data / "links")
    for kind in control_flood.KINDS:
        if stage.time_is_up():
            break
        command = [sys.executable, control_flood.__file__, siege.daemon.address, OTHER_USER, kind,
                   stage.settings.count]  # fmt: skip
        with siege.attack(kind) as counts:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode != 0:
                stage.wrong("attackers that ended badly", done.stderr[-500:])
            counts["bytes_sent"] = int(done.stdout or 0)
        stage.done = stage.settings.count
    siege.end()
