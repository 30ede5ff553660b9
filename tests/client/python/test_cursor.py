"""The saved state: what it looks like, and that a wrong one is refused with the field's name."""

import json

import pytest

import feedwater
from feedwater.cursor import MAX_SKIPS, Cursor, add_skip, after_skips, forget_passed

CURSOR = Cursor("0123456789abcdef", "fedcba9876543210", 42, 3, 24, 2, 4, 1)


def test_the_state_is_the_documented_json_object():
    assert CURSOR.to_state() == {
        "version": 1,
        "dataset": "0123456789abcdef",
        "pipeline": "fedcba9876543210",
        "seed": 42,
        "epoch": 3,
        "position": 24,
        "world_size": 2,
        "batch_size": 4,
        "substituted": 1,
        "crc32c": 537406017,
    }


def test_a_state_survives_json_in_any_order_and_spacing():
    state = CURSOR.to_state()
    again = json.loads(json.dumps(dict(reversed(list(state.items()))), indent=3))
    assert Cursor.from_state(again) == CURSOR


def test_the_largest_state_fits_into_a_kibibyte():
    big = 2**64 - 1
    skips = tuple((big, big - 2 * k - 1, big - 2 * k) for k in range(MAX_SKIPS))
    cursor = Cursor("f" * 64, "f" * 64, big, big, big, big, big, big, skips)
    assert len(json.dumps(cursor.to_state())) <= 1024
    assert len(cursor.to_json()) <= 1024


@pytest.mark.parametrize(
    "field", ["dataset", "pipeline", "seed", "epoch", "position", "world_size"]
)
def test_an_edited_state_is_refused(field):
    state = CURSOR.to_state()
    state[field] = "other" if isinstance(state[field], str) else state[field] + 1
    with pytest.raises(feedwater.InvalidArgument, match="damaged"):
        Cursor.from_state(state)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, "not NoneType"),
        ([], "not list"),
        ({}, "no 'version'"),
        ({"version": 3}, "'version' is 3"),
        ({"version": 1.0}, "'version' is 1.0"),
        ({"version": 2}, "'dataset' is missing"),
        ({**CURSOR.to_state(), "epoch": "3"}, "'epoch'"),
        ({**CURSOR.to_state(), "epoch": -1}, "'epoch'"),
        ({**CURSOR.to_state(), "epoch": True}, "'epoch'"),
        ({**CURSOR.to_state(), "position": 1 << 64}, "'position'"),
        ({**CURSOR.to_state(), "dataset": 5}, "'dataset'"),
        ({**CURSOR.to_state(), "crc32c": None}, "damaged"),
        ({**CURSOR.to_state(), "extra": 1}, "'extra' is unknown"),
        ({**CURSOR.to_state(), 5: {1, 2}}, "field 5 is unknown"),
        ({**CURSOR.to_state(), "skip": [[3, 24, 48]]}, "'skip' is unknown in version 1"),
        ({**CURSOR.to_state(), "seed": 10**6000}, "'seed' is out of range"),
        ({**CURSOR.to_state(), "version": 10**6000}, "'version' is a number without end"),
        ({**CURSOR.to_state(), "dataset": "x" * 10**6}, "'dataset' is no digest"),
    ],
)
def test_what_is_no_state_is_an_invalid_argument_that_says_why(state, text):
    with pytest.raises(feedwater.InvalidArgument, match=text) as caught:
        Cursor.from_state(state)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("field", "ours", "cure"),
    [
        ("dataset", ("x", "fedcba9876543210", 42), "on the files that it was saved with"),
        ("pipeline", ("0123456789abcdef", "x", 42), "with the pipeline that it was saved with"),
        ("seed", ("0123456789abcdef", "fedcba9876543210", 7), "with seed=42"),
    ],
)
def test_a_state_of_something_else_is_refused_with_the_field_and_the_cure(field, ours, cure):
    with pytest.raises(feedwater.FailedPrecondition, match=f"another {field}") as caught:
        CURSOR.check_same_source(*ours)
    text = str(caught.value)
    assert f"Cure: open the loader {cure}; or do not load it" in text
    assert text.endswith("with set_epoch(3)")  # the state's own


def test_what_is_left_out_travels_in_the_state_and_not_to_the_daemon():
    cursor = Cursor("d", "p", 42, 3, 24, 2, 4, 1, ((3, 32, 40), (7, 0, 8)))
    state = cursor.to_state()
    assert (state["version"], state["skip"]) == (2, [[3, 32, 40], [7, 0, 8]])
    assert Cursor.from_state(json.loads(json.dumps(state))) == cursor
    sent = json.loads(cursor.to_json())
    assert sent["version"] == 1 and "skip" not in sent
    assert Cursor.from_state(sent).skip == ()


def test_ranges_are_sorted_and_those_that_touch_are_one():
    skips = ()
    for part in [(1, 8, 12), (0, 20, 24), (1, 0, 4), (0, 4, 8), (1, 4, 8), (0, 6, 10)]:
        skips = add_skip(skips, *part)
    assert skips == ((0, 4, 10), (0, 20, 24), (1, 0, 12))
    assert forget_passed(skips, 0, 9) == skips
    assert forget_passed(skips, 0, 10) == skips[1:]
    assert forget_passed(skips, 1, 0) == skips[2:]
    assert forget_passed(skips, 1, 12) == ()


@pytest.mark.parametrize(
    ("position", "expected"),
    [(0, 0), (4, 4), (5, 12), (8, 12), (11, 12), (12, 12), (16, 16), (17, 25), (24, 25), (25, 25)],
)
def test_a_batch_that_would_reach_into_a_range_begins_behind_it(position, expected):
    skips = ((0, 8, 12), (0, 20, 25), (1, 0, 100))
    assert after_skips(skips, 0, position, 4) == expected


def test_leaving_one_range_may_lead_into_the_next():
    assert after_skips(((0, 8, 12), (0, 14, 20)), 0, 8, 4) == 20
