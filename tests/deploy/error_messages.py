"""Finds the error messages in the sources: what a status or an exception is made with, as text.

A message is its literal text, with `…` where something is filled in. What is looked for are the
places where errors are made: absl's error functions and those of storage/fault.h, a YAML node's
`Error`, `ErrnoStatus` and Python's `raise`. A message that is put together elsewhere is not found;
there are few, and they begin with one that is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GAP = "…"
_MAKERS = re.compile(
    r"(?:absl::\w+Error|\b(?:ErrnoStatus|StorageError|StorageStatus|FileChangedError)|(?:\.|->)Error|\bViolation\{\s*\"\w+\",\s*absl::\w+Error)\("
)
_LITERAL = re.compile(r'(?:R"\((.*?)\)"|"((?:[^"\\]|\\.)*)")', re.S)
_WORDS = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True)
class Message:
    """A message and where it is made."""

    path: str
    line: int
    text: str


def _arguments(source: str, start: int) -> str:
    """Return the text between the parenthesis before `start` and its partner."""
    depth, at = 1, start
    while depth and at < len(source):
        if literal := _LITERAL.match(source, at):
            at = literal.end()
            continue
        if source[at] == "'":
            at = source.index("'", at + (3 if source[at + 1] == "\\" else 2))
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        at += 1
    return source[start : at - 1]


def _template(arguments: str) -> str:
    """Join the literals of a C++ argument list, with gaps for what stands between them."""
    parts, end = [], 0
    for literal in _LITERAL.finditer(arguments):
        between = arguments[end : literal.start()].strip(" \n,()")
        if between and between != "absl::StrCat":
            parts.append(GAP)
        text = literal.group(1) if literal.group(1) is not None else literal.group(2)
        parts.append(text.replace('\\"', '"').replace("\\n", " "))
        end = literal.end()
    if arguments[end:].strip(" \n,()"):
        parts.append(GAP)
    return re.sub(f"{GAP}+", GAP, "".join(parts)).strip()


def of_cpp(path: Path, root: Path) -> Iterator[Message]:
    """Yield the messages of a C++ file."""
    source = re.sub(r"(?m)^[ \t]*//.*$", "", path.read_text())
    for maker in _MAKERS.finditer(source):
        text = _template(_arguments(source, maker.end()))
        if _WORDS.search(text):
            if maker.group().startswith(
                ("ErrnoStatus", "StorageError")
            ):  # the kernel's words follow
                text += f": {GAP} (errno {GAP})"
            line = source.count("\n", 0, maker.start()) + 1
            yield Message(str(path.relative_to(root)), line, text)


def _python_text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else GAP
    if isinstance(node, ast.JoinedStr):
        return "".join(_python_text(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _python_text(node.left) + _python_text(node.right)
    return GAP


def of_python(path: Path, root: Path) -> Iterator[Message]:
    """Yield the messages of a Python file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        texts = [_python_text(argument) for argument in node.exc.args[:1]]
        if texts and _WORDS.search(texts[0]):
            text = re.sub(f"{GAP}+", GAP, texts[0])
            yield Message(str(path.relative_to(root)), node.lineno, text)
