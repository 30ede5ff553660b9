"""np.memmap over a file of tokens, in the trainer's own process: nanoGPT's `get_batch`."""

import numpy as np
from common import BATCH

LENGTH, WINDOWS = 1024, 32_768
DTYPE = np.uint16  # of the file


def write(_, folder):
    random = np.random.default_rng(1)
    tokens = random.integers(0, 50_257, WINDOWS * LENGTH + 1, DTYPE)  # the last target, too
    tokens.tofile(folder / "train.bin")


def epochs(folder, workers, dtype="uint16"):
    tokens = np.memmap(folder / "train.bin", DTYPE, "r")
    random = np.random.default_rng(2)

    def window(start):
        rows = tokens[start : start + LENGTH]
        return rows if dtype == rows.dtype else rows.astype(dtype)

    def epoch():
        for _ in range(WINDOWS // BATCH):
            starts = random.integers(0, len(tokens) - LENGTH, BATCH)
            x = np.stack([window(start) for start in starts])
            y = np.stack([window(start + 1) for start in starts])
            assert x.shape == y.shape
            yield len(x)

    return epoch
