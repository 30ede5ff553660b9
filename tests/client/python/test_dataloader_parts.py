"""Loaders that wrappers make of a loader's `dataset`, `batch_sampler` and `collate_fn`: they give
the loader's own batches, or are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pytest
from reading import check, positions

import feedwater

ALL = list(range(40))


def data_loader(loader: feedwater.Loader, batch_sampler: Iterable) -> Iterator:
    """As torch's DataLoader takes its parts."""
    for batch in batch_sampler:
        yield loader.collate_fn(loader.dataset.__getitems__(batch))


def seen_by(batches: Iterable) -> list[int]:
    return [p for batch in batches for p in positions(batch)]


def test_all_steps_are_the_loaders_own(daemon, open_loader):
    loader = open_loader(daemon)
    for epoch in range(2):
        for batch in data_loader(loader, loader.batch_sampler):
            check(batch, epoch)
        assert loader.state_dict()["position"] == 0
    assert seen_by(data_loader(loader, loader.batch_sampler)) == ALL


def test_the_first_steps_may_be_left_out_and_are_not_read(daemon, open_loader):
    loader = open_loader(daemon, slots=2)
    published = daemon.counts["published"]
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 8, None))) == ALL[32:]
    assert daemon.counts["published"] - published <= 6, "of ten"
    # The next epoch is whole.
    assert seen_by(loader) == ALL
    loader.batch_sampler.set_epoch(5)
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 3, None))) == ALL[12:]
    assert loader.state_dict()["epoch"] == 6


def test_steps_count_from_where_the_loader_stands(daemon, open_loader):
    loader = open_loader(daemon)
    list(islice(loader, 2))
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert seen_by(data_loader(loader, loader.batch_sampler)) == ALL[8:]
    loader.load_state_dict(state)
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 3, None))) == ALL[20:]


@pytest.mark.parametrize("last", ["drop", "partial", "pad"])
@pytest.mark.parametrize("records", [40, 42])
def test_a_state_of_an_epochs_end_goes_on_with_the_next_one(start, open_loader, last, records):
    daemon = start(records=records, last=last)
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    state = loader.state_dict()
    assert state["epoch"] == 0
    whole = seen_by(loader)
    for left_out in (0, 2):
        loader.load_state_dict(state)
        steps = islice(loader.batch_sampler, left_out, None)
        assert seen_by(data_loader(loader, steps)) == whole[4 * left_out :]
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (2, 0)
        assert seen_by(data_loader(loader, loader.batch_sampler)) == whole
        assert loader.epoch == 3


def test_the_epoch_of_such_a_state_is_empty_where_it_is_chosen(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    state = loader.state_dict()
    for batches in (loader, data_loader(loader, loader.batch_sampler)):
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert seen_by(batches) == []
        assert seen_by(data_loader(loader, loader.batch_sampler)) == ALL
        assert loader.epoch == 2


@pytest.mark.parametrize("last", ["drop", "partial"])
def test_the_rest_of_an_epoch_has_as_many_steps_as_it_has(start, open_loader, last):
    daemon = start(records=42, last=last)
    twos = open_loader(daemon, batch_size=2)
    list(islice(twos, 3))
    loader = open_loader(daemon)
    loader.load_state_dict(twos.state_dict())
    assert seen_by(data_loader(loader, loader.batch_sampler)) == list(range(6, 42))
    # Nor are there any in place of those that `skip` leaves out.
    loader.skip(3, 4)
    whole = [*range(12), *range(20, 42 if last == "partial" else 40)]
    assert seen_by(data_loader(loader, loader.batch_sampler)) == whole
    assert loader.epoch == 2


def test_steps_that_are_only_looked_at_are_not_taken(daemon, open_loader):
    loader = open_loader(daemon)
    assert len(list(loader.batch_sampler)) == 10
    assert (loader.epoch, loader.state_dict()["position"]) == (0, 0)
    assert seen_by(loader) == ALL


def twice(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "skip_first_batches" in r.getMessage()]


@pytest.mark.parametrize("left_out", [2, 5])
@pytest.mark.parametrize("chosen", [False, True])
def test_steps_left_out_behind_a_state_are_warned_of(daemon, open_loader, caplog, left_out, chosen):
    loader = open_loader(daemon)
    list(islice(loader, 5))
    state = loader.state_dict()
    for _ in range(2):
        loader.load_state_dict(state)
        if chosen:
            loader.set_epoch(0)
        steps = islice(loader.batch_sampler, left_out, None)
        assert seen_by(data_loader(loader, steps)) == ALL[20 + 4 * left_out :]
    (text,) = twice(caplog)
    assert f"{left_out} steps of numbers" in text and "stands at step 5" in text


def test_steps_left_out_once_are_not_warned_of(daemon, open_loader, caplog):
    loader = open_loader(daemon)
    list(islice(loader, 5))
    state = loader.state_dict()
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 5, None))) == ALL[20:]
    loader.load_state_dict(state)
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 0, None))) == ALL[20:]
    loader.skip(0, 1)
    assert seen_by(data_loader(loader, islice(loader.batch_sampler, 5, None))) == ALL[28:]
    assert twice(caplog) == []


@pytest.mark.parametrize("rank", range(2))
def test_steps_that_are_shared_out_once_more_are_refused(daemon, open_loader, rank):
    loader = open_loader(daemon)
    with pytest.raises(TypeError, match="share them out once more"):
        list(data_loader(loader, islice(loader.batch_sampler, rank, None, 2)))
    (step, *_) = loader.batch_sampler
    for look in (len, list):
        with pytest.raises(TypeError, match="share them out once more"):
            look(step)


def test_records_by_number_are_no_batches(daemon, open_loader):
    loader = open_loader(daemon)
    with pytest.raises(TypeError, match=r"use the feedwater\.Loader itself"):
        loader.dataset.__getitems__([0, 1])


def test_the_parts_keep_the_loader(daemon):
    loader = feedwater.Loader(
        "numbers", address=str(daemon.directory), output="numpy", as_dict=True
    )
    sampler, dataset = loader.batch_sampler, loader.dataset
    assert sampler.sampler is loader.sampler and sampler.drop_last
    del loader
    assert seen_by(map(dataset.__getitems__, sampler)) == ALL


def test_torchs_own_data_loader_takes_them(daemon, open_loader):
    data = pytest.importorskip("torch.utils.data")
    loader = open_loader(daemon, output="torch")
    made = data.DataLoader(
        loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
    )
    assert len(made) == 10
    for _ in range(2):
        assert seen_by(made) == ALL
    by_number = data.DataLoader(loader.dataset, batch_size=4)
    with pytest.raises(TypeError, match=r"use the feedwater\.Loader itself"):
        next(iter(by_number))
