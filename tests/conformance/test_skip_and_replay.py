"""Steps that are left out, and steps that are looked at once more."""

from __future__ import annotations

import pytest
from conftest import RECORDS
from driver import Refused, digests, values

STEPS = 10  # of 42 records in batches of 4


def positions(batches):
    return values(batches, "position")


def take(driver, loader="a", count=0):
    return positions(driver.batches(loader, count, values=["position"]))


def of_steps(*steps, size=4):
    return [p for step in steps for p in range(size * step, size * (step + 1))]


@pytest.fixture
def expected(daemon, start):
    """Three whole epochs, batch by batch."""
    driver = start(daemon)
    driver.open("augment")
    return [driver.batches() for _ in range(3)]


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (0, 3), (4, 4), (5, 7), (8, 9), (9, 9), (0, 9)]
)
@pytest.mark.parametrize("taken", [0, 3])
def test_what_is_left_out_is_missing_and_all_else_is_the_same(
    daemon, start, expected, first, last, taken
):
    driver = start(daemon)
    driver.open("augment", slots=3)
    got = driver.batches(count=taken) if taken else []
    driver.call("skip", first=first, last=last)
    got += driver.batches()
    left = [b for b in expected[0] if b["step"] < taken or not first <= b["step"] <= last]
    assert digests(got) == digests(left)
    assert [b["step"] for b in got] == [b["step"] for b in left]
    assert digests(driver.batches()) == digests(expected[1])


def test_the_beginning_of_a_later_epoch_may_be_left_out_and_a_whole_epoch_too(
    daemon, start, expected
):
    driver = start(daemon)
    driver.open("augment")
    driver.call("skip", first=0, last=1, epoch=1)
    driver.call("skip", first=0, last=9, epoch=2)
    assert digests(driver.batches()) == digests(expected[0])
    assert digests(driver.batches()) == digests(expected[1][2:])
    assert driver.call("next", count=0) == {"batches": [], "end": True}
    assert {b["epoch"] for b in driver.batches()} == {3}


def test_a_range_is_in_the_state_until_it_has_been_passed(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=1)
    driver.call("skip", first=3, last=4)
    driver.call("skip", first=5, last=5)
    driver.call("skip", first=2, last=2, epoch=7)
    state = driver.state()
    assert (state["version"], state["skip"]) == (2, [[0, 12, 24], [7, 8, 12]])
    driver.batches(count=3)
    state = driver.state()
    assert (state["position"], state["skip"]) == (28, [[7, 8, 12]])
    driver.call("set_epoch", epoch=8)
    assert driver.state()["version"] == 1


@pytest.mark.parametrize("other", ["python", "cpp"])
@pytest.mark.parametrize("taken", [0, 2, 3, 4])
def test_a_resumed_program_leaves_out_the_same(daemon, start, expected, other, taken):
    first = start(daemon)
    first.open("augment", job="first")
    first.call("skip", first=3, last=6)
    first.call("skip", first=8, last=9)
    first.call("skip", first=0, last=0, epoch=1)
    got = first.batches(count=taken) if taken else []
    state = first.state()
    first.kill()

    second = start(daemon, other)
    second.open("augment", job="second", state=state)
    if taken < 4:  # else nothing is left of the epoch
        got += second.batches()
    assert [b["step"] for b in got] == [0, 1, 2, 7]
    got += second.batches()
    left = [expected[0][step] for step in (0, 1, 2, 7)] + expected[1][1:]
    assert digests(got) == digests(left)


