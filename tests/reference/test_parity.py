"""The measured differences from other libraries: every op that has a counterpart has some, or a
reason why not, and none is of an op or parameter that is gone.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from daemon_process import BUILD, ROOT

PROGRAM = BUILD / "bin/feedwater"
PARITY = json.loads((ROOT / "config/reference/parity.json").read_text())
COMPARED = ("torchvision", "Albumentations")


@pytest.fixture(scope="module")
def ops() -> dict[str, dict]:
    """The ops that the program knows."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built (FEEDWATER_BUILD_DIR says where)")
    done = subprocess.run(
        [PROGRAM, "describe", "op", "--json"], capture_output=True, text=True, check=True
    )
    return {op["op"]: op for op in json.loads(done.stdout)["ops"]}


def test_every_op_with_a_counterpart_was_compared_or_says_why_not(ops):
    counterparts = {
        name
        for name, op in ops.items()
        for other in op["other_names"]
        if not other["nearest"] and other["library"] in COMPARED
    }
    measured = {row["op"] for row in PARITY["rows"]}
    assert counterparts - measured - set(PARITY["not_compared"]) == set()
    assert measured & set(PARITY["not_compared"]) == set()


def test_no_row_is_of_an_op_or_a_parameter_that_is_gone(ops):
    assert {row["op"] for row in PARITY["rows"]} | set(PARITY["not_compared"]) <= set(ops)
    for row in PARITY["rows"]:
        if ": " not in row["parameters"]:
            continue
        known = {param["name"] for param in ops[row["op"]]["params"]}
        outside = "".join(part.partition("[")[0] for part in row["parameters"].split("]"))
        given = {part.partition(":")[0].strip(" ,") for part in outside.split(", ") if ":" in part}
        assert given and given <= known, row


def test_a_row_says_what_was_compared_and_how_far_it_is():
    keys = {"op", "parameters", "beside", "largest", "mean"}
    for row in PARITY["rows"]:
        assert set(row) == keys
        assert 0 <= row["mean"] <= row["largest"], row
    assert len({(r["op"], r["parameters"], r["beside"]) for r in PARITY["rows"]}) == len(
        PARITY["rows"]
    )
    assert PARITY["photos"] >= 20
    assert set(PARITY["versions"]) == {
        "torchvision", "torch", "Pillow", "Albumentations", "OpenCV"
    }  # fmt: skip
