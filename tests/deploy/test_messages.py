"""deploy/TROUBLESHOOTING.md quotes messages that the sources still have."""

from __future__ import annotations

import re

from daemon_process import ROOT

PAGE = ROOT / "deploy/TROUBLESHOOTING.md"
GAP = "…"  # in a quoted message: what is filled in
SOURCES = ("server/**/*.cc", "server/**/*.h", "client/**/*.cc", "client/**/*.h", "client/**/*.py")
BETWEEN_LITERALS = re.compile(r'"\s*f?"')  # "one " "literal", over lines, too


def quoted() -> list[str]:
    """Return the messages in the first column of the tables."""
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \|$", PAGE.read_text(), re.M)
    return [piece for row in rows for piece in re.findall(r"`([^`]+)`", row)]


def test_every_quoted_message_is_one_of_the_sources():
    messages = quoted()
    assert len(messages) > 30, "the tables have another form"
    sources = "\n".join(
        BETWEEN_LITERALS.sub("", path.read_text())
        for pattern in SOURCES
        for path in sorted(ROOT.glob(pattern))
    )
    places = {"FILE:LINE:COLUMN: …"}  # of every mistake in a file
    stale = [
        message
        for message in messages
        if message not in places and any(part.strip() not in sources for part in message.split(GAP))
    ]
    assert not stale, f"no source says this any more: {stale}"
