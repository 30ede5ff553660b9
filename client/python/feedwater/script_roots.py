"""The folders of a script's datasets, as a pipeline file names them."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .script import NotLiteral, Script
from .script_report import Report
from .script_single import Single

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

_MOST_PARTS = 200


def _normal(path: str) -> str:
    """Return an absolute path without `.` and the like, and any other one as it is. Raise
    NotLiteral where `..` stands behind a name: that may be a link, and the folder another one.
    """
    words = [word for word in path.split("/") if word not in ("", ".")]
    if ".." in itertools.dropwhile(lambda word: word == "..", words):
        raise NotLiteral(
            f"{path!r}): where a link stands before `..`, it leads elsewhere than the path without "
            "them. Next: write the path without `..`"
        )
    return "/" + os.path.normpath(path).lstrip("/") if path.startswith("/") else path


def root_name(word: str) -> str:
    """Return a word as the name of a root."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-") or "data"


def _is_bare(part: ast.expr) -> TypeGuard[ast.FormattedValue]:
    """Tell whether a part of an f-string is `{VALUE}`, as it is."""
    return isinstance(part, ast.FormattedValue) and part.conversion < 0 and part.format_spec is None


class Roots:
    """Finds the root and the path of a dataset."""

    def __init__(self, script: Script, report: Report) -> None:
        self._script = script
        self._report = report
        self._single = Single(script)
        self._roots: dict[str, tuple[str, ...]] = {}  # names, and what they stand for
        self._parts_left = 0  # of a path: names that lead in circles have too many

    def of(
        self, node: ast.expr, form_name: str, below: Sequence[str]
    ) -> tuple[dict[str, Any], str]:
        """Return the section `dataset`, and what its root has to do with a feedwater.yaml.
        Raise NotLiteral where the folder may be another one each time.

        A folder whose absolute path is known is the root itself, which a private daemon takes;
        any other one is a name that feedwater.yaml declares.
        """
        script = self._script
        self._parts_left = _MOST_PARTS
        base, parts = self._path(node, 0)
        if isinstance(base, str):
            value = _normal(base)
            steps = [part for part in value.split("/") if part not in ("", ".", "..")]
            if form_name == "image_folder" and not parts and len(steps) > 1:
                value, _, last = value.rstrip("/").rpartition("/")
                parts, steps = [last], steps[:-1]
            name = self._root_name(steps[-1] if steps else "data", (os.path.normpath(value),))
            said = f"{value!r} as seen from where the script runs"
        else:
            self._check_single(node)
            default = script.options.default(base)
            shown = script.source(base)
            word = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(
                base, ast.Name) else "data"  # fmt: skip
            value = f"<{shown}>"
            if default is not None:
                with contextlib.suppress(NotLiteral):
                    path = script.value(default[1])
                    value = _normal(path) if isinstance(path, str) else value
            name = self._root_name(word, (value, script.whole_source(base), *self._whose(base)))
            said = f"{shown} of the script"
        declared = f"roots: {{{name}: {json.dumps(value)}}}"
        is_absolute = value.startswith("/")
        if is_absolute:
            about = f"With a shared daemon: `root: {name}`, and in its feedwater.yaml: {declared}"
            if not isinstance(base, str):
                self._report.note(node, f"the root is {said}: {value}, its default")
        else:
            about = f"In feedwater.yaml: {declared}; or write the folder's absolute path as `root`."
            self._report.note(
                node,
                f"the root {name!r} is {said}. Next: write its absolute path as `root` into the "
                "file, and a Loader starts a daemon of its own; or start one whose feedwater.yaml "
                "names that folder",
            )
        source: dict[str, Any] = {"format": form_name, "root": value if is_absolute else name}
        path = "/".join([*parts, *below])
        if path:
            source["path"] = path
        return source, about

    def _check_single(self, node: ast.expr) -> None:
        part = self._single.other(node)
        if part is None:
            return
        shown, what = self._script.source(node), self._script.source(part)
        raise NotLiteral(
            f"{shown}): {what} may be another folder each time, and a pipeline file reads one. "
            "Next: give each folder a DataLoader of its own, over a path or a name that is "
            "assigned once"
        )

    def _whose(self, node: ast.expr) -> list[str]:
        """Return which of several things of one text an expression has: its names, its calls."""
        return [
            str(id(self._script.binding(inner) if isinstance(inner, ast.Name) else inner))
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name)
            or (isinstance(inner, ast.Call) and self._single.given(inner) is None)
        ]

    def _root_name(self, word: str, meaning: tuple[str, ...]) -> str:
        """Return a root's name: that of another folder gets a number."""
        name, number = root_name(word), 2
        while self._roots.setdefault(name, meaning) != meaning:
            name, number = f"{root_name(word)}-{number}", number + 1
        return name

    def _path(self, node: ast.expr, depth: int) -> tuple[Union[str, ast.expr], list[str]]:
        """Split a path into where it begins, a text or an expression, and literal parts below."""
        script = self._script
        node = script.follow(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value, []
        self._parts_left -= 1
        if depth > 20 or self._parts_left < 0:
            return node, []
        if isinstance(node, ast.JoinedStr):
            if not all(isinstance(p, ast.Constant) or _is_bare(p) for p in node.values):
                return node, []
            parts = [part.value if _is_bare(part) else part for part in node.values]
            return self._joined(node, parts, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.right]
            left = node.left
            while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
                parts.append(left.right)
                left = left.left
            return self._joined(node, [left, *reversed(parts)], depth)
        inner: list[ast.expr] = []
        if isinstance(node, ast.Call) and script.dotted(node.func) == "os.path.join":
            inner = node.args
        elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            name = script.dotted(node.func)
            if name in ("pathlib.Path", "os.path.expanduser", "os.path.abspath"):
                inner = node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            inner = [node.left, node.right]
        if not inner:
            return node, []
        below = []
        for part in inner[1:]:
            value = self._text(part, False, depth)
            words = value.split("/") if value is not None else [".."]
            if ".." in words or value.startswith("/"):  # type: ignore[union-attr]
                return node, []
            below += [word for word in words if word not in ("", ".")]
        base, parts_below = self._path(inner[0], depth + 1)
        return base, [*parts_below, *below]

    def _text(self, node: ast.expr, is_formatted: bool, depth: int) -> Optional[str]:
        """Return an expression as a part of a path; None where only running tells it."""
        if not is_formatted:
            base, parts = self._path(node, depth + 1)
            if isinstance(base, str):
                return "/".join([base, *parts]) if parts else base
        with contextlib.suppress(NotLiteral):
            value = self._script.value(node)
            if isinstance(value, str) or (is_formatted and type(value) is int):
                return str(value)
        return None

    def _joined(
        self, node: ast.expr, parts: list[ast.expr], depth: int
    ) -> tuple[Union[str, ast.expr], list[str]]:
        """Split texts that are put together: what is known must begin with a folder's end."""
        if not parts:
            return "", []
        base, below = self._path(parts[0], depth + 1)
        texts = [self._text(part, isinstance(node, ast.JoinedStr), depth) for part in parts[1:]]
        if any(text is None for text in texts):
            return node, []
        rest = "".join(text for text in texts if text is not None)
        if base == "":
            return rest, []
        if isinstance(base, str) and not base.endswith("/") and not rest.startswith("/"):
            return "/".join([base, *below]) + rest, []
        words = rest.split("/")
        is_whole = rest.startswith("/") or not rest or (isinstance(base, str) and not below)
        if ".." in words or not is_whole:
            return node, []
        return base, [*below, *(word for word in words if word not in ("", "."))]
