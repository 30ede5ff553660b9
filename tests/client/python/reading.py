"""What the tests expect of batches of the fake daemon's pipeline `numbers`."""

from __future__ import annotations

import numpy as np
from fake_samples import OUTPUTS, record_at, sample


def positions(batch) -> list[int]:
    """Return a batch's places in the epoch's order."""
    return [int(p) for p in batch["position"]]


def check(batch, epoch: int, records: int = 40) -> None:
    """Compare every byte of a NumPy batch with what the daemon had to write."""
    for name, _, _, _ in OUTPUTS:
        if name == "is_real":
            continue
        expected = np.array([sample(name, p, epoch, records) for p in positions(batch)])
        got = batch[name]
        if name == "half":
            got = got.view(np.uint16)
        assert got.shape == expected.shape, name
        np.testing.assert_array_equal(got, expected, err_msg=name)


def epoch_positions(loader, epoch: int | None = None, records: int = 40) -> list[int]:
    """Run one epoch, check all bytes, and return its positions."""
    seen = []
    for batch in loader:
        check(batch, loader.epoch if epoch is None else epoch, records)
        seen += positions(batch)
    return seen


def records_of(places, epoch: int, records: int = 40) -> list[int]:
    """Return the records at some positions."""
    return [record_at(p, epoch, records) for p in places]


def where(loader) -> tuple[int, int]:
    """Return epoch and position of its state."""
    state = loader.state_dict()
    return state["epoch"], state["position"]
