"""Epochs and positions: what `for`, set_epoch, state_dict and load_state_dict do, against the fake
daemon.
"""

import json

import pytest
from reading import check, epoch_positions, positions, where

import feedwater

ALL = list(range(40))


def test_the_state_counts_exactly_the_batches_that_next_returned(daemon, open_loader):
    loader = open_loader(daemon)
    assert where(loader) == (0, 0)
    iterator = iter(loader)
    assert where(loader) == (0, 0)
    for step in range(10):
        next(iterator)
        assert where(loader) == (0, 4 * (step + 1))
    with pytest.raises(StopIteration):
        next(iterator)
    assert where(loader) == (1, 0)
    with pytest.raises(StopIteration):
        next(iterator)
    assert where(loader) == (1, 0)
    state = json.dumps(loader.state_dict())
    assert len(state) <= 1024


@pytest.mark.parametrize("taken", [0, 1, 5, 9, 10, 11, 13])
@pytest.mark.parametrize(("world", "batch"), [(1, 4), (2, 2), (4, 1), (1, 2)])
def test_a_new_loader_continues_where_the_state_was_taken_whatever_its_world(
    daemon, open_loader, taken, world, batch
):
    loader = open_loader(daemon, job="before")
    iterator, count, first = iter(loader), 0, []
    while count < taken:
        try:
            first += [(loader.epoch, p) for p in positions(next(iterator))]
            count += 1
        except StopIteration:
            iterator = iter(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()

    ranks = [
        open_loader(daemon, job="after", rank=r, world_size=world, batch_size=batch)
        for r in range(world)
    ]
    rest = []
    for rank in ranks:
        rank.load_state_dict(state)
    while not rest or rest[-1][0] < 2:
        for rank in ranks:
            for image in rank:
                check(image, rank.epoch)
                rest += [(rank.epoch, p) for p in positions(image)]
    both = [(e, p) for e, p in first + sorted(rest) if e < 2]
    assert both == [(e, p) for e in range(2) for p in ALL]


def test_a_state_of_the_epochs_end_gives_an_empty_rest_and_then_the_next_epoch(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    at_end = loader.state_dict()
    assert where(loader) == (0, 40)
    again = open_loader(daemon)
    again.load_state_dict(at_end)
    again.set_epoch(0)  # as a training loop does before every epoch
    assert list(again) == []
    assert where(again) == (1, 0)
    again.set_epoch(1)
    assert epoch_positions(again, 1) == ALL
    assert daemon.counts["seeks"] == 1


def test_loading_works_in_the_middle_of_an_epoch_and_any_number_of_times(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    rests = []
    for _ in range(3):
        rests.append(
            epoch_positions(loader) if rests else [p for b in iterator for p in positions(b)]
        )
        loader.load_state_dict(state)
    assert rests == [ALL[12:]] * 3


def test_a_break_ends_the_epoch_and_the_state_still_tells_what_was_taken(daemon, open_loader):
    loader = open_loader(daemon)
    for step, _ in enumerate(loader):
        if step == 2:
            break
    assert where(loader) == (0, 12)
    assert epoch_positions(loader, 1) == ALL
    for step, _ in enumerate(loader):  # leaves after the last batch, before its end was met
        if step == 9:
            break
    assert where(loader) == (2, 40)
    assert epoch_positions(loader, 3) == ALL


def test_set_epoch_before_every_epoch_costs_nothing(daemon, open_loader):
    loader = open_loader(daemon)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        assert epoch_positions(loader, epoch) == ALL
    assert daemon.counts["seeks"] == 0


def test_set_epoch_chooses_an_epoch_from_its_beginning(daemon, open_loader):
    loader = open_loader(daemon)
    loader.set_epoch(7)
    assert where(loader) == (7, 0)
    assert epoch_positions(loader, 7) == ALL
    loader.set_epoch(3)
    assert epoch_positions(loader, 3) == ALL
    next(iter(loader))
    loader.set_epoch(4)  # some of epoch 4 was taken: it starts over
    assert epoch_positions(loader, 4) == ALL


def test_set_epoch_keeps_the_position_of_a_loaded_state(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    other = open_loader(daemon)
    other.load_state_dict(state)
    other.set_epoch(0)
    assert epoch_positions(other, 0) == ALL[4:]


@pytest.mark.parametrize("epoch", [-1, 1 << 63, "1", 1.5, None])
def test_set_epoch_refuses_what_is_no_epoch(daemon, open_loader, epoch):
    loader = open_loader(daemon)
    with pytest.raises((feedwater.InvalidArgument, TypeError)):
        loader.set_epoch(epoch)
    assert epoch_positions(loader, 0) == ALL


def test_an_old_iterator_is_refused_when_a_new_one_was_made(daemon, open_loader):
    loader = open_loader(daemon)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(feedwater.FailedPrecondition, match="another one was begun"):
        next(old)
    assert positions(next(new)) == [0, 1, 2, 3]
    assert loader.epoch == 1


def test_two_iterators_before_the_first_batch_are_the_same_epoch(daemon, open_loader):
    loader = open_loader(daemon)
    iter(loader)
    assert epoch_positions(loader, 0) == ALL


def test_a_state_of_something_else_is_refused_and_changes_nothing(daemon, open_loader):
    loader = open_loader(daemon, seed=7)
    state = open_loader(daemon).state_dict()
    with pytest.raises(feedwater.FailedPrecondition, match="seed"):
        loader.load_state_dict(state)
    with pytest.raises(feedwater.InvalidArgument):
        loader.load_state_dict({})
    assert epoch_positions(loader, 0) == ALL


# --- what programs written for torchdata's StatefulDataLoader rely on -----------------------------


def resumed(open_loader, daemon, state, job):
    loader = open_loader(daemon, job=job)
    loader.load_state_dict(state)
    return loader


def test_a_state_taken_after_an_epoch_begins_the_next_one_whole(daemon, open_loader):
    loader = open_loader(daemon, job="first")
    for _ in loader:
        pass
    again = resumed(open_loader, daemon, loader.state_dict(), "second")
    assert epoch_positions(again, 1) == ALL
    assert epoch_positions(again, 2) == ALL


def test_a_state_taken_at_every_batch_of_a_loop_resumes_with_the_next_batch(daemon, open_loader):
    loader = open_loader(daemon, job="first")
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    for k, state in enumerate(states):
        again = resumed(open_loader, daemon, state, f"job{k}")
        assert again.epoch == k // 9, "the epoch of the next batch"
        if k < 9:
            assert [p for batch in again for p in positions(batch)] == ALL[4 * (k + 1) :]
        assert epoch_positions(again, 1) == ALL, "the epoch after it is whole"
        assert epoch_positions(again, 2) == ALL
        again.close()


def test_a_resumed_loader_resumes_again_and_again_within_one_epoch(daemon, open_loader):
    """Each of many programs takes one batch, however often it is interrupted."""
    state, seen = None, []
    for k in range(10):
        loader = open_loader(daemon, job=f"job{k}")
        if state is not None:
            loader.load_state_dict(state)
            assert loader.state_dict() == state, "a state that was loaded is the state"
        iterator = iter(loader)
        assert state is None or loader.state_dict() == state, "as is that of a loop that begins"
        seen += positions(next(iterator))
        state = loader.state_dict()
        loader.close()
    assert seen == ALL


def test_loading_in_the_midst_of_a_loop_moves_the_same_loader(daemon, open_loader):
    loader = open_loader(daemon)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    for _ in range(3):
        next(iterator)
    loader.load_state_dict(state)
    with pytest.raises(feedwater.FailedPrecondition, match="iteration is over"):
        next(iterator)
    assert [p for batch in loader for p in positions(batch)] == ALL[8:]


def test_a_states_parts_are_plain_python(daemon, open_loader):
    loader = open_loader(daemon)
    next(iter(loader))
    loader.skip(3, 4)
    state = loader.state_dict()
    assert {type(value) for value in state.values()} == {int, str, list}
    assert json.loads(json.dumps(state)) == state


def test_an_iteration_of_which_nothing_was_taken_follows_set_epoch(daemon, open_loader):
    """A DataLoader asks its sampler for the epoch's order with the first batch."""
    loader = open_loader(daemon)
    batches = iter(loader)
    loader.sampler.set_epoch(3)
    assert [at for batch in batches for at in positions(batch)] == ALL
    assert loader.epoch == 4
    batches = iter(loader)
    next(batches)
    loader.sampler.set_epoch(6)
    with pytest.raises(feedwater.FailedPrecondition, match="iteration is over"):
        next(batches)
