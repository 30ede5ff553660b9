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
        word = called_name(call)
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
        return only_looks(self._script, node, _READERS, _LOOKS)


def only_looks(
    script: Script, node: ast.AST, readers: set[str], looks: tuple[type[ast.AST], ...]
) -> bool:
    """Tell whether a script changes nothing in what a node stands for, and does not keep it.

    ``readers``: functions and methods that do neither; ``looks``: kinds of parents that do neither.
    """
    parent = script.parents[node]
    if not isinstance(getattr(node, "ctx", None), (ast.Load, type(None))):
        return False
    if isinstance(parent, ast.Attribute):
        return parent.attr in readers
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return True  # `**vars(self)` copies
    if isinstance(parent, ast.Call):
        return called_name(parent) in readers
    return isinstance(parent, looks)


def called_name(call: ast.Call) -> str:
    """Return the last word of what is called: "join" of `os.path.join(...)`; "": there is none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def is_self(node: ast.AST) -> bool:
    """Tell whether a node is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"
