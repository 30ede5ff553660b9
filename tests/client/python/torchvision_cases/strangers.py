"""What is not of torchvision, or has no op: it is named with its place."""

from __future__ import annotations

from torchvision_fakes import (
    FLIP,
    LAMBDA,
    OTHER,
    V2,
    Table,
    compose,
    fake,
)

REFUSED: Table = {
    "one in a Compose": ([FLIP, compose(FLIP, fake("Posterize", V2))],
                         "transform 2.2, Posterize: no op does exactly the same"),
    "batches' own": ([fake("CutMix", V2, alpha=1.0)], "it is for batches: the op stands in "
                     "batch={'graph': [...]} (nearest op: cutmix)"),
    "a lambda": ([LAMBDA], "transform 1, Lambda: a function of the program's own. What"),
    "a function": ([abs], "transform 1, abs: a class or function of the program's own"),
    "an own class": ([OTHER], "transform 1, Rotate: a class or function of the program's own: "
                     "serve it with feedwater.serve_op(NAME, function), and put `python: {name: "),
    "a stranger of that name": ([fake("CenterCrop")], "it has no attribute 'size'"),
}  # fmt: skip
