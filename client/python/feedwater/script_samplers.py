"""What a script does with the sampler of a loader, and how much of it a Loader's own can do.

`LOADER.sampler` of a `feedwater.Loader` has set_epoch() and a length. So these are what is asked of
it; a question whether there is a sampler is still asked of the script's own, which stays for that;
and where anything else is done with one, its DataLoader stays.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Optional

from .script import Script
from .script_functions import FUNCTIONS

# Functions that look at a sampler, and do not iterate over it.
_KINDS = {"hasattr", "isinstance", "type"}
_LOOKS = {"bool", "id", "print", *_KINDS}
_TESTS = (ast.Assert, ast.Expr, ast.If, ast.IfExp, ast.While)


class Samplers:
    """Finds the uses of samplers, and which of them are a Loader's to serve."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def refusal(self, call: ast.Call, sampler: ast.Name) -> Optional[str]:
        """Return why a loader cannot do for its sampler what the script does with it."""
        for use in self.uses(call, sampler):
            if self._looks(use):
                continue
            where = f"{sampler.id} in line {use.lineno}"
            if not self._serves(use, sampler):
                return (
                    f"{where} serves for more than the sampler of a feedwater.Loader can, which "
                    f"has set_epoch() and a length alone; the DataLoader of line {call.lineno} "
                    "stays. Next: give the loader a sampler of its own"
                )
            if not self._reaches(call, use):
                if self._is_length(use):
                    continue
                return (
                    f"{where} cannot become LOADER.sampler, as the loader has no name of its own "
                    f"there; the DataLoader of line {call.lineno} stays. Next: assign the loader "
                    "to one name, and call NAME.sampler.set_epoch() behind it"
                )
        return None

    def renamed(self, call: ast.Call, sampler: ast.Name) -> list[ast.Name]:
        """Return the uses of a sampler that become those of the loader's."""
        return [
            use
            for use in self.uses(call, sampler)
            if not self._looks(use) and self._serves(use, sampler) and self._reaches(call, use)
        ]

    def target(self, call: ast.Call) -> Optional[ast.expr]:
        """Return the name, or the attribute of `self`, that has a loader and nothing else."""
        script = self._script
        parent = script.parents[call]
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return None
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            found = script.assignments(target)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            is_own = target.value.id == "self"
            found = script.set_in_class(script.class_of(target), target.attr) if is_own else []
        else:
            return None
        return target if len(found) == 1 else None

    def uses(self, call: ast.Call, sampler: ast.Name) -> list[ast.Name]:
        """Return where a sampler is read outside a loader that takes it."""
        script = self._script
        inside = {sampler, *ast.walk(call)}
        scope = script.binding(sampler)
        return [
            node
            for node in script.nodes
            if isinstance(node, ast.Name)
            and node.id == sampler.id
            and not isinstance(node.ctx, ast.Store)
            and node not in inside
            and script.binding(node) is scope
        ]

    def _looks(self, use: ast.Name, but: Collection[str] = ()) -> bool:
        """Tell whether a use asks alone whether there is a sampler, or of which kind, and that by
        none of some functions.
        """
        script = self._script
        child: ast.AST = use
        parent = script.parents[use]
        if isinstance(parent, ast.Compare):
            return all(isinstance(side, ast.Constant) or side is use for side in _sides(parent))
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            is_builtin = parent.func.id in _LOOKS.difference(but) and not script.assignments(
                parent.func
            )
            return is_builtin and use in parent.args
        while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
            child, parent = parent, script.parents[parent]
        return isinstance(parent, _TESTS) and (
            child is getattr(parent, "test", None) or isinstance(parent, ast.Expr)
        )

    def _serves(self, use: ast.Name, sampler: ast.Name) -> bool:
        """Tell whether a use asks for what a Loader's sampler has, too."""
        if self._asks(use):
            return True
        # What is handed out may be asked whether it is None, and this one never is.
        values = [value for value, _ in self._script.assignments(sampler)]
        return all(isinstance(v, ast.Call) for v in values) and self._hands_out(use)

    def _asks(self, use: ast.Name) -> bool:
        """Tell whether a use calls set_epoch(), or len()."""
        parent = self._script.parents[use]
        if isinstance(parent, ast.Attribute):
            call = self._script.parents[parent]
            return parent.attr == "set_epoch" and isinstance(call, ast.Call) and call.func is parent
        return self._is_length(use)

    def _hands_out(self, use: ast.Name) -> bool:
        """Tell whether a function returns a sampler, and all that the script does with it there is
        what a Loader's can.
        """
        script = self._script
        parent = script.parents[use]
        place = parent.elts.index(use) if isinstance(parent, ast.Tuple) else None
        if isinstance(parent, ast.Tuple):
            if any(isinstance(item, ast.Starred) for item in parent.elts):
                return False
            parent = script.parents[parent]
        function = script.scope(use)
        if not isinstance(parent, ast.Return) or not isinstance(function, FUNCTIONS):
            return False
        is_method = isinstance(script.parents[function], ast.ClassDef)
        for node in script.nodes:
            word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if word == function.name and isinstance(node, ast.Attribute) is is_method:
                call = script.parents[node]
                if not isinstance(call, ast.Call) or call.func is not node:
                    return False
                if not self._takes(call, place):
                    return False
        return True

    def _takes(self, call: ast.Call, place: Optional[int]) -> bool:
        """Tell whether a Loader's sampler does for what a call gives, or gives at a place."""
        statement = self._script.parents[call]
        if not isinstance(statement, ast.Assign):
            return isinstance(statement, ast.Expr)
        for target in statement.targets:
            if place is not None:  # LOADER, SAMPLER = CALL
                items = target.elts[: place + 1] if isinstance(target, ast.Tuple) else []
                if len(items) <= place or any(isinstance(item, ast.Starred) for item in items):
                    return False
                target = items[place]
            if not isinstance(target, ast.Name) or self._script.is_outer(target.id):
                return False
            if not all(
                self._asks(use) or self._looks(use, _KINDS) for use in self.uses(call, target)
            ):
                return False
        return True

    def _is_length(self, use: ast.Name) -> bool:
        parent = self._script.parents[use]
        return (
            isinstance(parent, ast.Call)
            and isinstance(parent.func, ast.Name)
            and parent.func.id == "len"
            and use in parent.args
        )

    def _reaches(self, call: ast.Call, use: ast.Name) -> bool:
        """Tell whether the name of a loader is its own where a sampler is used."""
        script = self._script
        target = self.target(call)
        is_here = script.scope(use) is script.scope(call)
        if target is None or (is_here and use.lineno <= call.lineno):
            return False  # a function that stands before it is called behind it
        if isinstance(target, ast.Attribute):
            return is_here
        assert isinstance(target, ast.Name)
        return script.binding_at(target.id, use) is script.binding(target)


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]
