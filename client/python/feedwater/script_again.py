"""Whether a script may come to a place more than once.

A DataLoader that is made anew for each epoch draws other numbers each time. A Loader that is made
anew begins with epoch 0 each time: the order and the draws would be the same for ever.
"""

from __future__ import annotations

import ast
from typing import Optional, Union

from .script import Script
from .script_dynamic import called_name, is_self
from .script_functions import FUNCTIONS

_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]
_COMPREHENSIONS = (ast.DictComp, ast.GeneratorExp, ast.ListComp, ast.SetComp)
# What calls a function that it is given once, in a process of its own or in this one.
_STARTERS = {
    "Fire", "Process", "elastic_launch", "launch", "notebook_launcher", "run", "set_defaults",
    "spawn", "start_processes",
}  # fmt: skip
_ENDS = (ast.Break, ast.Continue, ast.Raise, ast.Return)
_INITS = {"__init__", "__new__", "__post_init__"}
_REPEATS = ("backoff", "repeat", "retry", "retrying", "tenacity")  # names of decorators
_BY_NAME = {"getattr", "methodcaller"}
_RELOADS = "reload_dataloaders_every_"
_DEEPEST = 50


class Again:
    """Finds why."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._names: dict[str, list[ast.Name]] = {}
        self._attributes: dict[str, list[ast.Attribute]] = {}
        self._by_text: dict[str, ast.AST] = {}
        self._reloads: Optional[ast.AST] = None  # Lightning's, which calls `*_dataloader()` again
        for node in script.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._names.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._attributes.setdefault(node.attr, []).append(node)
            elif isinstance(node, ast.Call) and called_name(node) in _BY_NAME:
                for text in node.args:
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        self._by_text[text.value] = node
            elif isinstance(node, ast.keyword) and (node.arg or "").startswith(_RELOADS):
                self._reloads = self._reloads or node.value

    def why(self, node: ast.AST) -> Optional[ast.AST]:
        """Return the loop, or one of several calls, by which a run may come to a node more than
        once; None where the script shows none.
        """
        around = getattr(self._script.scope(node), "name", "")
        if self._reloads is not None and around.endswith("_dataloader"):
            return self._reloads
        return self._why(node, ())

    def _why(self, node: ast.AST, through: tuple[ast.AST, ...]) -> Optional[ast.AST]:
        script = self._script
        around = script.scope(node)
        child, parent = node, script.parents[node]
        while parent is not around:
            if self._repeats(parent, child):
                return parent
            child, parent = parent, script.parents[parent]
        if not isinstance(around, (*FUNCTIONS, ast.Lambda)):
            return None
        if around in through or len(through) > _DEEPEST:  # it calls itself
            return around
        return self._why_called(around, (*through, around))

    def _repeats(self, parent: ast.AST, child: ast.AST) -> bool:
        """Tell whether a parent does a part of it more than once."""
        if isinstance(parent, (ast.AsyncFor, ast.For)):
            return child in parent.body
        if isinstance(parent, ast.While):
            return child not in parent.orelse
        if isinstance(parent, ast.comprehension):
            outer = self._script.parents[parent]
            first = outer.generators[0]  # type: ignore[attr-defined]
            return child is not parent.iter or parent is not first
        return isinstance(parent, _COMPREHENSIONS) and not isinstance(child, ast.comprehension)

    def _why_called(self, function: _Function, through: tuple[ast.AST, ...]) -> Optional[ast.AST]:
        name = getattr(function, "name", "")
        if self._is_repeated(function):
            return function
        if name in self._by_text:
            return self._by_text[name]
        uses = self._uses(function)
        places: list[ast.AST] = []
        for use in uses:
            place = self._called_at(use, function)
            if place is None:
                return use
            why = self._why(place, through)
            if why is not None:
                return why
            places.append(place)
        for number, place in enumerate(places):
            for other in places[:number]:
                if not self._are_either(place, other):
                    return place
        return None

    def _is_repeated(self, function: _Function) -> bool:
        """Tell whether a method is called without its name, or a decorator may call a function
        more than once.
        """
        script = self._script
        name = getattr(function, "name", "")
        is_special = name.startswith("__") and name.endswith("__") and name not in _INITS
        if is_special and isinstance(script.parents[function], ast.ClassDef):
            return True
        for decorator in getattr(function, "decorator_list", ()):
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            word = getattr(made, "attr", getattr(made, "id", "")).lower()
            is_own = isinstance(made, ast.Name) and bool(script.assignments(made))
            if is_own or any(part in f"{word} {script.dotted(made)}" for part in _REPEATS):
                return True
        return False

    def _uses(self, function: _Function) -> list[ast.expr]:
        """Return where a function, or the class of which it is the __init__, is named."""
        script = self._script
        if isinstance(function, ast.Lambda):
            parent = script.parents[function]
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            if len(targets) != 1 or not isinstance(targets[0], ast.Name):
                return [function]
            return self._of_name(targets[0].id, script.binding(targets[0]))
        owner = script.parents[function]
        if not isinstance(owner, ast.ClassDef):
            return self._of_name(function.name, script.binding_at(function.name, function))
        if function.name in _INITS:
            return self._of_class(owner)
        kinds = {getattr(d, "attr", getattr(d, "id", "")) for d in function.decorator_list}
        if "cached_property" in kinds:
            return []
        return [
            use
            for use in self._attributes.get(function.name, [])
            if not script.dotted(use) and not self._is_above(use, function.name)
            if not is_self(use.value) or script.classes.are_related(script.class_of(use), owner)
        ]

    def _is_above(self, use: ast.Attribute, name: str) -> bool:
        """Tell whether a use is `super().NAME` in what takes its place."""
        is_super = isinstance(use.value, ast.Call) and called_name(use.value) == "super"
        return is_super and getattr(self._script.scope(use), "name", "") == name

    def _of_class(self, owner: ast.ClassDef, depth: int = 0) -> list[ast.expr]:
        """Return where a class is named, or one that is derived from it."""
        found: list[ast.expr] = []
        for use in self._of_name(owner.name, self._script.binding_at(owner.name, owner)):
            parent = self._script.parents[use]
            if not isinstance(parent, ast.ClassDef):
                found.append(use)
            elif depth < _DEEPEST:
                found += self._of_class(parent, depth + 1)
        return found

    def _of_name(self, word: str, scope: ast.AST) -> list[ast.expr]:
        script = self._script
        found: list[ast.expr] = [
            use for use in self._names.get(word, []) if script.binding(use) is scope
        ]
        if isinstance(scope, ast.ClassDef):
            found += self._attributes.get(word, [])
        return found

    def _called_at(self, use: ast.expr, function: _Function) -> Optional[ast.AST]:
        """Return the place where a use calls a function once; None where it may do it again."""
        script = self._script
        parent = script.parents[use]
        if isinstance(parent, ast.Call) and parent.func is use:
            return parent
        kinds = {getattr(d, "id", "") for d in getattr(function, "decorator_list", ())}
        if "property" in kinds:
            return use
        while isinstance(parent, (ast.keyword, ast.List, ast.Tuple)):
            parent = script.parents[parent]
        is_started = isinstance(parent, ast.Call) and called_name(parent) in _STARTERS
        return parent if is_started else None

    def _are_either(self, one: ast.AST, other: ast.AST) -> bool:
        """Tell whether at most one of two places is come to."""
        first, second = self._parts(one), self._parts(other)
        for parent, part in first.items():
            if isinstance(parent, (ast.If, ast.IfExp)):
                there = second.get(parent)
                if there is not None and "test" not in (part, there) and part != there:
                    return True
                if there is None and isinstance(parent, ast.If) and _leaves(parent, part):
                    return _line(one) < _line(other) and self._are_near(one, other)
        for parent, part in second.items():
            if isinstance(parent, ast.If) and parent not in first and _leaves(parent, part):
                return _line(other) < _line(one) and self._are_near(one, other)
        return False

    def _are_near(self, one: ast.AST, other: ast.AST) -> bool:
        return self._script.scope(one) is self._script.scope(other)

    def _parts(self, node: ast.AST) -> dict[ast.AST, str]:
        """Return in which part of each a node stands, up to its function."""
        found: dict[ast.AST, str] = {}
        scope = self._script.scope(node)
        child, parent = node, self._script.parents.get(node)
        while parent is not None and child is not scope:
            for name, value in ast.iter_fields(parent):
                if value is child or (isinstance(value, list) and child in value):
                    found[parent] = name
            child, parent = parent, self._script.parents.get(parent)
        return found


def _leaves(branch: ast.If, part: str) -> bool:
    body = getattr(branch, part, None)
    return isinstance(body, list) and isinstance(body[-1], _ENDS)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
