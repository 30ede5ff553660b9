"""Pipelines in which up to 40 images of 6000x6000 are alive at once, opened again and again by four
processes of a listed user while another one trains: refused, or made within the budget.
"""

from __future__ import annotations

from bombs import live_resizes
from pictures import write_folder

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 12, "release": 300}  # seconds of each attack
ATTACKS = {"40 live": (40, 40, 40, 40), "1 to 40 live": (1, 2, 3, 40)}


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    write_folder(siege.daemon.data / "images", 12)
    for name, numbers in ATTACKS.items():
        files = []
        for live in numbers:
            ops, outputs = live_resizes(live)
            files.append(siege.pipeline_file(f"live{live}", ops, f"[{', '.join(outputs)}]"))
        with siege.attack(name) as counts:
            siege.jobs(stage.settings.count, files, counts)
    stage.done = stage.settings.count
    stage.check("large plans refused", siege.seen["40 live"].get("errors", 0) > 0,
                siege.seen["40 live"].get("errors", 0), "> 0")  # fmt: skip
    siege.end()
