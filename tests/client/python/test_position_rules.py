"""The rules of position, against the table that the C++ client passes, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from feedwater.errors import InvalidArgument
from feedwater.position import Consumed, EpochShape, Position

TABLE = Path(__file__).parents[2] / "conformance/positions.json"
DONE = {"take", "begin_epoch", "choose_epoch", "load", "skip"}
CASES = json.loads(TABLE.read_text())["cases"]


def do(position: Position, step: dict) -> None:
    if "take" in step:
        position.take(*step["take"], step.get("last", False), step.get("substituted", 0))
    elif "begin_epoch" in step:
        position.begin_epoch(step["begin_epoch"])
    elif "choose_epoch" in step:
        moved = position.choose_epoch(step["choose_epoch"])
        assert moved == step.get("moved", moved)
    elif "load" in step:
        state = step["load"]
        skips = tuple(tuple(part) for part in state.get("skips", ()))
        position.load(
            Consumed(state["epoch"], state["position"], state.get("substituted", 0), skips)
        )
    elif "skip" in step:
        epoch, first, last = step["skip"]
        position.skip(first, last, epoch)


def check(position: Position, step: dict) -> None:
    at = position.consumed
    facts = {
        "at": [at.epoch, at.position],
        "skips": [list(part) for part in at.skips],
        "substituted_so_far": at.substituted,
        "wanted": list(position.wanted),
        "next_epoch": position.next_epoch,
        "has_rest": position.has_rest,
    }
    for name in step.keys() & facts.keys():
        assert facts[name] == step[name], name
    assert step.keys() <= facts.keys() | DONE | {
        "last",
        "substituted",
        "moved",
        "refused",
        "begin_of",
    }
    for epoch, number, begin in step.get("begin_of", ()):
        assert position.begin_of(epoch, number) == begin


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case_of_the_table(case):
    shape = EpochShape(
        case["records"],
        case["steps"],
        case["world_size"] * case["batch_size"],
        case["last"] == "drop",
    )
    position = Position(shape, 0, 0)
    for step in case["steps_taken"]:
        before = position.consumed
        if "refused" in step:
            with pytest.raises(InvalidArgument, match=step["refused"]):
                do(position, step)
            assert position.consumed == before
        else:
            do(position, step)
        check(position, step)


def test_a_position_goes_into_another_world():
    position = Position(EpochShape(100, 10, 10, True), 0, 0)
    position.load(Consumed(2, 34, 1, ((2, 50, 60),)))
    position.reshape(EpochShape(100, 3, 30, True))
    assert position.consumed == Consumed(2, 34, 1, ((2, 50, 60),))
    assert position.resumed
    assert position.begin_of(2, 0) == 4
    assert position.wanted == (2, 60)
