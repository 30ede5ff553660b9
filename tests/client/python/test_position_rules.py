"""The rules of position, against the table that the C++ client passes, too."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from feedwater.cursor import add_skip
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


def test_steps_count_alike_at_any_moment_behind_ranges_of_other_batches():
    """Of two ranks one asks for all skips at once, the other for each somewhen before its steps."""
    rng = random.Random(20240611)
    for _ in range(500):
        size, records = rng.randint(1, 9), rng.randint(20, 90)
        last = rng.choice(["drop", "partial"])
        steps = records // size if last == "drop" else -(-records // size)
        start = rng.choice([0, rng.randrange(records)])
        ranges = ()
        for _ in range(rng.randrange(4)):
            first, end = sorted(rng.sample(range(records + 1), 2))
            ranges = add_skip(ranges, rng.randrange(2), first, min(end, first + 12))
        asked = {}  # by the moment: epoch and step of the batch before which the second rank asks
        for _ in range(rng.randrange(4)):
            epoch, first = rng.randrange(2), rng.randrange(steps)
            moment = rng.randrange(2), rng.randrange(first + 1)
            if moment[0] <= epoch:
                moment = moment if moment[0] == epoch else (moment[0], rng.randrange(steps))
                asked.setdefault(moment, []).append((first, min(first + 2, steps - 1), epoch))
        early, late = (
            Position(EpochShape(records, steps, size, last == "drop"), 0, 0) for _ in "ab"
        )
        for rank in (early, late):
            rank.load(Consumed(0, start, 0, ranges))
        for moment in sorted(asked):
            for skip in asked[moment]:
                ask(early, skip)
        told = (size, records, last, start, ranges, asked)
        batches = walk(early, {}), walk(late, asked)
        assert batches[0] == batches[1], told


def ask(rank: Position, skip: tuple[int, int, int]) -> None:
    with contextlib.suppress(InvalidArgument):  # it lies behind the end of a resumed epoch
        rank.skip(*skip)


def walk(rank: Position, asked: dict) -> list[tuple[int, int]]:
    """Take two epochs as the daemon gives them; returns where the batches begin."""
    shape, size, left = rank._shape, rank._shape.global_batch, dict(asked)
    taken = []
    for epoch in range(2):
        while True:
            of_epoch, begin = rank.wanted
            step = rank.step(begin)
            due = [
                m
                for m in sorted(left)
                if m <= ((epoch, step) if rank.has_rest else (epoch, 1 << 60))
            ]
            if due:
                for skip in left.pop(due[0]):
                    ask(rank, skip)
                continue
            if of_epoch != epoch or not rank.has_rest:
                break
            assert rank.begin_of(epoch, step) == begin
            end = min(begin + size, shape.records)
            rest = shape.records - end
            rank.take(epoch, end, is_last=rest < (size if shape.drop_last else 1))
            assert all(rank.begin_of(*of) == place for of, place in taken if of[0] == epoch)
            taken.append(((epoch, step), begin))
        rank.begin_epoch(epoch + 1)
    return taken
