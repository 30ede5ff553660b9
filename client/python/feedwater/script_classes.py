"""The classes of a script: which of them one object may be of at once.

`self` of a class, of one that is derived from it however far down, and of a mixin that meets it in
a class below both, may be the same object.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional, Union

from .script_dynamic import called_name

if TYPE_CHECKING:
    from .script import Script

_Made = Union[ast.ClassDef, ast.Call]  # the latter: type(NAME, BASES, DICT)


class Classes:
    """Tells what they have to do with each other."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._classes: list[_Made] = []
        self._is_open = False  # whether any object may get another class
        for node in script.nodes:
            if isinstance(node, ast.ClassDef) or _is_made(node):
                self._classes.append(node)  # type: ignore[arg-type]
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self._is_open = self._is_open or node.attr in ("__bases__", "__class__")
        self._bases: dict[ast.AST, Optional[set[ast.ClassDef]]] = {}
        self._all: list[Optional[set[ast.AST]]] = []
        self._known: dict[tuple[ast.AST, ast.AST], bool] = {}

    def are_related(self, one: Optional[ast.AST], other: Optional[ast.AST]) -> bool:
        """Tell whether an object may be of two classes; True where one of them is none."""
        if self._is_open or one is other or not (
            isinstance(one, ast.ClassDef) and isinstance(other, ast.ClassDef)
        ):  # fmt: skip
            return True
        if (one, other) not in self._known:
            self._all = self._all or [self._above(made) for made in self._classes]
            self._known[one, other] = any(
                above is None or (one in above and other in above) for above in self._all
            )
        return self._known[one, other]

    def properties(self, owner: ast.AST, name: str) -> list[ast.AST]:
        """Return what gives an attribute of this name of an object of a class by calling
        something: properties of related classes, other descriptors.
        """
        return [
            place
            for made in self._classes
            if isinstance(made, ast.ClassDef) and self.are_related(made, owner)
            for value, place in self._script.assigned(made, name)
            if getattr(place, "decorator_list", None)
            or (
                isinstance(value, ast.Call)
                and self._script.dotted(value.func) != "dataclasses.field"
            )
        ]

    def _above(self, made: _Made) -> Optional[set[ast.AST]]:
        """Return a class and all those that it is derived from; None where any one may be."""
        found: set[ast.AST] = {made}
        work: list[ast.AST] = [made]
        while work:
            bases = self._bases_of(work.pop())
            if bases is None:
                return None
            work += bases - found
            found |= bases
        return found

    def _bases_of(self, made: ast.AST) -> Optional[set[ast.ClassDef]]:
        if made not in self._bases:
            given = made.args[1:2] if isinstance(made, ast.Call) else [
                *made.bases, *(keyword.value for keyword in made.keywords)  # type: ignore[attr-defined]
            ]  # fmt: skip
            self._bases[made] = self._named(given)
        return self._bases[made]

    def _named(self, work: list[ast.expr]) -> Optional[set[ast.ClassDef]]:
        """Return the classes that expressions name; None where an argument of a function is one."""
        found: set[ast.ClassDef] = set()
        seen: set[tuple[ast.AST, str]] = set()
        while work:
            for inner in ast.walk(work.pop()):
                if not isinstance(inner, ast.Name):
                    continue
                variable = (self._script.binding(inner), inner.id)
                if variable in seen:
                    continue
                seen.add(variable)
                for value, place in self._script.assignments(inner):
                    if isinstance(place, ast.ClassDef):
                        found.add(place)
                    elif isinstance(place, ast.arg):
                        return None
                    elif value is not None:
                        work.append(value)
        return found


def _is_made(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == "type" and len(node.args) > 1
