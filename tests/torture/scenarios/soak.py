"""Four jobs of two users, and something bad every ten seconds, for as long as you like.

Trainers killed, stopped and continued, the daemon killed, restarted and reloaded with good and bad
files, bursts of hostile messages, dataset files truncated under a fifth job. Every batch of the
four is compared byte for byte.
"""

from __future__ import annotations

import os
import signal
import statistics
import time

from daemon_process import BUILD, OTHER_USER, other_users

from . import HANG_S, PIPELINE, Stage, Trainer
from .leftovers import Leftovers, becomes, settled
from .protocol import flood

COUNTS = {"ci": 9, "release": 180}  # events
EVERY_S = {False: 1.0, True: 10.0}
LEAST_RATE = 0.97
LEAST_TENTH = 5  # samples of the daemon's memory, which is restarted now and then
MARGIN_KIB = 16 * 1024
BURST_KIB = 40 * 1024  # and what a burst of hostile messages needs while it lasts
SCRATCH = PIPELINE.replace("path: photos", "path: scratch").replace(
    "graph:", "on_bad_sample: substitute\nMOREgraph:"
)


def resident_kib(pid: int) -> int:
    """Return a process's anonymous memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


class Chaos:
    """The jobs, the daemon, and what happens to them."""

    def __init__(self, stage: Stage) -> None:
        from .files import knows_max_bad_fraction

        self.stage = stage
        self.daemon = daemon = stage.daemon()
        stage.photos(daemon.data / "scratch", 40)
        more = "max_bad_fraction: 1\n" if knows_max_bad_fraction() else ""
        daemon.add_pipeline("scratch", SCRATCH.replace("MORE", more))
        daemon.restart()
        self.good_config = daemon.config.read_text()
        golden = stage.golden(daemon, world=1, batch=4)
        loose = stage.golden(daemon, world=1, batch=4, pipeline="scratch")
        loose.exact = False
        self.leftovers = Leftovers(stage, daemon)
        other = OTHER_USER if other_users(BUILD / "tools/conformance_driver") else None
        self.lasting = stage.trainer("python", daemon.address, golden, 0, "lasting")
        self.jobs = [
            self.lasting,
            stage.trainer("cpp", daemon.address, golden, 0, "other-user", user=other),
            stage.trainer("cpp", daemon.address, golden, 0, "third"),
            stage.trainer("cpp", daemon.address, golden, 0, "fourth", user=other),
            stage.trainer("cpp", daemon.address, loose, 0, "scratch"),
        ]
        self.gone = 0  # batches of those who were killed
        self.events = (
            self.kill_a_trainer, self.stop_a_trainer, self.kill_the_daemon, self.restart_the_daemon,
            self.reload, self.reload_a_bad_file, self.hostile_burst, self.truncate_a_file,
        )  # fmt: skip

    def batches(self) -> int:
        """Return how many batches the four have had."""
        return self.gone + sum(trainer.batches for trainer in self.jobs[:4])

    def _victim(self) -> int:
        return self.stage.rng.randrange(1, len(self.jobs))  # all but the lasting one

    def kill_a_trainer(self) -> None:
        """It resumes from its saved state."""
        chosen = self._victim()
        victim: Trainer = self.jobs[chosen]
        victim.kill()
        if chosen < 4:
            self.gone += victim.batches
        self.jobs[chosen] = victim.again()

    def stop_a_trainer(self) -> None:
        """A stopped trainer is not reaped; it goes on where it was."""
        victim = self.jobs[self._victim()]
        os.kill(victim.pid, signal.SIGSTOP)
        time.sleep(self.stage.rng.uniform(0.2, 1.5))
        before = victim.batches
        os.kill(victim.pid, signal.SIGCONT)
        if not becomes(lambda: victim.batches > before, HANG_S):
            self.stage.wrong("stopped trainers that do not go on", victim.job)

    def kill_the_daemon(self) -> None:
        """To all a pause."""
        self.daemon.kill()
        time.sleep(self.stage.rng.uniform(0, 0.3))
        self.daemon.start()

    def restart_the_daemon(self) -> None:
        """To all a shorter pause."""
        if self.daemon.stop() != 0:
            self.stage.wrong("daemons that did not stop well", self.daemon.tail(500))
        self.daemon.start()

    def reload(self) -> None:
        """Nobody notices."""
        self.daemon.process.send_signal(signal.SIGHUP)

    def reload_a_bad_file(self) -> None:
        """Nobody notices, and the log says what is wrong."""
        size = self.daemon.log.stat().st_size
        self.daemon.config.write_text(self.good_config + "\nno_such_key: 1\n")
        self.daemon.process.send_signal(signal.SIGHUP)
        if not becomes(lambda: b"stays as it was" in self.daemon.log.read_bytes()[size:]):
            self.stage.wrong("bad files that were not refused", self.daemon.tail(500))
        self.daemon.config.write_text(self.good_config)

    def hostile_burst(self) -> None:
        """Some thousand messages that no client should send."""
        flood(self.stage, self.daemon.address, 5000, self.stage.rng.randrange(1 << 31))

    def truncate_a_file(self) -> None:
        """Cut a file of the fifth job and put it back: the job may end, and is opened anew."""
        fifth = self.jobs[4]
        fifth.forgiven = "only with the files that it began with"
        paths = sorted((self.daemon.data / "scratch").rglob("*.jpg"))
        path = self.stage.rng.choice(paths)
        whole = path.read_bytes()
        os.truncate(path, self.stage.rng.randrange(len(whole)))
        time.sleep(0.5)
        path.write_bytes(whole)
        fifth.kill()
        self.jobs[4] = fifth.again()


def run(stage: Stage) -> None:
    """Do it."""
    chaos = Chaos(stage)
    every_s = EVERY_S[stage.settings.everything]
    if stage.settings.minutes is not None:
        stage.settings.count = max(1, int(60 * stage.settings.minutes / every_s))
    becomes(lambda: all(trainer.batches for trainer in chaos.jobs), HANG_S)
    at_first_kib = settled(chaos.daemon.resident_kib)
    happened: dict[str, int] = {}
    rates: list[float] = []
    resident: list[tuple[int, int]] = []
    order: list = []
    for _ in stage.rounds():
        began, batches = time.monotonic(), chaos.batches()
        order = order or stage.rng.sample(chaos.events, len(chaos.events))
        event = order.pop()  # each of them once before any comes again
        happened[event.__name__] = happened.get(event.__name__, 0) + 1
        event()
        time.sleep(max(0.0, began + every_s - time.monotonic()))
        rates.append((chaos.batches() - batches) / (time.monotonic() - began))
        resident.append((chaos.daemon.resident_kib(), resident_kib(chaos.lasting.pid)))
    total = chaos.batches()
    for trainer in chaos.jobs:
        trainer.kill()
    tenth = max(1, len(rates) // 10)
    first, last = statistics.mean(rates[:tenth]), statistics.mean(rates[-tenth:])
    stage.figures |= {
        "events": happened,
        "batches": total,
        "batches_per_s_by_tenth": [
            round(statistics.mean(rates[i : i + tenth]), 1) for i in range(0, len(rates), tenth)
        ],
        "daemon_and_trainer_mib": [(d // 1024, t // 1024) for d, t in resident[::tenth]],
    }
    stage.none_wrong(
        "batches with wrong bytes", "batches lost or repeated", "epochs cut short",
        "errors that a trainer saw", "trainers that ended by themselves", "trainers that hang",
        "stopped trainers that do not go on", "bad files that were not refused",
        "daemons that did not stop well", "attackers that ended badly",
    )  # fmt: skip
    for who, index in (("the daemon", 0), ("the trainer that was never killed", 1)):
        if index == 0 and tenth < LEAST_TENTH:
            # A daemon that has just been restarted may stand in a tenth, beside one that has not:
            # no daemon may need more than the first one did when all jobs ran.
            grown = max(r[0] for r in resident) - at_first_kib
            stage.check("memory of a daemon above the first's", grown <= BURST_KIB,
                        f"{grown / 1024:.1f} MiB", f"<= {BURST_KIB // 1024} MiB")  # fmt: skip
            continue
        grown = statistics.median(r[index] for r in resident[-tenth:]) - statistics.median(
            r[index] for r in resident[:tenth]
        )
        stage.check(f"memory of {who} grew by", grown <= MARGIN_KIB, f"{grown / 1024:.1f} MiB",
                    f"<= {MARGIN_KIB // 1024} MiB")  # fmt: skip
    chaos.leftovers.memory_starts_here()
    chaos.leftovers.check()
    stage.check("rate of the last tenth, of the first", last >= LEAST_RATE * first,
                f"{last / max(first, 1e-9):.3f}", f">= {LEAST_RATE}", timing=True)  # fmt: skip
