"""What a format has to say about a dataset whose files are to change."""

from __future__ import annotations

import numpy as np


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 256, shape, dtype=np.uint8)


KINDS: dict[str, type[Kind]] = {}  # by name, in the order of their classes


class Kind:
    """A format's dataset of small files, with fields `image` and perhaps `label`."""

    format: str
    name = ""  # where a format has two: what this one is called
    extra = ""  # of `dataset:`, beside format, root and path; PATH stands for the latter
    graph = ""
    outputs = "image, label"
    # Whether every cache and decoder processes have a part in it. What lies between a file and a
    # record is the same for all formats with columns: two ways tell whether a format plays along.
    all_ways = False
    # Its files are unpacked, and records read from what was unpacked: a change is seen when a job
    # looks at its files, not when it reads.
    is_unpacked = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "format" in cls.__dict__:
            KINDS[cls.name or cls.format] = cls
