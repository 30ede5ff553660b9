"""np.load(mmap_mode="r") over arrays, in the trainer's own process, in random order."""

import numpy as np
from common import BATCH

BYTES = 192 << 20  # of all images


def write(_, folder, side="64"):
    random = np.random.default_rng(1)
    shape = (int(side), int(side), 3)
    images = random.integers(0, 256, (BYTES // np.prod(shape), *shape), np.uint8)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", random.integers(0, 1000, len(images)))


def epochs(folder, workers):
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    random = np.random.default_rng(2)

    def epoch():
        order = random.permutation(len(labels))
        for begin in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[begin : begin + BATCH]
            batch = images[chosen], labels[chosen]
            yield len(batch[1])

    return epoch