@pytest.mark.parametrize(("world", "batch"), [(2, 2), (4, 1), (2, 4), (1, 8), (1, 2)])
def test_another_world_leaves_out_the_same_samples_and_its_ranks_stay_equal(
    daemon, start, world, batch
):
    one = start(daemon)
    one.open("crop")
    one.batches(count=2)
    one.call("skip", first=4, last=6)  # positions 16 to 28
    state = one.state()
    one.call("close")

    driver = start(daemon)
    for rank in range(world):
        driver.open(
            "crop", f"r{rank}", job="w", rank=rank, world_size=world, batch_size=batch, state=state
        )
    seen, counts = [], []
    while True:
        step = [driver.batches(f"r{rank}", 1, values=["position"]) for rank in range(world)]
        counts.append({len(batches) for batches in step})
        if not step[0]:
            break
        seen += [p for batches in step for p in positions(batches)]
    assert all(len(count) == 1 for count in counts), "every rank has the same number of steps"
    size = world * batch
    before = list(range(8, 16 - 8 % size))  # a batch that would reach into the range is left out
    behind = list(range(28, 28 + (RECORDS - 28) // size * size))
    assert seen == before + behind


def test_ranks_that_leave_out_the_same_stay_together(daemon, start):
    driver = start(daemon)
    for rank in range(2):
        driver.open("crop", f"r{rank}", job="two", rank=rank, world_size=2)
    for rank in range(2):
        driver.call("skip", f"r{rank}", first=1, last=3)
    seen = [take(driver, f"r{rank}") for rank in range(2)]
    assert seen == [[0, 1, 2, 3, 32, 33, 34, 35], [4, 5, 6, 7, 36, 37, 38, 39]]


@pytest.mark.parametrize("other", ["python", "cpp"])
def test_ranks_of_another_world_may_ask_at_different_moments(daemon, start, other):
    """Six samples a step on both ranks; behind the range of a batch of four they begin at 12."""
    one = start(daemon)
    one.open("crop")
    one.batches(count=1)
    one.call("skip", first=2, last=2)  # positions 8 to 12
    state = one.state()
    one.call("close")

    ranks = [start(daemon), start(daemon, other)]
    for rank, driver in enumerate(ranks):
        driver.open("crop", job="six", rank=rank, world_size=2, batch_size=3, state=state)
    seen = []
    for turn in range(4):
        for rank, driver in enumerate(ranks):
            if turn == rank:  # the first before its first batch, the second behind it
                driver.call("skip", first=4, last=4)
            batches = driver.batches(count=1, values=["position"])
            again = driver.call("replay", step=batches[0]["step"])["batch"]
            assert digests([again]) == digests(batches)
            seen += positions(batches)
    assert seen == [*range(12, 24), *range(30, 42)]
    for driver in ranks:
        assert driver.call("next", count=0) == {"batches": [], "end": True}


def test_any_batch_can_be_had_once_more_while_the_iteration_goes_on(daemon, start, expected):
    driver = start(daemon)
    driver.open("augment", slots=3)
    got = []
    for step in range(STEPS):
        got += driver.batches(count=1)
        state = driver.state()
        for again, epoch in [(step, None), (0, None), (9 - step, 1), ((step + 3) % 10, 2)]:
            batch = driver.call("replay", step=again, epoch=epoch)["batch"]
            assert digests([batch]) == digests([expected[epoch or 0][again]])
            assert batch["step"] == again
        assert driver.state() == state
    assert driver.call("next", count=0) == {"batches": [], "end": True}
    assert digests(got) == digests(expected[0])
    driver.call("replay", step=0, epoch=0)
    assert digests(driver.batches()) == digests(expected[1])


def test_what_is_left_out_can_be_looked_at(daemon, start, expected):
    driver = start(daemon)
    driver.open("augment")
    driver.call("skip", first=2, last=5)
    driver.batches(count=2)
    for step in range(2, 6):
        batch = driver.call("replay", step=step)["batch"]
        assert digests([batch]) == digests([expected[0][step]])
    assert [b["step"] for b in driver.batches()] == [6, 7, 8, 9]


def test_a_replay_is_of_this_rank(daemon, start):
    driver = start(daemon)
    for rank in range(2):
        driver.open("crop", f"r{rank}", job="two", rank=rank, world_size=2)
    for rank in range(2):
        batch = driver.call("replay", f"r{rank}", step=3, values=["position"])["batch"]
        assert positions([batch]) == list(range(24 + 4 * rank, 28 + 4 * rank))


@pytest.mark.parametrize(
    ("op", "fields", "text"),
    [
        ("replay", {"step": 10}, "step 10"),
        ("replay", {"step": -1}, "step -1"),
        ("skip", {"first": 3, "last": 10}, "step 10"),
        ("skip", {"first": -1, "last": 3}, "step -1"),
        ("skip", {"first": 4, "last": 3}, "4 to 3"),
    ],
)
def test_steps_that_do_not_exist_are_refused(daemon, start, op, fields, text):
    driver = start(daemon)
    driver.open("crop")
    with pytest.raises(Refused, match=text) as caught:
        driver.call(op, **fields)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert take(driver) == list(range(40))


def test_there_is_room_for_eight_ranges_in_a_kibibyte(daemon, start):
    import json

    driver = start(daemon)
    driver.open("crop", seed=(1 << 64) - 1)
    driver.call("set_epoch", epoch=(1 << 63) - 20)
    for k in range(8):
        driver.call("skip", first=2, last=3, epoch=(1 << 63) - 1 - k)
    assert len(json.dumps(driver.state())) <= 1024
    with pytest.raises(Refused, match="at most 8"):
        driver.call("skip", first=5, last=6)
    assert len(driver.state()["skip"]) == 8


def test_a_bad_sample_in_a_range_that_is_left_out_does_not_matter(daemon, start):
    driver = start(daemon)
    driver.open("fails")  # record 17 is bad
    with pytest.raises(Refused) as caught:
        driver.call("replay", step=4)
    assert caught.value.more["record"] == 17
    driver.call("skip", first=4, last=4)
    assert take(driver) == of_steps(0, 1, 2, 3, 5, 6, 7, 8, 9)
