"""Hostile messages on both sockets, by another user where the tests run as root, with a bystander.

The daemon has `memory: 512MiB` in a control group, and is watched as in a siege. The bystander's
batches are compared byte for byte. It wants three tenths of what the daemon could give it, as a
trainer with a step time does: sessions that begin rightly have a fair share of the workers,
whatever they are up to afterwards, and that is no harm. Its rate is taken by turns with and without
the attack, on CPUs of its own where there are four.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time

from daemon_process import BUILD, OTHER_USER, other_users

from . import Stage
from .leftovers import Leftovers
from .siege import BUDGET_MIB, MemoryGroup, Watch

COUNTS = {"ci": 100_000, "release": 10_000_000}  # messages
TURNS = {True: 10, False: 3}  # pairs of turns, judging times or not
QUIET_S = {True: 5.0, False: 1.0}
LEAST_RATE = 0.95
BATCH = 16
CPUS = sorted(os.sched_getaffinity(0))
DEMAND = 0.3  # of what the bystander gets alone


def flood(stage: Stage, address: str, messages: int, seed: int) -> dict:
    """Attack. Return what the attacker counted; empty when it ended badly."""
    command = [BUILD / "tools/hostile_flood", address, "--messages", str(messages), "--seed",
               str(seed), "--threads", "2", "--pipeline", "tiny"]  # fmt: skip
    if other_users():
        command += ["--uid", str(OTHER_USER)]
    if len(CPUS) >= 4:
        command = ["taskset", "-c", str(CPUS[3]), *command]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        stage.wrong("attackers that ended badly", f"{done.returncode}: {done.stderr[-500:]}")
        return {}


def run(stage: Stage) -> None:
    """Do it."""
    roomy = len(CPUS) >= 4
    pinned = f'cpus: "{CPUS[0]},{CPUS[1]}"\n' if roomy else "cpus: 2\npin_cpus: false\n"
    group = MemoryGroup(stage)
    daemon = stage.daemon(pinned + f"memory: {BUDGET_MIB}MiB\n", prefix=group.command())
    golden = stage.golden(daemon, world=1, batch=BATCH)
    leftovers = Leftovers(stage, daemon, margin_mib=32)
    pid = daemon.process.pid
    prefix = ("taskset", "-c", str(CPUS[2])) if roomy else ()
    bystander = stage.trainer("cpp", daemon.address, golden, 0, "bystander", prefix=prefix)
    watch = Watch(stage, daemon, group)
    stage.leave(watch.end)
    time.sleep(1)
    judged = stage.settings.judge_times
    turns = min(TURNS[judged], stage.settings.count)
    ratios, counts = [], {}
    wanted, sent, seconds = stage.settings.count, 0, 0.0

    def quiet_rate() -> float:
        before = bystander.batches
        time.sleep(QUIET_S[judged])
        return (bystander.batches - before) / QUIET_S[judged]

    bystander.period_s = 1 / max(1.0, DEMAND * quiet_rate())
    before = quiet_rate()
    for turn in range(turns):
        if stage.time_is_up():
            break
        began, batches = time.monotonic(), bystander.batches
        document = flood(stage, daemon.address, wanted // turns, stage.rng.randrange(1 << 31))
        took = time.monotonic() - began
        during = (bystander.batches - batches) / took
        after = quiet_rate()
        if before + after > 0:
            ratios.append(during / ((before + after) / 2))
        before = after
        sent += document.get("messages", 0)
        seconds += took
        for what, count in document.get("counts", {}).items():
            counts[what] = counts.get(what, 0) + count
        stage.done = sent
        stage.settings.progress(f"protocol: {sent} of {wanted} messages")
        if turn == 0:
            leftovers.memory_starts_here()
    stage.done = sent
    rate = statistics.median(ratios) if ratios else 0.0
    seen = watch.figures()
    watch.end()
    batches = bystander.batches
    bystander.kill()
    stage.figures |= {
        "attacker": counts,
        "messages_per_s": round(sent / max(seconds, 1e-9)),
        "bystander_rates": [round(ratio, 3) for ratio in ratios],
        "bystander_batches": batches,
        "watched": seen,
    }
    stage.none_wrong(
        "attackers that ended badly", "batches with wrong bytes", "batches lost or repeated",
        "errors that a trainer saw", "trainers that ended by themselves", "trainers that hang",
        "opens refused",
    )  # fmt: skip
    same = daemon.alive() and daemon.process.pid == pid
    stage.check("the daemon lives", same, same, True)
    stage.check("messages sent", sent > 0, sent, "> 0")
    stage.check("sessions that began rightly", counts.get("sessions", 0) > 0,
                counts.get("sessions", 0), "> 0")  # fmt: skip
    stage.check("calls without an answer in 20 s", counts.get("calls_hung", 0) == 0,
                counts.get("calls_hung", 0), 0)  # fmt: skip
    stage.check("batches of the bystander", batches > 0, batches, "> 0")
    watch.check({"hostile messages": seen})
    leftovers.check()
    stage.check("the bystander's rate under attack, of its own", rate >= LEAST_RATE,
                f"{rate:.3f}", f">= {LEAST_RATE}", timing=True)  # fmt: skip
