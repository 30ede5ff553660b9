"""What the pipelines of a script draw: each DataLoader draws numbers of its own, and other ones in
each epoch; a pipeline's come of its seed and the epoch.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from typing import Any

from ._pipeline_schema import OPS
from .script import Script
from .script_again import Again
from .script_report import Report
from .yaml_text import Comment


@dataclass
class Translation:
    """A pipeline file that comes of one dataset of a loader."""

    file: str
    line: int
    sections: dict[str, Any]
    about_root: str

    @property
    def lacks(self) -> bool:
        """Whether there are comments where ops should be."""
        return any(isinstance(entry, Comment) for entry in self.sections["graph"])

    @property
    def is_random(self) -> bool:
        """Whether an epoch depends on a seed."""
        return self.sections["sampler"]["shuffle"] != "none" or self.draws

    @property
    def draws(self) -> bool:
        """Whether an op depends on a seed."""
        names = [
            entry if isinstance(entry, str) else next(iter(entry))
            for entry in self.sections["graph"]
            if not isinstance(entry, Comment)
        ]
        return any("draws_as" in OPS[name]["properties"] for name in names)


class Draws:
    """Gives loaders seeds, and finds those that would draw the same again."""

    def __init__(self, script: Script, report: Report, folder: str) -> None:
        self._again = Again(script)
        self._report = report
        self._folder = folder
        self._seeds: dict[int, int] = {}  # of pipelines that draw, and the lines of their loaders

    def are_once(self, call: ast.Call, files: list[Translation], is_sampled: bool) -> bool:
        """Tell whether a loader may be made more than once without doing the same each time; of
        one with a DistributedSampler the order does so, too. Report it else.
        """
        if not any(file.draws if is_sampled else file.is_random for file in files):
            return True
        why = self._again.why(call)
        if why is None:
            return True
        self._report.cannot(
            call,
            f"line {getattr(why, 'lineno', 1)} may make this DataLoader more than once, each time "
            "with an order or draws of its own, and each feedwater.Loader begins with epoch 0; it "
            "stays. Next: make the loader once, before the loop, and iterate over it again: each "
            "iteration is an epoch; or call loader.set_epoch(EPOCH) of each new one of "
            f"feedwater.Loader({os.path.join(self._folder, files[0].file)!r})",
        )
        return False

    def give_seed(self, call: ast.Call, files: list[Translation], is_sampled: bool) -> None:
        """Give a loader that draws numbers of its own, as each DataLoader does; the order of a
        DistributedSampler is given by its seed, which others of that seed have, too.
        """
        if not any(file.is_random for file in files):
            return
        order = files[0].sections["sampler"]
        seed = order.get("seed", 0)
        if is_sampled:
            other = self._seeds.setdefault(seed, call.lineno)
            if other != call.lineno and any(file.draws for file in files):
                self._report.note(
                    call,
                    f"draws as the loader of line {other} does, as its sampler has the same seed. "
                    "Where they are to differ, give one of the files another `seed`, and so "
                    "another order",
                )
            return
        while seed in self._seeds:
            seed += 1
        self._seeds[seed] = call.lineno
        if seed:
            last = order.pop("last")
            order.update(seed=seed, last=last)
