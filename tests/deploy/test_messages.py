"""deploy/README.md has a row for every place in the sources that makes an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from daemon_process import ROOT
from error_messages import GAP, Message, of_cpp, of_python

PAGE = ROOT / "deploy/README.md"
# Sources whose errors users meet under a common beginning, which is what has the row.
UNDER = {
    "FILE:LINE:COLUMN: …": (
        "server/base/yaml", "server/base/schema", "server/base/units", "server/base/tensor",
        "server/base/cpus", "server/graph/", "server/sampler/", "server/service/config",
        "server/batch/",
    ),
    "record … of …: …": ("server/codec/", "server/pipeline/record_reader", "server/storage/engine"),
    "while opening …: …": ("server/source/formats/", "server/source/dataset"),
    "the decoder process broke its protocol on this record: …": (
        "server/decoder/region", "server/decoder/serve", "server/decoder/decoder_setup",
    ),
    "an index …": ("server/source/index_file", "server/cache/"),
    "the daemon broke the protocol: …": (
        "client/python/feedwater/wire", "client/python/feedwater/arena",
        "client/python/feedwater/session", "client/cpp/session",
    ),
}  # fmt: skip
# What no user can meet, with the reason.
UNREACHABLE = {
    "memory for … is negative": "the daemon's own sums",
    "the job has no pipeline": "the service always gives one",
    "a job's weight is greater than 0": "no option sets it",
    "world_size is at least 1": "refused by the service before",
    "the slots are not laid out as": "the service lays them out",
    "lies on storage that may hang": "another thread opens the file then",
    "nobody waits for this read": "its batch was dropped",
    "nobody waits for the dataset": "whoever asked for it has left",
    "a file was found to be another one": "asked for by the catalogue, which opens it anew",
    "its root leads to another folder now": "asked for by the catalogue, which opens it anew",
    "a read without a file": "readers open before they read",
    "a buffer of … bytes is too small": "the readers' own buffers",
    "read buffer is not aligned": "the readers' own buffers",
    "an engine's depth is": "no option sets it",
    "… slots; a session has 1 to": "refused by the service before",
    "a slot of … bytes is not a number": "slots are whole pages by construction",
    "files.identity has … bytes": "both clients send what the daemon gave them",
    "no WELCOME": "caught, told as a broken protocol",
    "an arena of … bytes": "slots are whole pages by construction",
    "could not make this batch": "stands in when the daemon gave no reason",
}


def messages() -> Iterator[Message]:
    """Yield every message of the daemon and of both clients."""
    for folder in ("server", "client/cpp"):
        for pattern in ("*.cc", "*.h"):
            for path in sorted((ROOT / folder).rglob(pattern)):
                yield from of_cpp(path, ROOT)
    for path in sorted((ROOT / "client/python/feedwater").glob("*.py")):
        yield from of_python(path, ROOT)


def pieces() -> list[str]:
    """Return what stands in backticks in the first column of the tables."""
    section = PAGE.read_text().partition("## Messages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| .+ \| .+ \|$", section, re.M)
    assert len(rows) > 40, "the tables of deploy/README.md have another form"
    return [piece for row in rows for piece in re.findall(r"`([^`]+)`", row)]


def covers(piece: str, text: str) -> bool:
    """Tell whether a message contains a piece, whose gaps may be anything."""
    parts = [re.escape(part) for part in piece.split(GAP) if part]
    return re.search(".*".join(parts), text, re.S) is not None


def test_every_message_has_a_row():
    rows = pieces()
    missing = [
        f"{message.path}:{message.line}: {message.text}"
        for message in messages()
        if not any(covers(piece, message.text) for piece in [*rows, *UNREACHABLE])
        and not any(message.path.startswith(paths) for paths in UNDER.values())
    ]
    assert not missing, (
        "give these a row in the tables of deploy/README.md (message, cause, cure), or their "
        "source a place in UNDER:\n" + "\n".join(missing)
    )


def test_every_row_is_about_a_message_that_exists():
    texts = [message.text for message in messages()]
    prefixes = {*UNDER, f"{GAP} (errno {GAP})"}
    stale = [
        piece
        for piece in [*pieces(), *UNREACHABLE]
        if piece not in prefixes and not any(covers(piece, text) for text in texts)
    ]
    # Names of options and commands stand in the other columns; here only messages do.
    assert not stale, f"no error in the sources says this any more: {stale}"
    assert prefixes <= set(pieces()), "a common beginning has lost its row"


def test_the_search_finds_messages_of_every_kind(tmp_path):
    cpp = tmp_path / "some.cc"
    cpp.write_text(
        'return absl::NotFoundError(absl::StrCat("no ", what, " at \\"", place, "\\""));\n'
        '// absl::NotFoundError("a comment")\n'
        'if (c == \')\') return node.Error("wrong " "place");\n'
    )
    assert [m.text for m in of_cpp(cpp, tmp_path)] == ['no … at "…"', "wrong place"]
    python = tmp_path / "some.py"
    python.write_text('raise errors.NotFound(f"no {what} " "here")\nraise ValueError(text)\n')
    assert [m.text for m in of_python(python, tmp_path)] == ["no … here"]
