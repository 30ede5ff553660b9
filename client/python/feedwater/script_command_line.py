"""The command line that a script's parse_args() reads: the program's, or one of the script's own.

Only where it is the program's does an option that nobody gives have its default.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Optional

from .script_dynamic import Looks, called_name
from .script_functions import FUNCTIONS, Function, Functions

if TYPE_CHECKING:
    from .script import Script

# Functions and methods that only look at sys.argv, and do not keep it.
_READERS = {
    "any", "copy", "count", "debug", "enumerate", "index", "info", "join", "len", "list", "print",
    "repr", "set", "sorted", "str", "tuple", "warning",
}  # fmt: skip
_LOOKS = (
    ast.BinOp, ast.Compare, ast.For, ast.FormattedValue, ast.If, ast.Starred, ast.comprehension,
)  # fmt: skip
_DEEPEST = 20


class CommandLine:
    """Finds where options may come from elsewhere than the program's command line."""

    def __init__(self, script: Script, functions: Functions) -> None:
        self._script = script
        self._functions = functions

    def change(self, parsed: Iterable[ast.Call]) -> Optional[ast.AST]:
        """Return a call of parse_args() that may read another one, or what may change sys.argv."""
        for call in parsed:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if not all(self._is_programs(value, 0) for value in given):
                return call
        looks = Looks(self._script, _READERS, _LOOKS)
        for node in self._script.nodes:
            if self._may_patch(node) or (self._is_argv(node) and not looks.only(node)):
                return node
        return None

    def _is_argv(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):  # `from sys import argv`, which may be assigned, too
            return self._script.imports(node.id) == ["sys.argv"]
        return isinstance(node, ast.Attribute) and self._script.dotted(node) == "sys.argv"

    def _may_patch(self, node: ast.AST) -> bool:
        """Tell whether a node hands sys to something that may change its argv, or names that."""
        parent = self._script.parents.get(node)
        call = parent if isinstance(parent, ast.Call) else None
        if isinstance(node, ast.Constant):  # mock.patch("sys.argv", ...)
            return (
                node.value == "sys.argv" and call is not None and called_name(call) not in _READERS
            )
        if isinstance(parent, ast.Attribute) or self._script.dotted(node) != "sys":
            return False
        names = call.args[1:2] if call is not None and call.args[:1] == [node] else []
        is_other = bool(names) and isinstance(names[0], ast.Constant) and names[0].value != "argv"
        return not is_other  # as of getattr(sys, "frozen")

    def _is_programs(self, node: Optional[ast.expr], depth: int) -> bool:
        """Tell whether a list of arguments is sys.argv[1:], empty, or None, which means that."""
        script = self._script
        if depth > _DEEPEST or node is None:
            return False
        if isinstance(node, ast.Constant):
            return node.value is None
        if isinstance(node, (ast.List, ast.Tuple)):
            return not node.elts
        if isinstance(node, ast.Subscript):
            return self._is_argv(node.value) and isinstance(node.slice, ast.Slice) and (
                isinstance(node.slice.lower, ast.Constant) and node.slice.lower.value == 1
                and node.slice.upper is None and node.slice.step is None
            )  # fmt: skip
        found = script.assignments(node) if isinstance(node, ast.Name) else []
        if len(found) != 1 or not isinstance(node, ast.Name) or self._may_change(node):
            return False
        value, place = found[0]
        if not isinstance(place, ast.arg):
            return self._is_programs(value, depth + 1)
        function = script.parents[script.parents[place]]
        return isinstance(function, FUNCTIONS) and self._is_handed(function, place, depth)

    def _may_change(self, name: ast.Name) -> bool:
        """Tell whether a list is changed that a name holds."""
        script = self._script
        return bool(script.changes(name)) or any(
            (isinstance(parent, ast.Attribute) and parent.attr not in _READERS)
            or (isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load))
            for use in script.nodes
            if isinstance(use, ast.Name)
            and use.id == name.id
            and script.binding(use) is script.binding(name)
            for parent in [script.parents[use]]
        )

    def _is_handed(self, function: Function, parameter: ast.arg, depth: int) -> bool:
        """Tell whether all calls of a function hand the program's arguments to a parameter."""
        functions = self._functions
        calls, default = functions.calls_of(function), functions.default_of(function, parameter)
        if default is None and not calls:
            return False
        if default is not None and not self._is_programs(default, depth + 1):
            return False
        if not functions.is_only_called(function):
            return False
        for call in calls:
            if any(isinstance(argument, ast.Starred) for argument in call.args):
                return False
            for place, value in [
                *enumerate(call.args), *((keyword.arg, keyword.value) for keyword in call.keywords)
            ]:  # fmt: skip
                is_it = place is None or functions.parameter(function, place) is parameter
                if is_it and not self._is_programs(value, depth + 1):
                    return False
        return True
