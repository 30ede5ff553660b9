"""The datasets that a script takes out of its loaders: `LOADER.dataset`, and what comes to that."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional

from .script_dynamic import called_name, is_self

if TYPE_CHECKING:
    from .script import Script

WORDS = {"data_source", "dataset", "datasets"}
# Parts of names of options, which have datasets by name.
_OPTIONS = ("arg", "cfg", "conf", "flag", "opt", "param")
_LOADERS = ("dl", "load", "test", "train", "val")  # of names of loaders
# Functions and methods that return, or make what returns, an attribute by its name.
_BY_NAME = {"__getattribute__", "attrgetter", "getattr"}


class Inner:
    """Finds them.

    Attributes
    ----------
    places : list of (node, node)
        Each with what it is the dataset of.
    kept : list of ast.Call
        Functions that give the dataset of whatever they are given.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.places: list[tuple[ast.expr, ast.expr]] = []
        self.kept: list[ast.Call] = []
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and node.attr in WORDS:
                self._take(node, node.value)
            elif isinstance(node, ast.Call) and called_name(node) in _BY_NAME:
                self._take_call(node)
            elif isinstance(node, ast.Subscript) and _is_dict(node.value):
                self._take_named(node, node.value, node.slice)

    def _take_call(self, call: ast.Call) -> None:
        """Note `getattr(LOADER, NAME)`, `LOADER.__getattribute__(NAME)`, `attrgetter(NAME)`."""
        if called_name(call) == "attrgetter":
            if any(isinstance(name, ast.Constant) and name.value in WORDS for name in call.args):
                self.kept.append(call)
        elif isinstance(call.func, ast.Attribute):
            owner = call.args[0] if len(call.args) > 1 else call.func.value
            self._take_named(call, owner, call.args[-1] if call.args else None)
        elif len(call.args) > 1:
            self._take_named(call, call.args[0], call.args[1])

    def _take_named(self, node: ast.expr, owner: ast.expr, name: Optional[ast.expr]) -> None:
        """Note an attribute by its name, and one of a loader by whatever name."""
        if isinstance(name, ast.Constant):
            is_dataset = name.value in WORDS
        else:
            words = {
                getattr(one, "attr", getattr(one, "id", "")).lower() for one in ast.walk(owner)
            }
            is_dataset = any(part in word for part in _LOADERS for word in words)
        if is_dataset:
            self._take(node, owner)

    def _take(self, node: ast.expr, owner: ast.expr) -> None:
        is_loaded = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        # No loader lets its own be set.
        is_others = is_self(owner) or bool(self._script.dotted(owner)) or is_options(owner)
        if is_loaded and not is_others:
            self.places.append((node, owner))


def _is_dict(node: ast.expr) -> bool:
    is_vars = isinstance(node, ast.Call) and called_name(node) == "vars" and bool(node.args)
    return is_vars or (isinstance(node, ast.Attribute) and node.attr == "__dict__")


def is_options(node: ast.expr) -> bool:
    """Tell whether a node may be the options of the script, by its name."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return any(part in node.attr.lower() for part in _OPTIONS) or is_options(node.value)
    return isinstance(node, ast.Name) and any(part in node.id.lower() for part in _OPTIONS)
