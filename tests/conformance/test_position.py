"""Epochs and the saved position: exactly what was delivered, in any client, for any world."""

from __future__ import annotations

import json
import pickle
import random
import time
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


def test_a_state_of_the_end_goes_on_with_the_next_epoch_where_none_is_chosen(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=10)
    other = start(daemon)
    assert other.open("crop", state=driver.state())["epoch"] == 1, "of the next batch"
    batches = other.batches(values=["position"])
    assert positions(batches) == ALL
    assert {batch["epoch"] for batch in batches} == {1}
    assert {batch["epoch"] for batch in other.batches()} == {2}


def test_a_state_of_the_end_is_one_where_batches_divide_the_records_too(daemon, start):
    """42 records make six batches of 7; behind position 40 `last: drop` has none of them."""
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=10)
    other = start(daemon)
    assert other.open("crop", batch_size=7, state=driver.state())["epoch"] == 1
    other.call("skip", first=0, last=0)
    assert other.state()["skip"] == [[1, 0, 7]]
    assert other.call("replay", step=1)["batch"]["epoch"] == 1
    batches = other.batches(values=["position"])
    assert {batch["epoch"] for batch in batches} == {1}
    assert positions(batches) == list(range(7, 42))


def test_a_loaded_state_is_forgotten_once_its_epoch_has_gone_on(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=3)
    other = start(daemon)
    other.open("crop", state=driver.state())
    assert take(other) == ALL[12:]
    other.call("skip", first=0, last=9, epoch=1)
    assert other.call("next", count=0) == {"batches": [], "end": True}
    assert {batch["epoch"] for batch in other.batches()} == {2}


def test_the_epoch_after_a_loaded_end_may_be_left_out(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=10)
    other = start(daemon)
    other.open("crop", state=driver.state())
    other.call("skip", first=0, last=9)
    other.call("skip", first=0, last=2, epoch=2)
    assert other.call("next", count=0) == {"batches": [], "end": True}
    assert where(other) == (2, 0)
    assert take(other) == ALL[12:]


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
        assert "Cure: open the " in caught.value.message
        assert ("seed" in caught.value.message.partition("Cure")[2]) == (name == "seed")
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
        {"version": 3},
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


def signed(state: dict) -> dict:
    """Return a state with a checksum that fits, as somebody hostile would write it."""
    content = {key: value for key, value in state.items() if key != "crc32c"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return {**content, "crc32c": by_definition(canonical)}


NONSENSE = [None, True, -1, 1.5, 1 << 63, 1 << 64, "7", "", [], [1], {}, {"a": 1}]
HOSTILE = [
    *(
        (field, value)
        for field in ("seed", "epoch", "position", "world_size", "batch_size", "substituted")
        for value in NONSENSE
        if (field, value) not in (("seed", 1 << 63), ("epoch", 1 << 63))
    ),
    *(
        (field, value)
        for field in ("dataset", "pipeline")
        for value in (None, 5, [], "x" * 65, "x" * 500)
    ),
    *(("version", value) for value in (None, 0, 3, -1, 1.0, True, "1", [1])),
    ("position", 43),
    ("more", 1),
    ("skip", [[0, 0, 4]]),  # of version 2
]


def test_a_hostile_state_is_refused_with_the_field_named(daemon, start):
    """Every field in turn says something it cannot say, under a checksum that fits."""
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=1)
    good = driver.state()
    for field, value in HOSTILE:
        for operation in ("load", "open"):
            with pytest.raises(Refused) as caught:
                if operation == "load":
                    driver.call("load", state=signed({**good, field: value}))
                else:
                    driver.open("crop", "other", state=signed({**good, field: value}))
            assert caught.value.code == "INVALID_ARGUMENT", (field, value, operation)
            assert field in caught.value.message, (field, value, operation)
            assert len(caught.value.message) < 600
    with pytest.raises(Refused) as caught:
        driver.call("load", state=signed({**good, "dataset": "x" * 100_000}))
    assert caught.value.code == "INVALID_ARGUMENT" and len(caught.value.message) < 600
    for field in good:
        without = {key: value for key, value in good.items() if key != field}
        state = without if field == "crc32c" else signed(without)
        with pytest.raises(Refused, match=field) as caught:
            driver.call("load", state=state)
        assert caught.value.code == "INVALID_ARGUMENT", field
    assert take(driver, count=1) == [4, 5, 6, 7]


def test_hostile_ranges_in_a_state_are_refused(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.call("skip", first=1, last=1)
    good = driver.state()
    for value in [
        None,
        [],
        {},
        "x",
        [[]],
        [[0, 4]],
        [[0, 8, 4]],
        [[0, 4, 4]],
        [[-1, 4, 8]],
        [[0, 4, 1 << 63]],
        [[0, 4, "8"]],
        [[0, 4, 8.0]],
        [[0, 4, True]],
        [[k, 4, 8] for k in range(9)],
        [[0, 4, 8]] * 100,
    ]:
        with pytest.raises(Refused, match="skip") as caught:
            driver.call("load", state=signed({**good, "skip": value}))
        assert caught.value.code == "INVALID_ARGUMENT", value
    assert driver.state() == good
    # Ranges that overlap, or lie beyond the dataset, are no reason to lose a place.
    driver.call("load", state=signed({**good, "skip": [[0, 4, 8], [0, 6, 12], [9, 0, 1 << 62]]}))
    assert driver.state()["skip"] == [[0, 4, 12], [9, 0, 1 << 62]]
    assert take(driver) == [*range(4), *range(12, 40)]


def test_what_was_prefetched_when_the_state_was_taken_is_not_lost(daemon, start):
    whole = start(daemon)
    whole.open("augment")
    expected = digests(whole.batches())
    got, state = [], None
    for count in (1, 2, 1, 3):  # four programs in one epoch
        driver = start(daemon)
        driver.open("augment", slots=8, state=state)
        got += digests(driver.batches(count=count))
        time.sleep(0.2)  # the daemon goes on until all slots are full
        state = driver.state()
        driver.kill()
    driver = start(daemon)
    driver.open("augment", state=state)
    got += digests(driver.batches())
    assert got == expected


def test_a_state_survives_every_writer_of_json(daemon, start):
    driver = start(daemon)
    driver.open("crop")
    driver.batches(count=2)
    state = driver.state()
    for again in (
        json.loads(json.dumps(state, indent=4)),
        dict(reversed(state.items())),
        pickle.loads(pickle.dumps(state)),
    ):
        driver.call("load", state=again)
        assert where(driver) == (0, 8)
        assert driver.state() == state


def test_a_state_keeps_the_count_of_substitutes(daemon, start):
    driver = start(daemon)
    driver.open("substitutes")
    driver.batches(count=6)
    state = driver.state()
    assert state["substituted"] == 1
    driver.batches()
    driver.call("load", state=state)
    assert driver.state() == state
    other = start(daemon)
    other.open("substitutes", state=state)
    assert other.state() == state


def test_set_epoch_after_a_reconnect_still_knows_that_batches_were_taken(own_daemon, start):
    driver = start(own_daemon)
    driver.open("crop")
    take(driver, count=2)
    own_daemon.restart()
    take(driver, count=1)
    driver.call("set_epoch", epoch=0)
    assert take(driver) == ALL


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
