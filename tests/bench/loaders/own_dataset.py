"""One side of the benchmark `own`: a Dataset that costs nothing, through Feedwater or a DataLoader.

    python own_dataset.py feedwater|dataloader BYTES WORKERS SECONDS

Prints samples a second, and the CPU time that a batch costs in this process, the trainer's.
"""

import json
import sys
import time

import torch

BATCH = 64
EPOCH_BYTES = 1 << 30  # at least so many records that an epoch's beginning does not count
MOST_RECORDS = 200_000


class Nothing(torch.utils.data.Dataset):
    """Gives the same tensor for every record."""

    def __init__(self, size: int) -> None:
        self.sample = torch.zeros(size, dtype=torch.uint8)
        self.records = min(MOST_RECORDS, EPOCH_BYTES // size) // BATCH * BATCH

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, record: int):
        return self.sample, record


def loader_of(side: str, dataset: Nothing, workers: int):
    """Return the loader of a side."""
    if side == "dataloader":
        return torch.utils.data.DataLoader(
            dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=True
        )
    import feedwater

    return feedwater.Loader.from_dataset(dataset, BATCH, workers=workers, daemon="private")


def main() -> None:
    side, size, workers, seconds = sys.argv[1], *map(int, sys.argv[2:4]), float(sys.argv[4])
    dataset = Nothing(size)
    loader = loader_of(side, dataset, workers)
    samples, began = 0, 0.0
    while samples == 0 or time.perf_counter() - began < seconds:
        for _ in loader:
            samples += BATCH if began else 0
        if not began:  # the first epoch warms up
            began, cpu = time.perf_counter(), time.process_time()
    elapsed, spent = time.perf_counter() - began, time.process_time() - cpu
    rates = {
        "samples_per_s": samples / elapsed,
        "trainer_us_a_batch": spent / samples * BATCH * 1e6,
    }
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
