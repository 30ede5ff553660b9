"""Every message that deploy/TROUBLESHOOTING.md quotes is still in the sources."""

from __future__ import annotations

import re
from pathlib import Path

from daemon_process import ROOT

PAGE = ROOT / "deploy/TROUBLESHOOTING.md"
GAP = "…"
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def literals(path: Path) -> str:
    """Return the string literals of a source file as one text, so that a split one is whole."""
    return "".join(LITERAL.findall(path.read_text())).replace('\\"', '"')


def sources() -> list[str]:
    """Return the literals of each source file of the daemon and of the clients."""
    paths = [path for top in ("client", "server") for path in (ROOT / top).rglob("*")]
    return [literals(path) for path in paths if path.suffix in (".cc", ".h", ".py")]


def quoted(page: str) -> list[str]:
    """Return the code spans in the first column of the page's tables that quote a message."""
    rows = re.findall(r"^\| (.*?) \| .+ \| .+ \|$", page, re.MULTILINE)
    return [span for row in rows for span in re.findall(r"`([^`]+)`", row) if " " in span]


def is_said(message: str, texts: list[str]) -> bool:
    """Tell whether one file's literals have every part of the message, without its gaps."""
    parts = [part for part in message.split(GAP) if part.strip()]
    return any(all(part in text for part in parts) for text in texts)


def test_every_quoted_message_is_in_the_sources():
    messages = quoted(PAGE.read_text())
    assert len(messages) > 40, "the tables have another form"
    texts = sources()
    stale = [message for message in messages if not is_said(message, texts)]
    assert not stale, f"{PAGE.name} quotes what no source says any more: {stale}"


def test_a_message_that_is_gone_is_noticed(tmp_path):
    (tmp_path / "some.cc").write_text('Error(absl::StrCat("no ", what, " at "\n  "\\"here\\""));')
    texts = [literals(tmp_path / "some.cc")]
    assert quoted('| `no … at "here"`<br>`gone … at` | why | how |') == [
        'no … at "here"',
        "gone … at",
    ]
    assert is_said('no … at "here"', texts)
    assert not is_said("gone … at", texts)
