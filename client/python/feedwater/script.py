"""A Python script that is read, never run: its names, their values and its text.

Only what can be seen without running is followed: imports, assignments to plain names, literals and
arithmetic of them, and the defaults of argparse options; and that only where nothing in the script
can have changed it since, which script_uses.py tells.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

from .script_classes import Classes
from .script_options import Options
from .script_text import lines, parse, read
from .script_uses import Uses

_DEEPEST = 40
_MOST_ITEMS = 1000  # of a list that is repeated

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_STDLIB: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())  # Python 3.10
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class NotLiteral(Exception):
    """A value that only running the script would tell; the text says which."""


class Script:
    """The tree and text of a script. Places are lines, from 1.

    Attributes
    ----------
    path, text : str
    newline : str
        What ends the lines of the file; in `text` it is always a line feed.
    tree : ast.Module
    notes : list of (int, str)
        What was assumed while values were read: defaults of options.
    met : dict of node to str
        Where names that were followed may be changed, and how those are written; `follow` fills it.
    classes : Classes
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.text, self.newline = read(path)
        self.tree = parse(path, self.text)
        self.notes: list[tuple[int, str]] = []
        self._lines = lines(self.text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self.parents: dict[ast.AST, ast.AST] = {}
        self._scopes: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self._walk()
        self._imported: dict[str, dict[str, ast.AST]] = {}  # what a name may be by imports
        self._stars: list[tuple[str, ast.ImportFrom]] = []
        self._assigned: dict[tuple[ast.AST, str], list[tuple[Optional[ast.expr], ast.AST]]] = {}
        self._set: dict[str, list[tuple[Optional[ast.expr], ast.Attribute]]] = {}  # of `NAME.x = `
        self.met: dict[ast.AST, str] = {}
        for node in self.nodes:
            self._take(node)
        self.classes = Classes(self)
        self._uses = Uses(self)
        self.options = Options(self, self._uses)

    # --- reading the tree

    def _walk(self) -> None:
        """List all nodes in the order of the text, without recursion."""
        stack: list[tuple[ast.AST, ast.AST]] = [(self.tree, self.tree)]
        while stack:
            node, scope = stack.pop()
            self.nodes.append(node)
            self._scopes[node] = scope
            inner = node if isinstance(node, _FUNCTIONS) else scope
            outside: set[ast.AST] = set()  # parts that are computed where a function is made
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                outside = set(node.decorator_list)
            elif isinstance(node, ast.arguments):
                outside = {d for d in [*node.defaults, *node.kw_defaults] if d is not None}
                scope = self._scopes[self.parents[node]]
            for child in reversed(list(ast.iter_child_nodes(node))):
                self.parents[child] = node
                stack.append((child, scope if child in outside else inner))

    def _take(self, node: ast.AST) -> None:
        scope = self._body_of(node) or self._scopes[node]
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                full = alias.name if alias.asname else first
                self._imported.setdefault(alias.asname or first, {})[full] = node
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    self._stars.append((module, node))
                else:
                    full = f"{module}.{alias.name}"
                    self._imported.setdefault(alias.asname or alias.name, {})[full] = node
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            value, place = self._stored(node)
            self._assigned.setdefault((scope, node.id), []).append((value, place))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name):
                value, _ = self._stored(node)
                self._set.setdefault(f"{node.value.id}.{node.attr}", []).append((value, node))
        elif isinstance(node, ast.arg):
            function = self.parents[self.parents[node]]
            self._assigned.setdefault((function, node.arg), []).append((None, node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._assigned.setdefault((scope, node.name), []).append((None, node))
        else:
            name = _captured(node)
            if name is not None:
                self._assigned.setdefault((scope, name), []).append((None, node))

    def _stored(self, target: ast.expr) -> tuple[Optional[ast.expr], ast.AST]:
        """Return what is stored in a target, where that is known, and the statement."""
        parent = self.parents[target]
        if isinstance(parent, ast.Assign):
            return parent.value, parent
        if isinstance(parent, ast.AnnAssign):
            return parent.value, parent
        outer = self.parents.get(parent)
        if isinstance(parent, (ast.Tuple, ast.List)) and isinstance(outer, ast.Assign):
            values = outer.value  # A, B = 1, 2
            if isinstance(values, (ast.Tuple, ast.List)) and len(values.elts) == len(parent.elts):
                items = [*parent.elts, *values.elts]
                if not any(isinstance(item, ast.Starred) for item in items):
                    return values.elts[parent.elts.index(target)], parent
        return None, parent

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield every call of a name that imports explain, with that name in full."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                name = self.dotted(node.func)
                if name:
                    yield node, name

    def dotted(self, node: ast.AST) -> str:
        """Return the full name of what `a.b.c` stands for by the imports, else ""."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        if self.assignments(node):
            return ""
        if node.id in self._imported:
            first, *others = self._imported[node.id]
            if others or first.startswith(".") or self._star_behind(node.id) is not None:
                return ""  # only running tells it
            return ".".join([first, *reversed(parts)])
        if len(self._stars) == 1 and self._stars[0][0].startswith("torch") and not parts:
            return f"{self._stars[0][0]}.{node.id}"  # from torchvision.transforms import *
        return ""

    def mention(self, modules: Iterable[str]) -> Optional[tuple[ast.AST, str]]:
        """Return where the script first imports or uses some modules or names, and which."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [self.dotted(node)]
            else:
                continue
            for module in modules:
                if any(f"{name}.".startswith(f"{module}.") for name in names):
                    return node, module
        return None

    def imports(self, name: str) -> list[str]:
        """Return in full what a name may be by imports."""
        return list(self._imported.get(name, ()))

    def is_imported(self, name: str) -> bool:
        """Tell whether an import may give a name its value."""
        return name in self._imported

    def may_import(self, module: str) -> bool:
        """Tell whether a module's name is free for it, or its own already."""
        is_assigned = any(name == module for _, name in self._assigned)
        return not is_assigned and set(self._imported.get(module, ())) <= {module}

    def imported_twice(self) -> list[tuple[ast.AST, str]]:
        """Return the imports of names of torch's that other modules may give, too, and why."""
        used = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        found: list[tuple[ast.AST, str]] = []
        for name, places in self._imported.items():
            is_torchs = any(p.startswith(("torchvision", "torch.utils.data")) for p in places)
            if name not in used or not is_torchs:
                continue
            star = self._star_behind(name)
            if len(places) > 1:
                shown = " and as ".join(places)
                told = f"{name} is imported as {shown}: only running it tells which"
                found.append((list(places.values())[-1], told))
            elif star is not None:
                shown = self.source(star)
                told = (
                    f"{name} may be replaced by `{shown}`: only running it tells. Next: move that "
                    "above the imports of torch's names"
                )
                found.append((star, told))
        return found

    def _star_behind(self, name: str) -> Optional[ast.AST]:
        """Return the `from MODULE import *` that may give an imported name another value."""
        lines = [
            getattr(node, "lineno", 0) if self._scopes[node] is self.tree else math.inf
            for node in self._imported[name].values()
        ]
        for module, star in self._stars:
            first = module.partition(".")[0]
            is_known = first in ("torch", "torchvision") or first in _STDLIB
            if not is_known and star.lineno > max(lines):
                return star
        return None

    def assignments(self, name: ast.Name) -> list[tuple[Optional[ast.expr], ast.AST]]:
        """Return what a name is assigned in the nearest scope that assigns it: values and places.

        The value is None where only running tells it: arguments of functions, loops.
        """
        return self._assigned.get((self.binding(name), name.id), [])

    def binding(self, name: ast.Name) -> ast.AST:
        """Return the nearest scope that assigns a name; the module where none does."""
        return self.binding_at(name.id, name)

    def binding_at(self, word: str, node: ast.AST) -> ast.AST:
        """Return the nearest scope that assigns a name, as seen from a node."""
        body = self._body_of(node)  # of a class: no scope of its methods
        if body is not None and (body, word) in self._assigned:
            return body
        scope = self._scopes[node]
        while scope is not self.tree and (scope, word) not in self._assigned:
            scope = self._scopes[scope]
        return scope

    def assigned(
        self, scope: Optional[ast.AST], name: str
    ) -> list[tuple[Optional[ast.expr], ast.AST]]:
        """Return what a name is assigned in a scope: values and places."""
        return self._assigned.get((scope or self.tree, name), [])

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, or the module, in which a node stands."""
        return self._scopes[node]

    def follow(self, node: ast.expr) -> ast.expr:
        """Return what stands behind names that are assigned once, and that nothing changes."""
        for _ in range(_DEEPEST):
            found = self._found(node)
            if self.meet(node) or len(found) != 1 or found[0][0] is None:
                break
            node = found[0][0]
        return node

    def meet(self, node: ast.expr, is_loaders: bool = False) -> bool:
        """Tell whether a name's value may be changed anywhere, and note where in `met`."""
        changes: list[ast.AST] = []
        if isinstance(node, ast.Name) or self._found(node):
            changes = self.changes(node, is_loaders)
            shown = self.source(node) if changes else ""
            for change in changes:
                self.met.setdefault(change, shown)
        return bool(changes)

    def changes(self, node: ast.expr, is_loaders: bool = False) -> list[ast.AST]:
        """Return where the value of a name may be changed, as `Uses` has it."""
        changes = self._uses.changes(node, is_loaders)
        if isinstance(node, ast.Name):
            places = [place for _, place in self.assignments(node)]
            if places and self.is_imported(node.id):
                changes = changes + places  # an import or an assignment: which one is not known
            if places and self.binding(node) is self.tree:
                changes = changes + self._stars_behind(places)
        return changes

    def _stars_behind(self, places: list[ast.AST]) -> list[ast.AST]:
        """Return the `from ... import *` behind an assignment: what they bring is not known."""
        first = min(getattr(place, "lineno", 0) for place in places)
        return [star for _, star in self._stars if star.lineno > first]

    def is_set_once(self, node: ast.Attribute) -> bool:
        """Tell whether `OBJECT.NAME` is set at most once in the script, and that by `self`."""
        changes = [*self._uses.attribute_changes(node.attr), *self.changes(node)]
        return len(self._found(node)) <= 1 and not changes

    def stores(self, name: str) -> list[ast.Attribute]:
        """Return where the script sets an attribute of this name, of whatever object."""
        return self._uses.stores(name)

    def is_outer(self, name: str) -> bool:
        """Tell whether `global` or `nonlocal` names it anywhere."""
        return self._uses.is_outer(name)

    def _body_of(self, node: ast.AST) -> Optional[ast.ClassDef]:
        """Return the class in whose body, outside its methods, a node stands."""
        parent = self.parents.get(node)
        while parent is not None and not isinstance(parent, _FUNCTIONS):
            if isinstance(parent, ast.ClassDef):
                return parent
            parent = self.parents.get(parent)
        return None

    def _found(self, node: ast.expr) -> Sequence[tuple[Optional[ast.expr], ast.AST]]:
        if isinstance(node, ast.Name):
            return self.assignments(node)
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return ()
        return self.set_in_class(self.class_of(node), node.attr) if node.value.id == "self" else ()

    def set_in_class(
        self, owner: Optional[ast.AST], name: str
    ) -> list[tuple[Optional[ast.expr], ast.AST]]:
        """Return what `self.NAME` is assigned in a class."""
        found = self._set.get(f"self.{name}", [])
        return [(value, place) for value, place in found if self.class_of(place) is owner]

    def class_of(self, node: ast.AST) -> Optional[ast.AST]:
        """Return the class in which a node stands."""
        parent: Optional[ast.AST] = node
        while parent is not None and not isinstance(parent, ast.ClassDef):
            parent = self.parents.get(parent)
        return parent

    def statement(self, node: ast.AST) -> ast.AST:
        """Return the simple statement in which a node stands, or the node."""
        parent: Optional[ast.AST] = node
        while parent is not None and not isinstance(parent, ast.stmt):
            parent = self.parents.get(parent)
        return parent if parent is not None and not hasattr(parent, "body") else node

    # --- values

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of an expression, or raise NotLiteral."""
        if depth > _DEEPEST:
            raise NotLiteral("an expression that is nested too deeply")
        follow = self.follow(node)
        if follow is not node:
            return self.value(follow, depth + 1)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.value(item, depth + 1) for item in node.elts]
        try:
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                return -self.value(node.operand, depth + 1)
            if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
                sides = [self.value(side, depth + 1) for side in (node.left, node.right)]
                if all(isinstance(side, (int, float)) for side in sides):
                    return _ARITHMETIC[type(node.op)](*sides)
                if isinstance(node.op, ast.Mult):
                    return _repeated(*sides)
            if isinstance(node, ast.Call) and not node.keywords and isinstance(node.func, ast.Name):
                word = node.func.id
                is_pythons = not self.is_imported(word) and not self.assignments(node.func)
                if word in ("int", "float") and is_pythons:
                    (argument,) = node.args
                    inner = self.value(argument, depth + 1)
                    return int(inner) if word == "int" else float(inner)
        except (ArithmeticError, TypeError, ValueError):
            raise NotLiteral(self.source(node)) from None
        if isinstance(node, ast.Attribute):
            return self._attribute(node, depth)
        raise NotLiteral(self.source(node))

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        """Return the value of a name of another module, or the default of an option."""
        dotted = self.dotted(node)
        owner = dotted.rpartition(".")[0].rpartition(".")[2]
        if owner in ("InterpolationMode", "Resampling") or dotted.startswith("PIL.Image."):
            return node.attr.lower().replace("_", "-")
        if dotted.startswith("torch."):
            return dotted
        default = self.options.default(node)
        if default is None:
            raise NotLiteral(self.source(node) + self.options.why_not(node))
        line, value = default
        got = self.value(value, depth + 1)
        self.notes.append(
            (node.lineno, f"{self.source(node)} is {got!r}, the default of line {line}")
        )
        return got

    def arguments(
        self, call: ast.Call, names: list[str]
    ) -> tuple[dict[str, ast.expr], list[ast.expr]]:
        """Return the arguments of a call by name, and what `*` and `**` hand over."""
        given: dict[str, ast.expr] = {}
        unpacked: list[ast.expr] = []
        for number, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred) or number >= len(names):
                unpacked.append(argument)
            else:
                given[names[number]] = argument
        for keyword in call.keywords:
            if keyword.arg is None:
                unpacked.append(keyword.value)
            else:
                given[keyword.arg] = keyword.value
        return given, unpacked

    # --- the text

    def source(self, node: ast.AST) -> str:
        """Return a node's text in one line, shortened where it is long."""
        try:
            text = " ".join(self.whole_source(node).split())
        except (AttributeError, TypeError):  # it is not of the text
            text = ""
        return text if len(text) <= 60 else text[:57] + "..."

    def whole_source(self, node: ast.AST) -> str:
        """Return a node's text as it stands."""
        start, end = self.span(node)
        return self.text[start:end]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends in the text."""
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _offset(self, line: int, column_bytes: int) -> int:
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column_bytes].decode(errors="ignore"))

    def line_span(self, node: ast.stmt) -> Optional[tuple[int, int]]:
        """Return the whole lines of a statement; None where it shares them."""
        start, end = self.span(node)
        first = self._starts[node.lineno - 1]
        last = self._starts[node.end_lineno or node.lineno]
        behind = self.text[end:last].strip()
        if self.text[first:start].strip() or (behind and not behind.startswith("#")):
            return None
        return first, last

    def offset_behind_comments(self) -> int:
        """Return where the comments end with which the text begins: `#!`, its encoding."""
        lines = itertools.takewhile(lambda line: line.startswith("#"), self._lines)
        return sum(map(len, lines))

    def indent(self, node: ast.stmt) -> str:
        """Return the blanks before a statement."""
        start, _ = self.span(node)
        return self.text[self._starts[node.lineno - 1] : start]


def _captured(node: ast.AST) -> Optional[str]:
    """Return the name that `except ERROR as NAME`, or a pattern of `match`, gives a value."""
    kind = type(node).__name__  # Python 3.9 has no patterns
    if kind in ("ExceptHandler", "MatchAs", "MatchStar"):
        return node.name  # type: ignore[attr-defined]
    return node.rest if kind == "MatchMapping" else None  # type: ignore[attr-defined]


def _repeated(left: Any, right: Any) -> list[Any]:
    """Return `[x] * n` or `n * [x]`; raise ValueError where it is neither, or long."""
    items, count = (left, right) if isinstance(left, list) else (right, left)
    if not isinstance(items, list) or type(count) is not int or len(items) * count > _MOST_ITEMS:
        raise ValueError
    return items * count


def is_none(node: ast.expr) -> bool:
    """Tell whether a node is None."""
    return isinstance(node, ast.Constant) and node.value is None
