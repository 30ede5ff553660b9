"""Trainers killed at random moments, under decode load; each resumes from its saved state.

Three trainers at a time live for some milliseconds each, while a fourth one, which nobody touches,
keeps the daemon decoding. One in ten is a Python process. How long a dead one's session lasted is
taken from the daemon's log, to the millisecond.
"""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path

from . import Stage
from .leftovers import DaemonStatus, Leftovers, becomes

COUNTS = {"ci": 100, "release": 3000}
VICTIMS = 3
LONGEST_LIFE_S = 0.05  # between two kills
PYTHON_EVERY = 10
PYTHON_START_S = 1.0  # it takes that long before it trains
ENDED = re.compile(r"^(\S+ \S+) debug .*data connection of process (\d+) .*: reclaimed_", re.M)


def session_ends(log: Path) -> list[tuple[int, float]]:
    """Return process and time of all ends of sessions, by the daemon's log."""
    return [
        (int(pid), datetime.datetime.strptime(when, "%Y-%m-%d %H:%M:%S.%f").timestamp())
        for when, pid in ENDED.findall(log.read_text(errors="replace"))
    ]


def run(stage: Stage) -> None:
    """Do it."""
    daemon = stage.daemon(options=("--log-level", "debug"))
    golden = stage.golden(daemon, world=2)
    load_golden = stage.golden(daemon, world=1, batch=16)
    leftovers = Leftovers(stage, daemon)
    status = DaemonStatus(daemon.address)
    load = stage.trainer("cpp", daemon.address, load_golden, 0, "load")
    victims = [
        stage.trainer("cpp", daemon.address, golden, number % 2, f"victim-{number}")
        for number in range(VICTIMS)
    ]
    kills: list[tuple[int, float, float]] = []  # of those who had a session; till they were gone
    resumed = 0
    for number in stage.rounds():
        if number == stage.settings.count // 5:
            leftovers.memory_starts_here()
        time.sleep(stage.rng.uniform(0, LONGEST_LIFE_S))
        chosen = number % VICTIMS
        victim = victims[chosen]
        if victim.client == "python":
            time.sleep(max(0, victim.since_s + PYTHON_START_S - time.monotonic()))
        had_rank = status.has_process(victim.pid)
        killed_s = time.time()
        victim.kill()
        if not becomes(lambda pid=victim.pid: not status.has_process(pid)):
            stage.wrong("sessions that outlive their process", f"{victim.job}, pid {victim.pid}")
        if had_rank:
            kills.append((victim.pid, killed_s, victim.died_s))
        resumed += victim.saved.state is not None
        python = (number // VICTIMS) % PYTHON_EVERY == PYTHON_EVERY // 2 and chosen == 0
        victims[chosen] = victim.again("python" if python else "cpp")
    delivered = load.batches
    for trainer in (*victims, load):
        trainer.kill()
    status.close()
    ends = session_ends(daemon.log)
    reclaims, outlived = [], []
    for pid, when, died_s in kills:
        # The log has milliseconds. A number may come again, for another process, much later.
        after = [end - when for other, end in ends if other == pid and end > when - 0.002]
        if after:
            reclaims.append(max(0.0, after[0]))
            outlived.append(max(0.0, after[0] + when - died_s))
    stage.figures |= {"resumed": resumed, "killed_with_a_session": len(kills),
                      "batches_of_the_untouched": delivered}  # fmt: skip
    stage.none_wrong(
        "batches with wrong bytes", "batches lost or repeated", "epochs cut short",
        "errors that a trainer saw", "trainers that ended by themselves", "trainers that hang",
        "sessions that outlive their process",
    )  # fmt: skip
    stage.check("batches of the trainer that nobody touched", delivered > 0, delivered, "> 0")
    stage.check("ends of sessions in the daemon's log", len(reclaims) == len(kills),
                len(reclaims), len(kills))  # fmt: skip
    stage.check("lives that went on from a saved state", resumed > 0, resumed, "> 0")
    leftovers.check()
    # The kernel needs CPU time to end a process, thread by thread; what comes after that is ours.
    stage.times("from the kill to the end of the session", reclaims, 0.99, 0.050)
    stage.times("from the end of the process to that of the session", outlived, 0.99, 0.020)
