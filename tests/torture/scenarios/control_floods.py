"""Every flood of control.sock, one after the other, by a listed user while another one trains."""

from __future__ import annotations

import subprocess
import sys

import control_flood
from bombs import write_links
from daemon_process import OTHER_USER
from driver import Driver

from feedwater.control import Control, messages

from . import TINY, Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 4, "release": 60}  # seconds of each
LEAST_ANSWER_BYTES = 500_000  # of what `large_answers` asks for


def open_wide_job(siege: Siege) -> None:
    """Open the job whose ledger `large_answers` asks for, and check that the ledger is large."""
    stage, address = siege.stage, siege.daemon.address
    siege.daemon.add_pipeline("wide", TINY.replace("seed: 7", "seed: 7, last: pad"))
    trainer = Driver("cpp", address)
    stage.leave(trainer.kill)
    trainer.open("wide", job="wide", rank=0, world_size=8192, batch_size=2)
    with Control(address) as control:
        ledger = control.call("GetLedger", messages.GetLedgerRequest(job="wide", step=0), 60)
    size = ledger.ByteSize()
    stage.check("bytes of a large answer", size >= LEAST_ANSWER_BYTES, size,
                f">= {LEAST_ANSWER_BYTES}")  # fmt: skip


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    write_links(siege.daemon.data / "links")
    open_wide_job(siege)
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
