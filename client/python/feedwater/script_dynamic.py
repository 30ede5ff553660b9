"""What gives names and attributes of a script values without naming them: exec(), setattr(), the
dict of an object.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .script import Script

_SETTERS = {"__delattr__", "__setattr__", "delattr", "setattr"}
# What looks at a dict that it is given, or at the dict whose method it is.
_READERS = {
    "bool", "copy", "critical", "debug", "dict", "dump", "dumps", "error", "format", "get", "info",
    "items", "iter", "keys", "len", "list", "pformat", "pprint", "print", "repr", "save", "sorted",
    "str", "values", "warning",
}  # fmt: skip
_LOOKS = (
    ast.BinOp, ast.Compare, ast.Dict, ast.Expr, ast.For, ast.FormattedValue, ast.Starred,
    ast.comprehension,
)  # fmt: skip


class Dynamic:
    """Finds these places.

    Attributes
    ----------
    place : node or None
        Where anything may be done with names of the module.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.place: Optional[ast.AST] = None
        self._setters: list[ast.Call] = []
        self._dicts: list[ast.AST] = []  # of `self`
        for node in script.nodes:
            if isinstance(node, ast.Call):
                self._take(node)
            elif (
                isinstance(node, ast.Attribute) and node.attr == "__dict__" and is_self(node.value)
            ):
                self._dicts.append(node)

    def _take(self, call: ast.Call) -> None:
        word = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if word in _SETTERS:
            self._setters.append(call)
        if not isinstance(call.func, ast.Name):
            return
        is_all = word in ("locals", "vars") and not call.args
        is_of_module = is_all and self._script.scope(call) is self._script.tree
        if word in ("exec", "globals") or (is_of_module and not self._only_looks(call)):
            self.place = self.place or call
        elif word == "vars" and call.args and is_self(call.args[0]):
            self._dicts.append(call)

    def sets(self, name: str) -> list[ast.AST]:
        """Return calls of setattr that may set an attribute of this name."""
        found: list[ast.AST] = []
        for call in self._setters:
            # OBJECT.__setattr__(NAME, ...), and setattr(OBJECT, NAME, ...)
            is_bound = isinstance(call.func, ast.Attribute) and len(call.args) < (
                2 if call.func.attr == "__delattr__" else 3
            )
            given = call.args[0 if is_bound else 1 :][:1]
            if not given or not isinstance(given[0], ast.Constant) or given[0].value == name:
                found.append(call)
        return found

    def of_self(self) -> list[ast.AST]:
        """Return where any attribute of `self` may be set by its dict."""
        return [node for node in self._dicts if not self._only_looks(node)]

    def _only_looks(self, node: ast.AST) -> bool:
        parent = self._script.parents[node]
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(parent, ast.Attribute):
            return parent.attr in _READERS
        if isinstance(parent, ast.Subscript):
            return isinstance(parent.ctx, ast.Load)
        if isinstance(parent, ast.keyword):
            return parent.arg is None  # `**vars(self)` copies
        if isinstance(parent, ast.Call):
            return getattr(parent.func, "attr", getattr(parent.func, "id", "")) in _READERS
        return isinstance(parent, _LOOKS)


def is_self(node: ast.AST) -> bool:
    """Tell whether a node is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"
