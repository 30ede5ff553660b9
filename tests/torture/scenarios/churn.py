"""Sessions opened and closed, in every way that a client has: nothing is left of them.

One process opens them one after the other; some train, some close at once, some are dropped by a
process that ends.
"""

from __future__ import annotations

from driver import Driver

from . import Stage
from .leftovers import Leftovers, fd_kinds, settled

COUNTS = {"ci": 200, "release": 10000}
PROCESS_EVERY = 50  # sessions of one process


def run(stage: Stage) -> None:
    """Do it."""
    daemon = stage.daemon()
    leftovers = Leftovers(stage, daemon)
    driver = Driver("cpp", daemon.address)
    own = None
    for number in stage.rounds():
        if number == stage.settings.count // 5:
            leftovers.memory_starts_here()
        if number and number % PROCESS_EVERY == 0:
            now = settled(lambda pid=driver.process.pid: fd_kinds(pid), 5, 0.1)
            if own is not None and now != own:
                stage.wrong("descriptors that a client keeps", f"{own} became {now}")
            own = now
            if stage.rng.random() < 0.5:
                driver.open("photos", job="dropped")
                driver.kill()
            else:
                driver.end()
            driver = Driver("cpp", daemon.address)
        name = f"s{number}"
        driver.open("photos", loader=name, job=f"job-{number % 7}",
                    batch_size=stage.rng.choice([1, 2, 5]))  # fmt: skip
        taken = stage.rng.choice([0, 0, 1, 3])
        if taken and len(driver.batches(name, count=taken)) != taken:
            stage.wrong("sessions without batches", name)
        driver.call("close", name)
    driver.end()
    stage.none_wrong("descriptors that a client keeps", "sessions without batches")
    leftovers.check()
