"""The saved state: what it looks like, and that a wrong one is refused with the field's name."""

import json

import pytest

import feedwater
from feedwater.cursor import Cursor

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
    cursor = Cursor("f" * 128, "f" * 128, big, big, big, big, big, big)
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
        ({"version": 2}, "version 2"),
        ({**CURSOR.to_state(), "epoch": "3"}, "'epoch'"),
        ({**CURSOR.to_state(), "epoch": -1}, "'epoch'"),
        ({**CURSOR.to_state(), "epoch": True}, "'epoch'"),
        ({**CURSOR.to_state(), "position": 1 << 64}, "'position'"),
        ({**CURSOR.to_state(), "dataset": 5}, "'dataset'"),
        ({**CURSOR.to_state(), "crc32c": None}, "damaged"),
        ({**CURSOR.to_state(), "extra": 1}, "damaged"),
        ({**CURSOR.to_state(), "extra": {1, 2}}, "not JSON"),
    ],
)
def test_what_is_no_state_is_an_invalid_argument_that_says_why(state, text):
    with pytest.raises(feedwater.InvalidArgument, match=text) as caught:
        Cursor.from_state(state)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        ("dataset", ("x", "fedcba9876543210", 42)),
        ("pipeline", ("0123456789abcdef", "x", 42)),
        ("seed", ("0123456789abcdef", "fedcba9876543210", 7)),
    ],
)
def test_a_state_of_something_else_is_refused_and_the_field_named(field, ours):
    with pytest.raises(feedwater.FailedPrecondition, match=f"another {field}"):
        CURSOR.check_same_source(*ours)
