"""Progressive JPEGs of 8000x8000, and TIFFs that give their size twice, by one job of a listed user
with time to decode them, then by four, two with the default limits, while another one trains. With
samples made by the daemon's own threads, and as `isolation: auto` has it.
"""

from __future__ import annotations

from bombs import two_sizes, write_progressive

from . import Stage
from .siege import Siege, can_be_laid

COUNTS = {"ci": 8, "release": 300}  # seconds of each attack
IMAGES = 8
OPS = "  - decode\n  - resize: {size: [16, 16]}\n"
MORE = "on_bad_sample: skip_with_count\nmax_bad_fraction: 1\n"
PATIENT = "limits: {max_decode_ms: 60000}\n"


def run(stage: Stage) -> None:
    """Do it."""
    if not can_be_laid(stage):
        return
    for isolation in ("none", "auto"):
        siege = Siege(stage, f"isolation: {isolation}\n")
        images = siege.daemon.data / "images"
        write_progressive(images, IMAGES)
        (images / "a/two-sizes.tif").write_bytes(two_sizes(12000))
        default = siege.pipeline_file("default", OPS, more=MORE)
        patient = siege.pipeline_file("patient", OPS, more=MORE + PATIENT)
        for files in ([patient], [default, patient, default, patient]):
            with siege.attack(f"isolation: {isolation}, {len(files)} jobs") as counts:
                siege.jobs(stage.settings.count, files, counts)
            opened = counts["jobs_opened"]
            stage.check("jobs of the attacker that were opened", opened > 0, opened, "> 0")
        siege.end()
    stage.done = stage.settings.count
