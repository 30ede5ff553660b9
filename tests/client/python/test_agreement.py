"""Ranks at daemons that know nothing of one another compare what they read, by the key-value store
of their process group. Two real daemons are in tests/integration/test_own_hosts.py.
"""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from feedwater import errors
from feedwater.agreement import Agreement
from feedwater.placement import RankPlacement

FACTS = {
    "own_workers": 8, "records": 40, "dataset_digest": "d", "seed": 3, "batch_size": 4,
    "steps_per_epoch": 5, "pipeline_digest": "p", "own_identity": "", "sampler": "full",
    "pipeline": "ours",
}  # fmt: skip


@pytest.fixture
def group(monkeypatch, another_process):
    """Be a rank of a group of two, with one of the stores."""
    store: dict[str, str] = {}

    def compare_set(key: str, expected: str, desired: str) -> bytes:
        assert expected == ""
        return store.setdefault(key, desired).encode()

    def key_value_set(key: str, value: str) -> None:
        if key in store:
            raise RuntimeError("ALREADY_EXISTS")
        store[key] = value

    def be(rank: int, kind: str = "torch", **client) -> None:
        for name in (
            "torch.distributed",
            "torch.distributed.distributed_c10d",
            "jax._src.distributed",
        ):
            monkeypatch.delitem(sys.modules, name, raising=False)
        another_process()
        if kind == "torch":
            dist = SimpleNamespace(
                is_available=lambda: True, is_initialized=lambda: True,
                get_rank=lambda: rank, get_world_size=lambda: 2,
            )  # fmt: skip
            c10d = SimpleNamespace(
                _get_default_store=lambda: SimpleNamespace(**{"compare_set": compare_set, **client})
            )
            monkeypatch.setitem(sys.modules, "torch.distributed", dist)
            monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)
        elif kind == "jax":
            state = SimpleNamespace(
                process_id=rank, num_processes=2, coordinator_address=None,
                client=SimpleNamespace(
                    key_value_set=key_value_set,
                    blocking_key_value_get=lambda key, wait_ms: store[key],
                ),
            )  # fmt: skip
            monkeypatch.setitem(
                sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state)
            )

    another_process()  # a loader that a test makes before it is a rank is numbered from 1 too
    be.store = store
    return be


def check(rank: int, world: int = 2, **other) -> Agreement:
    made = Agreement(world == 1, world)
    facts = SimpleNamespace(**{**FACTS, **other})
    try:
        made.check(RankPlacement(rank, world, 0, None, f"pid-{rank}"), facts)
    except BaseException:
        made.withdraw()
        raise
    return made


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_ranks_that_read_the_same_go_on(group, kind):
    for rank in (1, 0):
        group(rank, kind)
        check(rank)
        check(rank, seed=4)  # the next loader is another one
        check(0, world=1, records=1)  # one of this process's own is none of theirs
        check(rank, seed=5)
    assert sorted(group.store) == ["feedwater/1", "feedwater/2", "feedwater/3"]


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("own_workers", 4, "workers .* is 8 at rank 1 and 4 here. Cure: the same workers="),
        ("records", 41, "the number of records is 40 at rank 1 and 41 here"),
        ("dataset_digest", "e", "the dataset's digest is d at rank 1 and e here"),
        ("seed", 4, "the seed is 3 at rank 1 and 4 here"),
        ("batch_size", 5, "the batch size is 4 at rank 1 and 5 here"),
        ("steps_per_epoch", 6, "the number of steps is 5 at rank 1 and 6 here"),
        ("sampler", "none", "the sampler is full at rank 1 and none here. Cure: .* shuffle="),
    ],
)
def test_ranks_that_read_other_samples_are_refused(group, kind, name, value, words):
    group(1, kind)
    check(1)
    group(0, kind)
    for _ in range(2):
        with pytest.raises(errors.FailedPrecondition, match=f"rank 0 would .* {words}"):
            check(0, **{name: value})
    check(0)  # who makes it as the others do has its place


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "own_identity",
            "pickle b",
            "what is served is pickle a at rank 1 and pickle b .*version=",
        ),
        ("pipeline_digest", "q", "the pipeline's digest is p at rank 1 and q here"),
    ],
)
def test_datasets_of_ones_own_are_refused_for_more(group, name, value, words):
    group(1)
    check(1, own_identity="pickle a")
    group(0)
    with pytest.raises(errors.FailedPrecondition, match=f"of the dataset ours .* {words}"):
        check(0, **{"own_identity": "pickle a", name: value})


