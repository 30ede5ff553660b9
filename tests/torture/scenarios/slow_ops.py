"""250 slow ops on 8000x8000, which may not fit into memory, and on 4000x4000, by four jobs
of a listed user while another one trains; then sixteen jobs like the other user's own.
"""

from __future__ import annotations

from bombs import slow_ops
from pictures import write_folder

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 8, "release": 300}  # seconds of each attack


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    write_folder(siege.daemon.data / "images", 12)
    attacks = {
        "8000x8000": 4 * [siege.pipeline_file("slow8000", slow_ops(250))],
        "4000x4000": 4 * [siege.pipeline_file("slow4000", slow_ops(250, 4000))],
        "16 jobs": 16 * ["photos"],
    }
    for name, files in attacks.items():
        with siege.attack(name) as counts:
            siege.jobs(stage.settings.count, files, counts)
        answered = counts["jobs_opened"] + counts["errors"]
        stage.check(f"{name}: opened or refused", answered > 0, dict(counts), "some")
    stage.done = stage.settings.count
    siege.end()
