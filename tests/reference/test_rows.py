"""Tables of READMEs that describe what registers itself have a row for each."""

from __future__ import annotations

import re

from daemon_process import ROOT


def rows(page: str, heading: str) -> set[str]:
    """Return the names of the first column of the table below a heading or with such a head."""
    table = (ROOT / page).read_text().partition(f"{heading}")[2].partition("\n| ")[2]
    cells = re.findall(r"^(?:\| )?(`[^|]*`) \|", table.partition("\n\n")[0], re.M)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def described(page: str) -> dict[str, str]:
    """Return what the reference says of each name."""
    parts = re.split(r"^##+ (\w+)$", (ROOT / "config/reference" / page).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def test_every_format_has_a_row():
    assert rows("server/source/README.md", "\n## Formats\n") == {*described("formats.md")}


def test_every_random_op_says_its_draws():
    random = {name for name, text in described("ops.md").items() if "**Randomness:** per" in text}
    assert len(random) > 20
    random.remove("python")  # whose draws are its program's
    drawn = rows("server/graph/README.md", "\n## Draws\n")
    assert random <= drawn
    assert drawn <= {path.stem for path in (ROOT / "server/graph/ops").glob("*.cc")}


def test_every_fuzzer_has_a_row():
    fuzzers = {
        path.name.removesuffix("_fuzzer.cc") for path in (ROOT / "tests/fuzz").glob("*_fuzzer.cc")
    }
    assert rows("tests/fuzz/README.md", "# Fuzzers\n") == fuzzers
