"""250 slow ops on images of 8000x8000, by four jobs of a listed user while another one trains; then
sixteen jobs like the other user's own.
"""

from __future__ import annotations

from bombs import slow_ops
from pictures import write_folder

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 12, "release": 300}  # seconds of each attack


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    siege = Siege(stage)
    write_folder(siege.daemon.data / "images", 12)
    slow = siege.pipeline_file("slow", slow_ops(250))
    for name, files in {"250 slow ops": 4 * [slow], "16 jobs": 16 * ["photos"]}.items():
        with siege.attack(name) as counts:
            siege.jobs(stage.settings.count, files, counts)
        opened = counts["jobs_opened"]
        stage.check(f"{name}: jobs that were opened", opened > 0, opened, "> 0")
    stage.done = stage.settings.count
    siege.end()
