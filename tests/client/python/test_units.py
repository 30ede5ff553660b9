"""Counts are written as people write them."""

import pytest

import feedwater
from feedwater.units import count_of


def test_one_is_singular_and_everything_else_is_not():
    assert [count_of(n, "record") for n in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert [count_of(n, "batch") for n in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]
    assert [count_of(n, "class") for n in (1, 2)] == ["1 class", "2 classes"]


def test_a_loader_of_one_record_and_one_slot_says_one(start, open_loader, monkeypatch):
    loader = open_loader(start(records=1, batch_size=1))
    assert repr(loader.dataset) == "Dataset(1 record, 10 classes)"
    monkeypatch.setenv("FEEDWATER_STALL_TIMEOUT", "0.1")
    batches = iter(open_loader(start(), slots=1))
    kept = next(batches)
    with pytest.raises(feedwater.Stalled, match="holds 1 batch, which is all 1 slot of"):
        next(batches)
    assert len(kept["image"]) == 4
