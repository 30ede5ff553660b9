"""The tables of files in the READMEs of server/, client/ and tests/ name what is in their folders.

A column headed by one of HEADINGS holds names in backticks: `a` or `a.h` (a.h, a.cc, a.py), `b/c`,
a pattern such as `plugin_*` (NAME stands for *), or a folder. A folder of which `b/c` is named is
held to the table like the page's own, unless `b/` has a row.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from daemon_process import ROOT

HEADINGS = {"file", "folder", "program", "command", "example"}
PAGES = sorted(
    page for top in ("server", "client", "tests") for page in (ROOT / top).rglob("README.md")
)


def names(page: Path) -> list[str]:
    """Return the first word of each text in backticks of the columns of files."""
    found, column = [], None
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and column is None:
            column = next((i for i, cell in enumerate(cells) if cell in HEADINGS), len(cells))
        elif column is not None and column < len(cells):
            found += re.findall(r"`([^` ]+)[^`]*`", cells[column])
        column = column if cells else None
    return found


def files(folder: Path, name: str) -> set[Path]:
    """Return what a name stands for."""
    pattern = name.replace("NAME", "*").removesuffix("/").removesuffix(".h")
    return {*folder.glob(pattern), *folder.glob(pattern + ".*")}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if names(p)], ids=lambda p: str(p.parent.relative_to(ROOT))
)
def test_a_table_of_files_names_all_of_its_folder_and_no_others(page):
    named = {name: files(page.parent, name) for name in names(page)}
    gone = [name for name, found in named.items() if not found]
    assert not gone, f"{page} names what is not there"
    rows = set().union(*named.values())
    folders = {page.parent, *(path.parent for path in rows if ".." not in path.parts)} - rows
    sources = {
        path
        for folder in folders
        for path in folder.iterdir()
        if path.suffix in {".cc", ".h", ".py"}
    }
    missing = sorted(str(path.relative_to(page.parent)) for path in sources - rows)
    assert not missing, f"{page} lacks a row for them"


def test_every_folder_of_the_server_has_a_table():
    folders = {path.parent for path in (ROOT / "server").glob("*/*.h")}
    assert len(folders) > 10
    assert not [folder.name for folder in folders if not names(folder / "README.md")]
