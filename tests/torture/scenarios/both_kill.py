"""Trainers and daemon killed together, then resumed from the checkpoint; every third time with
another world size.

The ranks train in lockstep and save after each step, as a job does. Samples are compared one by one
with an undisturbed run, by (epoch, position), so that worlds of 1, 2 and 4 ranks and batches of
1 to 3 can be compared; every position must come once.
"""

from __future__ import annotations

import hashlib
import json
import time

from daemon_process import DAEMON
from driver import Driver, output

from . import PIPELINE, Stage

COUNTS = {"ci": 20, "release": 300}
WORLDS = (1, 2, 4)
ENGINES = ("auto", "pread")
SAMPLE = 16 * 16 * 3
SMALL = PIPELINE.replace("[24, 24]", "[16, 16]").replace(
    "  - normalize: {in: image, mean: [123, 116, 103], std: [58, 57, 57]}\n", ""
)
WANTED = ["image", "label", "sample_id", "position"]


def samples(batch: dict) -> dict[tuple[int, int], str]:
    """Return a digest of each sample of a batch by its place in the order."""
    image, label, record, position = (output(batch, name)["values"] for name in WANTED)
    return {
        (batch["epoch"], at): hashlib.sha256(
            json.dumps([image[i * SAMPLE : (i + 1) * SAMPLE], label[i], record[i]]).encode()
        ).hexdigest()
        for i, at in enumerate(position)
    }


class Run:
    """The job, from checkpoint to checkpoint."""

    def __init__(self, stage: Stage, daemon, golden: dict) -> None:
        self.stage, self.daemon, self.golden = stage, daemon, golden
        self.state: dict | None = None
        self.epoch = self.position = 0
        self.committed = 0
        self.resumed = False  # no step yet since a state was loaded

    def start(self, world: int, batch: int) -> list[Driver]:
        """Start the ranks from the checkpoint."""
        drivers = []
        for rank in range(world):
            python = rank == 0 and self.stage.rng.random() < 0.1
            drivers.append(Driver("python" if python else "cpp", self.daemon.address))
        opened = [
            driver.send(
                "open", pipeline="small", rank=rank, world_size=world, batch_size=batch, job="ckpt"
            )
            for rank, driver in enumerate(drivers)
        ]
        for driver, number in zip(drivers, opened):
            driver.answer(number)
            if self.state is not None:
                driver.call("load", state=self.state)
        self.resumed = self.state is not None
        return drivers

    def step(self, drivers: list[Driver]) -> None:
        """One step of all ranks, and a checkpoint."""
        sent = [driver.send("next", values=WANTED) for driver in drivers]
        answers = [driver.answer(number) for driver, number in zip(drivers, sent)]
        states = [driver.state() for driver in drivers]
        places = {(state["epoch"], state["position"]) for state in states}
        if len(places) != 1:
            self.stage.wrong("ranks out of step", str(places))
        seen: dict[tuple[int, int], str] = {}
        for answer in answers:
            for batch in answer["batches"]:
                seen |= samples(batch)
        if seen:
            rest = sum(1 for at in self.golden if at[0] == self.epoch and at[1] >= self.position)
            if self.resumed and rest < len(seen):  # no batch of this world, and `last: drop`
                self.epoch, self.position = self.epoch + 1, 0
            expected = {(self.epoch, self.position + i) for i in range(len(seen))}
            if set(seen) != expected:
                self.stage.wrong(
                    "samples lost or repeated",
                    f"positions {sorted(seen)} for {sorted(expected)}",
                )
        for place, digest in seen.items():
            if self.golden.get(place) != digest:
                self.stage.wrong("samples with wrong bytes", f"epoch and position {place}")
        self.committed += len(seen)
        self.resumed = False
        self.state = states[0]
        self.epoch, self.position = self.state["epoch"], self.state["position"]


def golden_samples(daemon, epochs: int) -> dict[tuple[int, int], str]:
    """Return each sample's digest in an undisturbed run."""
    driver = Driver("cpp", daemon.address)
    seen: dict[tuple[int, int], str] = {}
    try:
        driver.open("small", rank=0, world_size=1, batch_size=1, job="golden")
        for _ in range(epochs):
            for batch in driver.batches(values=WANTED):
                seen |= samples(batch)
    finally:
        driver.end()
    return seen


def run(stage: Stage) -> None:
    """Do it."""
    daemon = stage.daemon()
    daemon.add_pipeline("small", SMALL)
    daemon.restart()
    epochs = 4
    job = Run(stage, daemon, golden_samples(daemon, epochs))
    world, batch = 2, 1
    worlds = 0
    for number in stage.rounds():
        if number % 3 == 2:
            world = stage.rng.choice([w for w in WORLDS if w != world])
            batch = stage.rng.randint(1, 3)
            worlds += 1
        drivers = job.start(world, batch)
        for _ in range(stage.rng.randint(0, 12)):
            job.step(drivers)
        for driver in drivers:
            driver.send("next", values=WANTED)  # the batch that nobody will have saved
        time.sleep(stage.rng.uniform(0, 0.01))
        victims = [daemon, *drivers]
        stage.rng.shuffle(victims)
        for victim in victims:
            victim.kill()
        for driver in drivers:
            driver.process.stdout.close()
        if job.epoch >= epochs - 1:  # the golden run ends there
            job.state, job.epoch, job.position = None, 0, 0
        daemon.command = [DAEMON, "--set", f"storage.engine={ENGINES[number % 2]}"]
        daemon.start()
    stage.figures |= {"samples_compared": job.committed, "changes_of_world": worlds}
    stage.none_wrong("samples with wrong bytes", "samples lost or repeated", "ranks out of step")
    stage.check("samples compared", job.committed > 0, job.committed, "> 0")
