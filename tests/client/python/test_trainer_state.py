"""Accelerate's GradientState is told which loader is iterated, in old versions and new ones."""

from __future__ import annotations

import sys
import types

import pytest


class Old:
    """As up to version 1.2: `remove` wants the loader to be there."""

    _shared_state = {"is": "initialised"}
    loaders: list = []

    def _add_dataloader(self, loader) -> None:
        self.loaders.append(loader)

    def _remove_dataloader(self, loader) -> None:
        self.loaders.remove(loader)


class New(Old):
    """Later ones leave out what is not there."""

    loaders: list = []

    def _remove_dataloader(self, loader) -> None:
        self.loaders[:] = [one for one in self.loaders if one is not loader]


class Bare:
    """One that keeps it elsewhere."""

    _shared_state = {"is": "initialised"}


@pytest.fixture(params=[Old, New, Bare])
def loaders(request, monkeypatch) -> list:
    module = types.ModuleType("accelerate.state")
    module.GradientState = request.param
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    return getattr(request.param, "loaders", [])


def test_a_loader_is_there_while_it_is_iterated(daemon, open_loader, loaders):
    loader = open_loader(daemon)
    for _ in range(2):
        seen = 0
        for _ in loader:
            assert loaders in ([loader], [])
            seen += 1
        assert (seen, loaders) == (10, [])
    for _ in loader:
        break
    assert loaders == []


def test_the_last_batch_is_told(daemon, open_loader):
    loader = open_loader(daemon)
    assert [loader.end_of_dataloader for _ in loader] == [False] * 9 + [True]
    assert not loader.end_of_dataloader


@pytest.mark.parametrize(
    ("last", "shard", "records", "world_size", "said"),
    [
        ("partial", "batch", 41, 2, "With `sampler: {last: pad}`"),
        ("pad", "interleave", 41, 2, "With `sampler: {shard: batch}`"),
        ("partial", "batch", 42, 2, ""),  # shared evenly
        ("pad", "interleave", 40, 2, ""),  # no padding
        ("pad", "interleave", 41, 1, ""),  # at the end
        ("pad", "batch", 41, 2, ""),
    ],
)
def test_what_cannot_be_gathered_is_said_once_with_the_line_to_change(
    start, open_loader, monkeypatch, caplog, last, shard, records, world_size, said
):
    module = types.ModuleType("accelerate.state")
    module.GradientState = New
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    daemon = start(records=records, last=last, shard=shard)
    loader = open_loader(daemon, world_size=world_size, rank=0)
    for _ in range(2):
        for _batch in loader:
            pass
    texts = [record.getMessage() for record in caplog.records if "gather" in record.getMessage()]
    assert len(texts) == bool(said)
    assert all(said in text and "numbers" in text for text in texts)


@pytest.mark.parametrize(("processes", "given", "warns"), [(1, 0, 1), (2, 0, 0), (1, 1, 0)])
def test_ranks_that_accelerate_does_not_know_of_are_told_that_they_train_apart(
    daemon, open_loader, monkeypatch, caplog, processes, given, warns
):
    module = types.ModuleType("accelerate.state")
    module.GradientState = New
    module.PartialState = types.SimpleNamespace(_shared_state={"num_processes": processes})
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0}.items():
        monkeypatch.setenv(name, str(value))
    place = {"rank": 1, "world_size": 3} if given else {}  # the program's own division
    loader = open_loader(daemon, **place)
    for _ in range(2):
        for _batch in loader:
            pass
    texts = [record.getMessage() for record in caplog.records]
    assert sum("Accelerator(cpu=True)" in text for text in texts) == warns


@pytest.mark.parametrize(
    ("shard", "records", "world_size", "remainder"),
    [
        ("batch", 41, 2, 1),
        ("batch", 40, 2, 0),
        ("interleave", 41, 1, 1),
        ("interleave", 40, 2, 0),
        ("interleave", 41, 2, -1),
    ],
)
def test_the_remainder_counts_what_is_no_padding(
    start, open_loader, shard, records, world_size, remainder
):
    daemon = start(records=records, last="pad", shard=shard)
    loader = open_loader(daemon, world_size=world_size, rank=0)
    *_, last = [loader.remainder for _ in loader]
    assert last == remainder
