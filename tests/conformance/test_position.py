"""Epochs and the saved position: exactly what was delivered, in any client, for any world."""

from __future__ import annotations

import json
import random
import zlib

import pytest
from conftest import RECORDS
from driver import Refused, digests, values

ALL = list(range(40))  # of 42 records: drop


def positions(batches):
    return values(batches, "position")


def take(driver, loader="a", count=0):
    return positions(driver.batches(loader, count, values=["position"]))


def where(driver, loader="a"):
    state = driver.state(loader)
    return state["epoch"], state["position"]


def test_the_state_is_the_documented_one(daemon, start):
    driver = start(daemon)
    driver.open("crop", rank=0, world_size=1)
    driver.batches(count=3)
    state = driver.state()
    assert {k: state[k] for k in ("version", "seed", "epoch", "position", "world_size")} == {
        "version": 1,
        "seed": 5,
        "epoch": 0,
        "position": 12,
        "world_size": 1,
    }
    assert set(state) == {
        "version",
        "dataset",
        "pipeline",
        "seed",
        "epoch",
        "position",
        "world_size",
        "batch_size",
        "substituted",
        "crc32c",
    }
    crc32c = state.pop("crc32c")
    assert crc32c == by_definition(
        json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
    )
    assert len(json.dumps(state)) <= 1024


