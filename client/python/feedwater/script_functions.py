"""The functions of a script: which one a call is, and which parameter gets what it hands over."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from .script import Script

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Modules whose classes and decorators leave alone what a script's own code keeps.
_HARMLESS = (
    "abc.", "atexit.", "collections.", "contextlib.", "dataclasses.", "enum.", "functools.",
    "lightning.", "multiprocessing.", "pytorch_lightning.", "threading.", "torch.", "torchvision.",
    "typing.", "unittest.",
)  # fmt: skip
_MOST = 50  # methods of one name that a call may be
_DEEPEST = 20  # classes above a class


class Functions:
    """Finds the functions and methods that a script defines.

    Parameters
    ----------
    script : Script
    set_by_name : dict of str to list
        Functions that are called as `options.NAME(...)`, as set_defaults() gives them.
    """

    def __init__(self, script: Script, set_by_name: dict[str, list[ast.expr]]) -> None:
        self._script = script
        self._set_by_name = set_by_name
        self._methods: dict[str, list[Function]] = {}
        self._calls: Optional[dict[ast.AST, list[ast.Call]]] = None
        for node in script.nodes:
            if isinstance(node, FUNCTIONS) and self.is_method(node):
                self._methods.setdefault(node.name, []).append(node)

    def is_method(self, function: ast.AST) -> bool:
        """Tell whether a function stands in the body of a class."""
        return isinstance(self._script.parents.get(function), ast.ClassDef)

    def named(self, node: ast.expr) -> Optional[Function]:
        """Return the function of the script that a name is; of a class, its __init__."""
        if not isinstance(node, ast.Name) or self._script.is_imported(node.id):
            return None
        found = self._script.assignments(node)
        place = found[0][1] if len(found) == 1 else None
        if isinstance(place, ast.ClassDef):
            return self._init(place, 0)
        return place if isinstance(place, FUNCTIONS) else None

    def _init(self, owner: ast.ClassDef, depth: int) -> Optional[Function]:
        for item in owner.body:
            if isinstance(item, FUNCTIONS) and item.name == "__init__":
                return item
        return self._init_of_base(owner, depth)

    def _init_of_base(self, owner: ast.ClassDef, depth: int) -> Optional[Function]:
        base = owner.bases[0] if len(owner.bases) == 1 and depth < _DEEPEST else None
        found = self._script.assignments(base) if isinstance(base, ast.Name) else []
        place = found[0][1] if len(found) == 1 else None
        return self._init(place, depth + 1) if isinstance(place, ast.ClassDef) else None

    def called(self, call: ast.Call) -> list[Function]:
        """Return the functions of the script that a call may be one of."""
        script = self._script
        if isinstance(call.func, ast.Name):
            function = self.named(call.func)
            return [] if function is None else [function]
        if not isinstance(call.func, ast.Attribute) or script.dotted(call.func):
            return []
        word, owner = call.func.attr, script.class_of(call)
        if word == "__init__":  # super().__init__(...)
            base = self._init_of_base(owner, 0) if isinstance(owner, ast.ClassDef) else None
            return [] if base is None else [base]
        if isinstance(call.func.value, ast.Name):
            places = [place for _, place in script.assignments(call.func.value)]
            if any(isinstance(place, ast.ClassDef) for place in places):
                return []  # CLASS.METHOD(OBJECT, ...)
        found = [self.named(value) for value in self._set_by_name.get(word, [])]
        if None in found:
            return []
        functions = [f for f in found if f is not None] or self._methods.get(word, [])
        return functions if len(functions) <= _MOST else []

    def calls_of(self, function: ast.AST) -> list[ast.Call]:
        """Return the calls that may be those of a function or method."""
        if self._calls is None:
            self._calls = {}
            for node in self._script.nodes:
                if isinstance(node, ast.Call):
                    for called in self.called(node):
                        self._calls.setdefault(called, []).append(node)
        return self._calls.get(function, [])

    def is_wrapped(self, function: ast.AST) -> bool:
        """Tell whether a decorator whose code is not known gets what a function is given."""
        owner = self._script.parents.get(function)
        wrappers = list(getattr(function, "decorator_list", ()))
        if isinstance(owner, ast.ClassDef) and getattr(function, "name", "") == "__init__":
            wrappers += owner.decorator_list
        for wrapper in wrappers:
            made = wrapper.func if isinstance(wrapper, ast.Call) else wrapper
            if not self._is_builtin(made) and not self._script.dotted(made).startswith(_HARMLESS):
                return True
        return False

    def is_own_object(self, node: ast.expr) -> bool:
        """Tell whether a name is an object whose attributes only code of the script has."""
        if not isinstance(node, ast.Name):
            return False
        if node.id == "self":
            owner = self._script.class_of(node)
            return isinstance(owner, ast.ClassDef) and not self._is_foreign(owner, 0)
        found = self._script.assignments(node)
        value = found[0][0] if len(found) == 1 else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
            return False
        places = [place for _, place in self._script.assignments(value.func)]
        return len(places) == 1 and all(
            isinstance(place, ast.ClassDef) and not self._is_foreign(place, 0) for place in places
        )

    def _is_foreign(self, owner: ast.ClassDef, depth: int) -> bool:
        """Tell whether a class is derived from one whose code is not known."""
        for base in [*owner.bases, *(keyword.value for keyword in owner.keywords)]:
            base = base.value if isinstance(base, ast.Subscript) else base  # Generic[T]
            places = self._script.assignments(base) if isinstance(base, ast.Name) else []
            place = places[0][1] if len(places) == 1 else None
            if isinstance(place, ast.ClassDef) and depth < _DEEPEST:
                if self._is_foreign(place, depth + 1):
                    return True
            elif not self._is_builtin(base) and not self._script.dotted(base).startswith(_HARMLESS):
                return True
        return False

    def _is_builtin(self, node: ast.expr) -> bool:
        script = self._script
        return (
            isinstance(node, ast.Name)
            and hasattr(builtins, node.id)
            and not script.is_imported(node.id)
            and not script.assignments(node)
        )

    def is_only_called(self, function: Function) -> bool:
        """Tell whether a function's name serves for calls of it alone."""
        parents = self._script.parents
        for node in self._script.nodes:
            is_name = isinstance(node, ast.Name) and node.id == function.name
            is_attribute = isinstance(node, ast.Attribute) and node.attr == function.name
            if is_name or (is_attribute and self.is_method(function)):
                call = parents[node]
                if not isinstance(call, ast.Call) or call.func is not node:
                    return False
        return not function.decorator_list

    def default_of(self, function: Function, parameter: ast.arg) -> Optional[ast.expr]:
        """Return the default of a parameter."""
        arguments = function.args
        by_place = [*arguments.posonlyargs, *arguments.args]
        if parameter in by_place:
            number = by_place.index(parameter) - len(by_place) + len(arguments.defaults)
            return arguments.defaults[number] if number >= 0 else None
        named = dict(zip(arguments.kwonlyargs, arguments.kw_defaults))
        return named.get(parameter)

    def parameter(self, function: Function, place: Union[int, str]) -> Optional[ast.arg]:
        """Return the parameter at a place of a call, or of a name; None for `*` and `**`."""
        arguments = function.args
        if isinstance(place, str):
            named = [*arguments.args, *arguments.kwonlyargs]
            return next((argument for argument in named if argument.arg == place), None)
        by_place = [*arguments.posonlyargs, *arguments.args]
        if self.is_method(function) and not any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list
        ):
            by_place = by_place[1:]
        return by_place[place] if 0 <= place < len(by_place) else None
