"""Parsers of options that a script hands to functions of other modules, which may change them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional, Union

from .script_dynamic import called_name
from .script_functions import FUNCTIONS, Function, Functions
from .script_given import LOGS, PURE

if TYPE_CHECKING:
    from .script import Script

# A name in the scope that assigns it, what a function returns ("()"), or an attribute of any object
# (None and ".NAME").
_Holder = tuple[Optional[ast.AST], str]

# Methods that parsers, and groups of their options, have.
_METHODS = {
    "add_argument", "add_argument_group", "add_mutually_exclusive_group", "add_subparsers",
    "parse_args", "parse_known_args", "set_defaults",
}  # fmt: skip
# What adds options of its own, and leaves the others as they are.
_KNOWN = (
    "argcomplete.", "argparse.", "deepspeed.", "lightning.", "pytorch_lightning.", "torch.",
)  # fmt: skip
_MOST = 50  # functions of one name
_WRAPPERS = (
    ast.BoolOp, ast.Dict, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.List, ast.ListComp,
    ast.NamedExpr, ast.Set, ast.SetComp, ast.Starred, ast.Subscript, ast.Tuple, ast.keyword,
)  # fmt: skip
_STORES = (ast.AnnAssign, ast.Assign, ast.AugAssign)
_CHAINS = (ast.Attribute, ast.Call, ast.Subscript)


class Handed:
    """Finds the calls.

    Attributes
    ----------
    other : node or None
        A call that may change defaults, or a place from which another module may.
    adds : list of ast.Call
        Calls of functions whose names say that they add options.
    """

    def __init__(self, script: Script, functions: Functions) -> None:
        self._script = script
        self._functions = functions
        self.other: Optional[ast.AST] = None
        self.adds: list[ast.Call] = []
        self._names: dict[str, list[ast.Name]] = {}
        self._by_scope: dict[str, dict[ast.AST, list[ast.Name]]] = {}
        self._attributes: dict[str, list[ast.Attribute]] = {}
        self._own: dict[str, list[Function]] = {}
        self._seen: set[_Holder] = set()
        self._work: list[ast.expr] = []
        for node in script.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._names.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._attributes.setdefault(node.attr, []).append(node)
            elif isinstance(node, FUNCTIONS):
                self._own.setdefault(node.name, []).append(node)
        for word in sorted(_METHODS):
            for attribute in self._attributes.get(word, []):
                self._hold(attribute.value)
        self.other = next(iter(self._attributes.get("_defaults", [])), None)
        while self._work:
            self._take(self._work.pop())

    def _hold(self, target: ast.AST) -> None:
        """Note a name, or an attribute, that has a parser."""
        holder: _Holder
        if isinstance(target, ast.Name) and not self._script.is_imported(target.id):
            holder = self._script.binding(target), target.id
        elif isinstance(target, ast.Attribute) and not self._script.dotted(target):
            holder = None, f".{target.attr}"
        else:
            return
        self._hold_at(holder)

    def _hold_at(self, holder: _Holder) -> None:
        if holder in self._seen:
            return
        self._seen.add(holder)
        scope, name = holder
        if scope is None:
            self._work += self._attributes.get(name[1:], [])
        elif name == "()":
            self._work += self._functions.calls_of(scope)
        else:
            if name not in self._by_scope:
                found = self._by_scope[name] = {}
                for use in self._names.get(name, []):
                    found.setdefault(self._script.binding(use), []).append(use)
            self._work += self._by_scope[name].get(scope, [])

    def _take(self, use: ast.expr) -> None:
        """Follow a use of a parser to what has it, or to the call that it is handed to."""
        script = self._script
        child: ast.AST = use
        parent = script.parents[child]
        while isinstance(parent, _WRAPPERS):
            if isinstance(parent, ast.NamedExpr):
                self._hold(parent.target)
            if isinstance(parent, ast.Subscript) and child is parent.slice:
                return
            if isinstance(parent, ast.keyword) and isinstance(script.parents[parent], ast.ClassDef):
                return
            child, parent = parent, script.parents[parent]
        if isinstance(parent, ast.Call) and child is not parent.func:
            self._hand(parent, child)
        elif isinstance(parent, _STORES) and child is parent.value:
            for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                self._store(target, parent)
        elif isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
            if child is parent.iter:  # `for PARSER in (p,)`
                self._store(parent.target, child)
        elif isinstance(parent, (ast.Return, ast.Yield, ast.YieldFrom)):
            self._hold_at((script.scope(parent), "()"))

    def _store(self, target: ast.expr, place: ast.AST) -> None:
        """Note what a parser is stored in."""
        if isinstance(target, (ast.List, ast.Tuple)):
            for item in target.elts:
                self._store(item, place)
        elif isinstance(target, ast.Starred):
            self._store(target.value, place)
        elif isinstance(target, ast.Subscript) or self._is_foreign(target):
            self.other = self.other or place
        else:
            self._hold(target)

    def _hand(self, call: ast.Call, child: ast.AST) -> None:
        """Follow a parser into a function of the script's; note another one."""
        word = called_name(call)
        functions = self._functions.called(call)
        if not functions and not self._is_foreign(call.func):
            functions = self._own.get(word, [])[:_MOST]
        place: Union[int, str, None]
        place = child.arg if isinstance(child, ast.keyword) else call.args.index(child)  # type: ignore[arg-type]
        for function in functions:
            parameter = None if place is None else self._functions.parameter(function, place)
            if parameter is None:
                self.other = self.other or call
            else:
                self._hold_at((function, parameter.arg))
        if functions or self._is_own_method(call, child):
            return
        name = self._script.dotted(call.func)
        is_builtin = isinstance(call.func, ast.Name) and not name and word in PURE
        if is_builtin or name.startswith(_KNOWN) or (word in LOGS and not name):
            return
        if word.startswith("add_"):
            self.adds.append(call)
        else:
            self.other = self.other or call

    def _is_own_method(self, call: ast.Call, child: ast.AST) -> bool:
        """Tell whether a call is of argparse's own, as `p.set_defaults(parser=p)`: a function or
        object of another module may have methods of the same names.
        """
        is_named = isinstance(child, ast.keyword) and called_name(call) in {*_METHODS, "add_parser"}
        return is_named and isinstance(call.func, ast.Attribute) and not self._is_foreign(call.func)

    def _is_foreign(self, node: ast.expr) -> bool:
        """Tell whether a name, or what it is the beginning of, comes from another module."""
        root = _root(node)
        if not isinstance(root, ast.Name):
            return False
        values = [value for value, _ in self._script.assignments(root)]
        roots = [root, *(_root(value) for value in values if isinstance(value, ast.Call))]
        return any(
            not f"{module}.".startswith(_KNOWN)
            for one in roots
            if isinstance(one, ast.Name)
            for module in self._script.imports(one.id)
        )


def _root(node: ast.expr) -> ast.expr:
    """Return the first part of `a.b(...)[c].d`."""
    while isinstance(node, _CHAINS):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node
