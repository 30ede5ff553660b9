"""Tests that server/THREATS.md and tests/README.md name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from daemon_process import ROOT

PAGE = ROOT / "server/THREATS.md"
_NAMED = re.compile(r"`([\w/]+\.(?:py|cc))(?:::([\w.]+))?`")


TABLES = (
    (PAGE, "Guarantees"),
    (ROOT / "tests/README.md", "Who is killed, and where that is proven"),
)


def named(page: Path, heading: str) -> list[tuple[str, str]]:
    """Return the files and names of tests in a table."""
    table = page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return _NAMED.findall(table.partition("\n| ")[2])


def exists(file: str, name: str) -> bool:
    """Tell whether a file below tests/ has a test: a Python function, or SUITE.NAME."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return False
    text = path.read_text()
    if not name:
        return True
    if path.suffix == ".py":
        return re.search(rf"^def {name}\(", text, re.M) is not None
    suite, _, case = name.partition(".")
    return re.search(rf"^TEST(?:_F|_P)?\(\s*{suite},\s*{case}\)", text, re.M) is not None


@pytest.mark.parametrize(("page", "heading"), TABLES, ids=[page.name for page, _ in TABLES])
def test_every_test_that_is_named_exists(page, heading):
    tests = named(page, heading)
    assert len(tests) > 15
    missing = [f"{file}::{name}" for file, name in tests if not exists(file, name)]
    assert not missing, f"{page.name} names tests that are not there: {missing}"


def test_every_guarantee_is_attacked():
    table = PAGE.read_text().partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    guarantees = [row for row in rows if not row.startswith("| **")]
    assert len(guarantees) > 20
    without = [row for row in guarantees if not _NAMED.search(row.rsplit("|", 2)[1])]
    assert not without, without


def test_the_page_can_be_read_at_one_sitting():
    assert len(PAGE.read_text().splitlines()) <= 120