def by_definition(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_the_state_counts_batch_by_batch_over_the_end_of_an_epoch(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    assert where(driver) == (0, 0)
    for step in range(10):
        driver.batches(count=1)
        assert where(driver)[0] == 0
        if step < 9:
            assert where(driver)[1] == 4 * (step + 1)
    assert driver.call("next") == {"batches": [], "end": True}
    assert where(driver) == (1, 0)
    driver.batches(count=1)
    assert where(driver) == (1, 4)


def test_an_epoch_ends_where_its_batches_end(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    answer = driver.call("next", count=10)
    assert (len(answer["batches"]), answer["end"]) == (10, False)
    assert driver.call("next") == {"batches": [], "end": True}
    answer = driver.call("next", count=100)
    assert (len(answer["batches"]), answer["end"]) == (10, True)
    answer = driver.call("next", count=0)
    assert (len(answer["batches"]), answer["end"]) == (10, True)
    assert where(driver) == (3, 0)


@pytest.mark.parametrize("taken", [0, 1, 4, 9, 10, 13])
@pytest.mark.parametrize("other", ["python", "cpp"])
def test_any_client_continues_byte_for_byte_where_another_stopped(daemon, start, taken, other):
    whole = start(daemon)
    whole.open("augment")
    expected = [batch for _ in range(3) for batch in whole.batches()]

    first = start(daemon)
    first.open("augment", job="first")
    before = []
    while len(before) < taken:
        before += first.call("next", count=taken - len(before))["batches"]
    state = first.state()
    first.kill()

    second = start(daemon, other)
    second.open("augment", job="second")
    second.call("load", state=state)
    after = []
    while len(before) + len(after) < 30:
        after += second.batches()
    assert digests(before + after) == digests(expected)


@pytest.mark.parametrize(("world", "batch"), [(2, 2), (4, 1), (1, 2), (1, 8), (2, 4)])
def test_another_world_continues_at_the_same_place(daemon, start, reference, world, batch):
    one = start(daemon)
    one.open("crop")
    seen = take(one, count=4)
    state = one.state()
    assert state["position"] == 16
    one.call("close")

    driver = start(daemon)
    for rank in range(world):
        driver.open("crop", f"r{rank}", job="other", rank=rank, world_size=world, batch_size=batch)
        driver.call("load", f"r{rank}", state=state)
    steps = reference["steps"](RECORDS, batch, world, "drop", 16)
    for _ in range(steps):
        for rank in range(world):
            seen += take(driver, f"r{rank}", 1)
    assert seen == list(range(16 + steps * world * batch))
    for rank in range(world):
        assert driver.call("next", f"r{rank}") == {"batches": [], "end": True}
        assert where(driver, f"r{rank}") == (1, 0)
    assert take(driver, "r0", 1) == list(range(batch))


def test_resuming_twice_inside_one_epoch_keeps_the_place(daemon, start):
    state, seen = None, []
    for _ in range(3):
        driver = start(daemon)
        driver.open("crop")
        if state:
            driver.call("load", state=state)
        seen += take(driver, count=3)
        state = driver.state()
        driver.call("close")
    assert seen == list(range(36))


def test_a_state_of_the_end_gives_an_empty_rest_and_then_the_next_epoch(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=10)
    state = driver.state()
    other = start(daemon)
    other.open("crop")
    other.call("load", state=state)
    other.call("set_epoch", epoch=0)
    assert other.call("next", count=0) == {"batches": [], "end": True}
    assert where(other) == (1, 0)
    batches = other.batches(values=["position"])
    assert positions(batches) == ALL
    assert {batch["epoch"] for batch in batches} == {1}


def test_set_epoch_chooses_and_keeps_a_loaded_position(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.call("set_epoch", epoch=6)
    assert {b["epoch"] for b in driver.batches()} == {6}
    driver.call("set_epoch", epoch=2)
    driver.batches(count=3)
    state = driver.state()
    assert (state["epoch"], state["position"]) == (2, 12)
    driver.call("set_epoch", epoch=2)  # some of it was taken: from its beginning
    assert take(driver, count=1) == [0, 1, 2, 3]
    driver.call("load", state=state)
    driver.call("set_epoch", epoch=2)  # nothing was taken since: it stays
    assert take(driver) == ALL[12:]


def test_leaving_an_epoch_early_goes_on_with_the_next(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=3)
    driver.call("restart")
    assert where(driver) == (0, 12)
    batches = driver.batches(values=["position"])
    assert positions(batches) == ALL
    assert {b["epoch"] for b in batches} == {1}


def test_loading_again_and_again_at_random_places_gives_the_promised_bytes(daemon, start):
    rng = random.Random(11)
    driver = start(daemon)
    driver.open("augment")
    states, expected = [driver.state()], []
    for _ in range(2):
        while True:
            answer = driver.call("next")
            if answer["end"]:
                break
            expected += digests(answer["batches"])
            states.append(driver.state())
    for _ in range(30):
        k = rng.randrange(len(expected))
        driver.call("load", state=states[k])
        got = driver.call("next")
        if got["end"]:  # the state of an epoch's end
            got = driver.call("next")
        assert digests(got["batches"]) == [expected[k]], f"after batch {k}"


def test_a_state_of_something_else_is_refused_with_the_field_named(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    good = driver.state()
    for name, pipeline, options in [
        ("pipeline", "plain", {}),
        ("seed", "crop", {"seed": 99}),
        ("dataset", "substitutes", {}),
    ]:
        driver.open(pipeline, "other", **options)
        with pytest.raises(Refused, match=name) as caught:
            driver.call("load", "other", state=good)
        assert caught.value.code == "FAILED_PRECONDITION"
        assert len(driver.batches("other", 1)) == 1  # and nothing else has happened
        driver.call("close", "other")


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 1},
        {"position": 8},
        {"crc32c": 0},
        {"crc32c": None},
        {"version": 2},
        {"dataset": 5},
        {"position": -4},
        {"seed": "5"},
    ],
)
def test_a_damaged_state_is_an_invalid_argument(daemon, start, change):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=1)
    state = {**driver.state(), **change}
    with pytest.raises(Refused) as caught:
        driver.call("load", state=state)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert take(driver, count=1) == [4, 5, 6, 7]


def test_a_position_outside_the_epoch_is_an_invalid_argument(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    state = driver.state()
    state["position"] = 43
    del state["crc32c"]
    canonical = json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(Refused) as caught:
        driver.call("load", state={**state, "crc32c": by_definition(canonical)})
    assert caught.value.code == "INVALID_ARGUMENT"
    assert zlib.crc32(canonical) != by_definition(canonical)
