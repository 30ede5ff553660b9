"""The daemon killed under four trainers: to them it is a pause.

Four ranks of one job, one of them in Python. The daemon comes back with another storage engine each
time. A trainer's first batch after the restart is timed from the start of the new process.
"""

from __future__ import annotations

import time

from daemon_process import DAEMON

from . import HANG_S, Stage
from .leftovers import becomes

COUNTS = {"ci": 20, "release": 500}
CLIENTS = ("cpp", "cpp", "cpp", "python")
ENGINES = ("pread", "auto")
ARENA = "/memfd:feedwater-arena (deleted)"


def run(stage: Stage) -> None:
    """Do it."""
    daemon = stage.daemon()
    golden = stage.golden(daemon, world=len(CLIENTS))
    trainers = [
        stage.trainer(client, daemon.address, golden, rank, "train")
        for rank, client in enumerate(CLIENTS)
    ]
    becomes(lambda: all(trainer.batches for trainer in trainers), HANG_S)
    pauses: list[float] = []
    for number in stage.rounds():
        time.sleep(stage.rng.uniform(0, 0.2))
        daemon.kill()
        # What the dead one had lent is read to its end, so that the next batch is a new one's.
        becomes(lambda: time.monotonic() - max(t.last_s for t in trainers) > 0.03, 2)
        time.sleep(stage.rng.uniform(0, 0.1))
        before = [trainer.batches for trainer in trainers]
        daemon.command = [DAEMON, "--set", f"storage.engine={ENGINES[number % 2]}"]
        started_s = time.monotonic()
        daemon.start()
        for trainer, count in zip(trainers, before):
            if becomes(lambda t=trainer, n=count: t.batches > n or not t.is_alive(), HANG_S):
                pauses.append(time.monotonic() - started_s)
            else:
                stage.wrong("trainers that hang", f"{trainer.job} rank {trainer.rank}")
    for trainer in trainers:
        if not trainer.is_alive():
            continue
        # The last batch of the old one may be in the trainer's hands for a moment.
        if not becomes(lambda t=trainer: t.fd_kinds()[ARENA] <= 1):
            stage.wrong("arenas that a trainer still holds", f"rank {trainer.rank}")
    for trainer in trainers:
        trainer.kill()
    stage.figures["batches"] = sum(trainer.batches for trainer in trainers)
    stage.none_wrong(
        "batches with wrong bytes", "batches lost or repeated", "epochs cut short",
        "errors that a trainer saw", "trainers that ended by themselves", "trainers that hang",
        "arenas that a trainer still holds",
    )  # fmt: skip
    stage.times("from the daemon's restart to a trainer's first batch", pauses, 0.95, 2.0)