def test_ops_of_ones_own_are_compared_and_where_files_lie_is_not(group, caplog):
    group(1)
    check(1, own_identity="op aug: pickle a")
    group(0)
    text = r"of pipeline ours .* what is served is op aug: pickle a at rank 1 and op aug: pickle b"
    with pytest.raises(errors.FailedPrecondition, match=text):
        check(0, own_identity="op aug: pickle b")
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING, "feedwater"):
        check(0, own_identity="op aug: pickle a", pipeline_digest="q")
    assert "its digest is p there and q here" in caplog.text


def test_a_refusal_is_remembered(group):
    """A loader that was made before its group, and is asked again."""
    place, facts = RankPlacement(0, 2, 0, None, "pid-0"), SimpleNamespace(**{**FACTS, "seed": 4})
    group(0, "none")
    late = Agreement(False, 2)
    late.check(place, facts)
    group(1)
    check(1)
    group(0)
    for _ in range(2):
        with pytest.raises(errors.FailedPrecondition, match="the seed is 3"):
            late.check(place, facts)
        group.store.clear()
    check(0)
    assert list(group.store) == ["feedwater/1"], "who is made in its place is compared in it"


def test_another_pipeline_is_told(group, caplog):
    group(1)
    check(1)
    group(0)
    with caplog.at_level(logging.WARNING, "feedwater"):
        check(0, pipeline_digest="q")
    assert "its digest is p there and q here" in caplog.text


def test_loaders_of_other_names_are_told_and_not_compared(group, caplog):
    group(1)
    check(1)
    group(0)
    with caplog.at_level(logging.WARNING, "feedwater"):
        check(0, pipeline="theirs", seed=4)
    assert "loader 1 of rank 0 reads pipeline theirs, and that of rank 1 pipeline ours" in (
        caplog.text
    )


def test_without_a_group_nothing_is_compared_yet(group):
    group(0, "none")
    made = check(0)
    assert group.store == {}
    group(0)
    made.check(RankPlacement(0, 2, 0, None, None), SimpleNamespace(**FACTS))
    assert list(group.store) == ["feedwater/1"]


def test_loaders_are_numbered_as_they_are_made_and_not_as_they_are_asked(group, caplog):
    place, facts = RankPlacement, SimpleNamespace
    trains, validates = facts(**FACTS), facts(**{**FACTS, "records": 7})
    group(0, "none")
    train, validate = Agreement(False, 2), Agreement(False, 2)
    group(0)
    validate.check(place(0, 2, 0, None, None), validates)  # len() for a progress bar, on one rank
    train.check(place(0, 2, 0, None, None), trains)
    group(1)
    check(1)
    check(1, records=7)
    assert caplog.text == ""


def test_a_loader_that_moves_into_its_group_is_compared_there(group):
    facts = SimpleNamespace(**{**FACTS, "seed": 4})
    group(1)
    check(1)
    group(0, "none")
    moves = Agreement(False, 2)
    moves.check(RankPlacement(0, 1, 0, None, None), facts)
    group(0)
    with pytest.raises(errors.FailedPrecondition, match="the seed is 3"):
        moves.check(RankPlacement(0, 2, 0, None, None), facts)


def test_ranks_of_the_programs_own_making_are_not_compared(group):
    group(1)
    check(0, world=3)
    assert group.store == {}


def test_groups_that_contradict_one_another_are_not_compared(group, monkeypatch):
    """Who says both rank and world size is believed."""
    group(0)
    mpi = SimpleNamespace(is_initialized=lambda: True, rank=lambda: 1, size=lambda: 4)
    mpi.local_rank = lambda: 1
    monkeypatch.setitem(sys.modules, "horovod.torch", mpi)
    check(0)
    assert group.store == {}


def test_a_store_that_fails_is_no_error(group):
    def fails(*unused):
        raise RuntimeError("not implemented")

    for answer in (fails, lambda *unused: b"[1]", lambda *unused: b"\xff"):
        group(0, compare_set=answer)
        check(0)


def test_loaders_with_a_place_of_their_own_are_not_counted(group, daemon, open_loader):
    """Rank 0 may make them alone, before those that all ranks make."""
    group(0)
    for rank, world_size in ((0, 1), (0, 3), (2, 3)):
        open_loader(daemon, rank=rank, world_size=world_size)
    assert group.store == {}
    open_loader(daemon)
    open_loader(daemon, rank=0, world_size=2)  # the group's own place
    assert sorted(group.store) == ["feedwater/1", "feedwater/2"]


def test_a_place_that_was_given_before_the_group_is_compared_with_it(group, daemon, open_loader):
    """Among loaders of that world size: others, that one rank makes alone, do not shift them."""
    others = [open_loader(daemon, rank=0, world_size=size) for size in (1, 3)]
    loader = open_loader(daemon, rank=0, world_size=2)
    group(0)
    for each in (*others, loader):
        next(iter(each))
    assert list(group.store) == ["feedwater/of-2/1"]
