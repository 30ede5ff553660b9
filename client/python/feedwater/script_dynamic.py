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
    ast.BinOp, ast.Compare, ast.Expr, ast.For, ast.FormattedValue, ast.Starred,
    ast.comprehension,
)  # fmt: skip
# What looks at the entries of a dict, too, and at what it is given by name, and returns neither.
_SHOWS = {
    "critical", "debug", "dump", "dumps", "error", "format", "info", "pformat", "pprint", "print",
    "repr", "save", "str", "warning",
}  # fmt: skip
_SHOWS_OF_MODULES = ("json.", "logging.", "mlflow.", "pickle.", "pprint.", "wandb.", "yaml.")


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
        self._looks = Looks(script, _READERS, _LOOKS)
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
        if (
            word in ("exec", "globals")
            or (word == "eval" and _may_call(call))
            or (is_of_module and not self._looks.only(call))
        ):
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
        return [node for node in self._dicts if not self._looks.only(node)]


class Looks:
    """Tells whether a script only looks at something.

    Parameters
    ----------
    script : Script
    readers : set of str
        Functions and methods that change nothing in what they are given, and do not keep it.
    kinds : tuple of type
        Kinds of parents that do neither.
    """

    def __init__(self, script: Script, readers: set[str], kinds: tuple[type[ast.AST], ...]) -> None:
        self._script = script
        self._readers = readers
        self._kinds = kinds
        self._own = {  # names of the script's own functions, which may do anything
            node.name
            for node in script.nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }

    def only(self, node: ast.AST) -> bool:
        """Tell whether nothing is changed in what a node stands for, and nothing keeps it."""
        parent = self._script.parents[node]
        if not isinstance(getattr(node, "ctx", None), (ast.Load, type(None))):
            return False
        if isinstance(parent, ast.Attribute):
            return parent.attr in self._readers
        if isinstance(parent, ast.Subscript):
            return isinstance(parent.ctx, ast.Load)
        if _is_copied(parent, node):
            return True
        if isinstance(parent, (ast.Dict, ast.keyword)):
            return self._are_shown(parent)
        if isinstance(parent, ast.Call):
            return called_name(parent) in self._readers and not self._is_own(parent)
        return isinstance(parent, self._kinds)

    def _are_shown(self, node: ast.AST) -> bool:
        """Tell whether a dict, or an argument with a name, is given to what only shows it."""
        parent = self._script.parents[node]
        while isinstance(parent, (ast.Dict, ast.keyword)):
            parent = self._script.parents[parent]
        if not isinstance(parent, ast.Call) or self._is_own(parent):
            return False
        name = self._script.dotted(parent.func)
        return called_name(parent) in _SHOWS or name.startswith(_SHOWS_OF_MODULES)

    def _is_own(self, call: ast.Call) -> bool:
        is_name = isinstance(call.func, ast.Name)
        return called_name(call) in self._own or (
            is_name and bool(self._script.assignments(call.func))  # type: ignore[arg-type]
        )


def _is_copied(parent: ast.AST, node: ast.AST) -> bool:
    """Tell whether a node is `**NODE` of a call or a dict."""
    if isinstance(parent, ast.Dict):
        pairs = zip(parent.keys, parent.values)
        return any(value is node and key is None for key, value in pairs)
    return isinstance(parent, ast.keyword) and parent.arg is None


def called_name(call: ast.Call) -> str:
    """Return the last word of what is called: "join" of `os.path.join(...)`; "": there is none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def is_self(node: ast.AST) -> bool:
    """Tell whether a node is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def _may_call(call: ast.Call) -> bool:
    """Tell whether eval() may call something: it gets a text that is not known, or has a call."""
    text = call.args[0] if call.args else None
    return not isinstance(text, ast.Constant) or "(" in str(text.value)
