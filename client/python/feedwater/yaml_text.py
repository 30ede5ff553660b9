"""Writing the YAML of a pipeline file: maps and lists of words, numbers and texts.

The layout is that of config/pipelines: a value stands in one line where it fits, and the ops of a
graph have a line each, with their parameters below one another.
"""

from __future__ import annotations

import json
import re
from typing import Any

_COLUMNS = 120


class Comment(str):
    """An entry of a graph that is a comment."""


# What needs no quotes, and is neither a number nor one of YAML's words for something else.
_WORD = re.compile(r"[A-Za-z_/][A-Za-z0-9_./*-]*\Z")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
# Characters that YAML folds or refuses in a text; JSON leaves them as they are.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def text_of(value: str) -> str:
    """Return a text as a plain word, or quoted."""
    if _WORD.match(value) and value.lower() not in _RESERVED:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)


def flow(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, dict):
        entries = (f"{text_of(key)}: {flow(item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return text_of(value)
    text = json.dumps(value)  # null, true, false, numbers
    # YAML 1.1 knows 1e-06 as a text.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def block(value: Any, indent: int, used: int) -> str:
    """Return a value to stand behind `used` columns: in that line if it fits, else below it."""
    line = flow(value)
    if not value or not isinstance(value, (dict, list)) or used + len(line) + 1 <= _COLUMNS:
        return f" {line}\n"
    pad = " " * indent
    if isinstance(value, list):
        return "\n" + "".join(f"{pad}-{_item(item, indent)}" for item in value)
    return "\n" + "".join(
        f"{pad}{text_of(key)}:{block(item, indent + 2, indent + len(text_of(key)) + 1)}"
        for key, item in value.items()
    )


def _item(value: Any, indent: int) -> str:
    if isinstance(value, dict) and value and indent + len(flow(value)) + 2 > _COLUMNS:
        return block(value, indent + 2, _COLUMNS).replace("\n" + " " * (indent + 2), " ", 1)
    return block(value, indent + 2, indent + 1)


def graph(ops: list[Any], indent: int) -> str:
    """Return ops, a line each; the parameters begin in one column."""
    names = [text_of(next(iter(op))) for op in ops if isinstance(op, dict) and len(op) == 1]
    width = max(map(len, names), default=0) + 1
    lines = []
    for op in ops:
        if isinstance(op, Comment):
            printable = "".join(c if c.isprintable() else "?" for c in op)
            lines.append(f"{' ' * indent}# {printable}\n")
        elif isinstance(op, dict) and len(op) == 1:
            ((name, params),) = op.items()
            start = f"{' ' * indent}- {text_of(name) + ':':{width}}"
            lines.append(start + block(params, indent + 4, len(start)))
        else:
            lines.append(f"{' ' * indent}- {flow(op)}\n")
    return "".join(lines)


def file_text(sections: dict[str, Any]) -> str:
    """Return the text of a pipeline file."""
    lines = []
    for name, value in sections.items():
        if name == "graph" and value:
            lines.append("graph:\n" + graph(value, 2))
        elif name == "batch" and value.get("graph"):
            lines.append("batch:\n")
            for key, item in value.items():
                text = "\n" + graph(item, 4) if key == "graph" else block(item, 4, len(key) + 3)
                lines.append(f"  {text_of(key)}:{text}")
        else:
            lines.append(f"{text_of(name)}:{block(value, 2, len(name) + 1)}")
    return "".join(lines)
