"""Whether an expression of a script has one value in a run, however often it is computed.

A pipeline file reads one folder. A DataLoader in a function that is called twice, in a loop or a
comprehension may have another folder each time, and then no file stands for it.
"""

from __future__ import annotations

import ast
from typing import Optional, Union

from .script import Script
from .script_dynamic import is_self
from .script_functions import FUNCTIONS

# What decides the value of an expression, and whether it is computed once.
_Parts = list[tuple[ast.expr, bool]]

# What they return depends on their arguments, and on nothing that changes while a script runs.
_CALLS = {
    "os.environ.get", "os.fspath", "os.getcwd", "os.getenv", "os.path.abspath", "os.path.basename",
    "os.path.dirname", "os.path.expanduser", "os.path.expandvars", "os.path.join",
    "os.path.normpath", "os.path.realpath", "pathlib.Path", "pathlib.Path.cwd",
    "pathlib.Path.home", "pathlib.PurePath",
}  # fmt: skip
_METHODS = {
    "absolute", "as_posix", "expanduser", "format", "joinpath", "lower", "lstrip", "removesuffix",
    "replace", "resolve", "rstrip", "strip", "with_name", "with_suffix",
}  # fmt: skip
_UPDATES = {
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
}  # fmt: skip
_WHOLES = (
    ast.BinOp, ast.FormattedValue, ast.JoinedStr, ast.List, ast.Slice, ast.Subscript, ast.Tuple,
    ast.UnaryOp,
)  # fmt: skip
_AGAIN = (
    ast.AsyncFor, ast.DictComp, ast.For, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.While,
)  # fmt: skip
_DEEPEST = 20


class Single:
    """Finds what of an expression may have several values."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._names: dict[str, list[ast.Name]] = {}
        for node in script.nodes:
            if isinstance(node, ast.Name):
                self._names.setdefault(node.id, []).append(node)

    def other(self, node: ast.expr) -> Optional[ast.expr]:
        """Return the part of an expression that may have several values in a run; None where it
        has one.
        """
        work: _Parts = [(node, False)]
        seen: set[ast.expr] = set()
        while work:
            part, is_once = work.pop()
            if part in seen:
                continue
            seen.add(part)
            if isinstance(part, ast.Call):
                inner = [] if is_once else self.given(part)
            elif isinstance(part, ast.Subscript) and self._is_stored(part):
                return part
            elif isinstance(part, (ast.Attribute, ast.Name)):
                value = self._of_name(part)
                if value is None:
                    return part
                work += value
                continue
            elif isinstance(part, (ast.Constant, *_WHOLES)):
                inner = [one for one in ast.iter_child_nodes(part) if isinstance(one, ast.expr)]
            else:
                inner = None  # of a condition, say
            if inner is None:
                return part
            work += [(one, is_once) for one in inner]
        return None

    def given(self, call: ast.Call) -> Optional[list[ast.expr]]:
        """Return what alone decides what a call returns; None where something else may."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if self._script.dotted(call.func) in _CALLS:
            return given
        if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS:
            return [call.func.value, *given]
        if isinstance(call.func, ast.Name) and call.func.id == "str":
            return None if self._script.assignments(call.func) else given
        return None

    def _of_name(self, node: Union[ast.Attribute, ast.Name]) -> Optional[_Parts]:
        """Return what decides the value of a name or an attribute; None where it has several."""
        script = self._script
        if script.options.are(node) and self._is_one_line():
            return []
        if isinstance(node, ast.Name):
            found = script.assignments(node)
            if not found:
                return []  # of an import, or of Python
        elif script.dotted(node):
            return []
        elif isinstance(node.value, ast.Name) and node.value.id == "self":
            found = script.set_in_class(script.class_of(node), node.attr)
        else:
            return None if self._is_set(node) else [(node.value, False)]
        if len(found) != 1:
            return None
        value, place = found[0]
        if isinstance(place, ast.arg):
            function = script.parents[script.parents[place]]
            return [] if self._is_called_once(function, 0) else None
        if value is None or script.meet(node):
            return None
        return [(value, self._is_done_once(place, 0))]

    def _is_one_line(self) -> bool:
        """Tell whether all options of a run come from one command line."""
        parsed = self._script.options.parsed_otherwise()
        return not parsed or (len(parsed) == 1 and self._is_done_once(parsed[0], 0))

    def _is_set(self, node: ast.Attribute) -> bool:
        """Tell whether `OBJECT.NAME` may be set more than once: by its class, and by others."""
        stores = self._script.stores(node.attr)
        own = [store for store in stores if is_self(store.value)]
        if len(own) < len(stores):
            return True
        if self._script.options.are(node.value):
            return False  # those of `self` are another object's
        return len(own) > 1 or not all(self._is_done_once(store, 0) for store in own)

    def _is_stored(self, node: ast.Subscript) -> bool:
        """Tell whether the script stores something where `NAME[KEY]` reads."""
        if not isinstance(node.value, ast.Name):
            return False
        script = self._script
        scope = script.binding(node.value)
        for use in self._names[node.value.id]:
            parent = script.parents[use]
            if script.binding(use) is not scope:
                continue
            if isinstance(parent, ast.Attribute) and parent.attr in _UPDATES:
                return True
            if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
                keys = (parent.slice, node.slice)
                if not all(isinstance(key, ast.Constant) for key in keys) or (
                    keys[0].value == keys[1].value  # type: ignore[attr-defined]
                ):
                    return True
        return False

    def _is_done_once(self, node: ast.AST, depth: int) -> bool:
        """Tell whether a run of the script comes to a place once at most."""
        parent = self._script.parents[node]
        while not isinstance(parent, (*FUNCTIONS, ast.Lambda, ast.Module)):
            if isinstance(parent, _AGAIN):
                return False
            node, parent = parent, self._script.parents[parent]
        return isinstance(parent, ast.Module) or self._is_called_once(parent, depth)

    def _is_called_once(self, function: ast.AST, depth: int) -> bool:
        """Tell whether one place alone calls a function, and nothing else has it."""
        script = self._script
        owner = script.parents[function]
        made = owner if isinstance(owner, ast.ClassDef) else function
        is_init = made is function or getattr(function, "name", "") == "__init__"
        if not isinstance(made, (ast.FunctionDef, ast.ClassDef)) or not is_init:
            return False
        if made.decorator_list or depth > _DEEPEST:
            return False
        uses = [use for use in self._names.get(made.name, []) if isinstance(use.ctx, ast.Load)]
        call = script.parents[uses[0]] if len(uses) == 1 else None
        is_called = isinstance(call, ast.Call) and call.func is uses[0]
        return is_called and call is not None and self._is_done_once(call, depth + 1)
