"""np.load(mmap_mode="r") over arrays, in the trainer's own process, in random order."""

import numpy as np
from common import BATCH

RECORDS, SHAPE = 16_384, (64, 64, 3)


def write(_, folder):
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (RECORDS, *SHAPE), np.uint8)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", random.integers(0, 1000, RECORDS))


def epochs(folder, workers):
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    random = np.random.default_rng(2)

    def epoch():
        order = random.permutation(RECORDS)
        for begin in range(0, RECORDS - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            batch = images[chosen], labels[chosen]
            yield len(batch[1])

    return epoch
