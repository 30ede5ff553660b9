"""The dicts of a script that `DataLoader(**NAME)` hands over: what is in them at that place."""

from __future__ import annotations

import ast
from typing import Any, Optional

from .script import Script
from .script_dynamic import called_name
from .script_report import Report

# Those of a DataLoader that feedwater does in its own way: nothing is lost with them.
NOT_NEEDED = {
    "num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "timeout",
    "multiprocessing_context", "pin_memory_device", "in_order", "worker_init_fn", "generator",
}  # fmt: skip
# Methods of a dict that change nothing.
_READS = {"copy", "get", "items", "keys", "values"}
# What may leave out a part of it, or does it several times; by name, as Python 3.9 lacks some.
_CONDITIONS = {
    "AsyncFor", "BoolOp", "DictComp", "For", "GeneratorExp", "If", "IfExp", "ListComp", "SetComp",
    "Try", "TryStar", "While", "match_case",
}  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
# Two parts of a statement of which at most one is done.
_EITHER = ({"body of If", "orelse of If"}, {"body of IfExp", "orelse of IfExp"})
# A part of a statement, and another behind it before which the first was done to its end.
_SURE = {("body of Try", "orelse of Try"), ("body of TryStar", "orelse of TryStar")}


class Dicts:
    """Finds the entries of dicts."""

    def __init__(self, script: Script, report: Report) -> None:
        self._script = script
        self._report = report
        self._breaks: dict[ast.AST, list[ast.AST]] = {}  # of branches, by their last statements

    def unpack(
        self, call: ast.Call, argument: ast.expr, given: dict[str, ast.expr], kept: dict[str, str]
    ) -> bool:
        """Add the entries of a dict that `**NAME` hands over; tell whether they are known."""
        script = self._script
        found = script.assignments(argument) if isinstance(argument, ast.Name) else []
        value = found[0][0] if len(found) == 1 else None
        if not isinstance(value, ast.Dict) or not isinstance(argument, ast.Name):
            self._report.cannot(
                call, f"DataLoader(**{script.source(argument)}): not known before it runs"
            )
            return False
        dicts = [(argument.id, value, False)]
        updates = self._updates(argument.id, call)
        known = {node for node, _ in updates}
        is_here = script.binding(argument) is script.scope(call)
        for change in script.changes(argument):
            if not (is_here and (change in known or self._is_later(change, call))):
                script.met[change] = argument.id
        is_again = any(isinstance(parent, _LOOPS) for parent in self._around(call))
        for node, other in updates:
            elsewhere = self._elsewhere(node, call)
            if elsewhere:
                if is_again or elsewhere == "mostly":  # one branch may be done before the other
                    script.met[node] = argument.id
                continue
            if not isinstance(other, ast.Dict):
                self._report.cannot(node, f"{script.source(node)}: not known before it runs")
                return False
            dicts.append((argument.id, other, self._is_conditional(node, call)))
        notes: dict[str, tuple[ast.AST, str]] = {}
        for name, entries, is_conditional in dicts:
            for key, item in zip(entries.keys, entries.values):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    self._report.cannot(entries, f"a key of {name} that is not a plain text")
                    return False
                word, shown = key.value, script.source(item)
                if not is_conditional:
                    notes.pop(word, None)
                elif word not in NOT_NEEDED and word not in given:
                    notes[word] = (
                        entries,
                        f"{name}[{word!r}] is set only under a condition; the pipeline takes it as "
                        f"{shown} always",
                    )
                elif word not in NOT_NEEDED and shown != script.source(given[word]):
                    self._report.cannot(
                        entries,
                        f"{name}[{word!r}] is {script.source(given[word])} or {shown}: only "
                        f"running it tells; the DataLoader of line {call.lineno} stays. Next: "
                        "write a DataLoader for each",
                    )
                    return False
                given[word] = item
                kept[word] = f"{name}[{word!r}]".replace("'", '"')
        for node, text in notes.values():
            self._report.note(node, text)
        return True

    def _updates(self, name: str, call: ast.Call) -> list[tuple[ast.AST, Optional[ast.expr]]]:
        """Return where a dict is changed before a call, and with which entries."""
        script = self._script
        found: list[tuple[ast.AST, Optional[ast.expr]]] = []
        for node in script.nodes:
            owner: Optional[ast.expr] = None
            entries: Optional[ast.expr] = None
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                parent = script.parents[node]  # NAME["KEY"] = VALUE
                owner = node.value
                if isinstance(parent, ast.Assign):
                    entries = ast.Dict([node.slice], [parent.value], lineno=node.lineno)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value if node.func.attr not in _READS else None
                if node.func.attr == "update" and len(node.args) == 1 and not node.keywords:
                    entries = script.follow(node.args[0])  # NAME.update(OTHER)
            is_name = isinstance(owner, ast.Name) and owner.id == name
            if is_name and script.scope(node) is script.scope(call) and _before(node, call):
                found.append((node, entries))
        return found

    def _is_later(self, node: ast.AST, call: ast.Call) -> bool:
        """Tell whether a change comes after a call, in the same scope and without a loop."""
        is_after = getattr(node, "lineno", 0) > (call.end_lineno or call.lineno)
        is_here = self._script.scope(node) is self._script.scope(call)
        return is_after and is_here and not any(isinstance(p, _LOOPS) for p in self._around(call))

    def _elsewhere(self, node: ast.AST, call: ast.Call) -> str:
        """Tell whether a change is only done where a call behind it is not: "always", "mostly"
        (where nothing fails, say), or "".
        """
        parts = self._parts(call)
        for parent, (name, part) in self._parts(node).items():
            if parent not in parts:
                is_branch = isinstance(parent, ast.If) and isinstance(part, list)
                if is_branch and self._leaves(part[-1], call):  # `if X: ...; return`
                    may_go_on = self._is_caught(parent, call) or self._may_break(parent, part, call)
                    return "mostly" if may_go_on else "always"
                continue
            other_name, other = parts[parent]
            is_case = name.startswith("cases") and part is not other
            if is_case or {name, other_name} in _EITHER:
                return "always"
        return ""

    def _leaves(self, end: ast.AST, call: ast.Call) -> bool:
        """Tell whether a statement ends what it stands in, and leads past a call behind it."""
        if isinstance(end, (ast.Break, ast.Continue)):
            loop = self._loop(end)
            there = self._parts(call).get(loop, ("", None))[0] if loop is not None else ""
            return there.startswith("body") or (bool(there) and isinstance(end, ast.Break))
        if isinstance(end, ast.Raise):
            return not self._is_caught(end, call)
        return isinstance(end, ast.Return)

    def _loop(self, end: ast.AST) -> Optional[ast.AST]:
        """Return the loop of `break` or `continue`."""
        for parent, (name, _) in self._parts(end).items():
            if isinstance(parent, _LOOPS) and name.startswith("body"):
                return parent
        return None

    def _may_break(self, branch: ast.AST, part: list[ast.stmt], call: ast.Call) -> bool:
        """Tell whether a `break` or `continue` within a branch may lead to a call behind it."""
        if part[-1] not in self._breaks:
            self._breaks[part[-1]] = [
                end
                for statement in part
                for end in ast.walk(statement)
                if isinstance(end, (ast.Break, ast.Continue))
                and self._script.scope(end) is self._script.scope(call)
                and branch not in self._around(self._loop(end) or branch)
            ]
        return not all(self._leaves(end, call) for end in self._breaks[part[-1]])

    def _is_caught(self, node: ast.AST, call: ast.Call) -> bool:
        """Tell whether a call may be done after a failure at a node."""
        parts = self._parts(call)
        for parent, (name, _) in self._parts(node).items():
            there = parts.get(parent, ("", None))[0]
            if isinstance(parent, ast.With) and not there and _may_end(parent):
                return True
            if type(parent).__name__ in ("Try", "TryStar") and name != there:
                is_handled = name.startswith("body") and bool(getattr(parent, "handlers", ()))
                is_skipped = there.startswith("orelse")
                if there.startswith("finalbody") or (is_handled and not is_skipped):
                    return True
        return False

    def _is_conditional(self, node: ast.AST, call: ast.Call) -> bool:
        """Tell whether a change may not be done, though the call is."""
        parts = self._parts(call)
        for parent, (name, _) in self._parts(node).items():
            kind = type(parent).__name__
            if parent in parts:
                pair = name, parts[parent][0]
                return kind in _CONDITIONS and pair[0] != pair[1] and pair not in _SURE
            if kind in _CONDITIONS or (isinstance(parent, ast.With) and _may_end(parent)):
                return True
        return False

    def _around(self, node: ast.AST) -> list[ast.AST]:
        """Return what a node stands in, up to its function."""
        found: list[ast.AST] = []
        parent = self._script.parents.get(node)
        while parent is not None and parent is not self._script.scope(node):
            found.append(parent)
            parent = self._script.parents.get(parent)
        return found

    def _parts(self, node: ast.AST) -> dict[ast.AST, tuple[str, Any]]:
        """Return in which part of each a node stands: its name, and what it is."""
        found: dict[ast.AST, tuple[str, Any]] = {}
        child = node
        for parent in self._around(node):
            for name, value in ast.iter_fields(parent):
                if value is child or (isinstance(value, list) and child in value):
                    is_case = type(child).__name__ == "match_case"
                    part = child if is_case else value
                    found[parent] = (f"{name} of {type(parent).__name__}", part)
            child = parent
        return found


def _may_end(node: ast.With) -> bool:
    """Tell whether `with` goes on behind what it is around where that fails."""
    made = [item.context_expr for item in node.items]
    return any(isinstance(one, ast.Call) and called_name(one) == "suppress" for one in made)


def _before(node: ast.AST, call: ast.Call) -> bool:
    return getattr(node, "lineno", 0) < call.lineno
