"""The dicts of a script that `DataLoader(**NAME)` hands over: what is in them at that place."""

from __future__ import annotations

import ast
from typing import Optional

from .script import Script
from .script_report import Report

# Those of a DataLoader that feedwater does in its own way: nothing is lost with them.
NOT_NEEDED = {
    "num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "timeout",
    "multiprocessing_context", "pin_memory_device", "in_order", "worker_init_fn", "generator",
}  # fmt: skip
# Methods of a dict that change nothing.
_READS = {"copy", "get", "items", "keys", "values"}


class Dicts:
    """Finds the entries of dicts."""

    def __init__(self, script: Script, report: Report) -> None:
        self._script = script
        self._report = report

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
        for node, other in updates:
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
        script = self._script
        parent: Optional[ast.AST] = call
        while parent is not None and parent is not script.scope(call):
            if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)):
                return False
            parent = script.parents.get(parent)
        is_after = getattr(node, "lineno", 0) > (call.end_lineno or call.lineno)
        return is_after and script.scope(node) is script.scope(call)

    def _is_conditional(self, node: ast.AST, call: ast.Call) -> bool:
        around = set()
        parent: Optional[ast.AST] = call
        while parent is not None:
            around.add(parent)
            parent = self._script.parents.get(parent)
        parent = node
        while parent is not None and parent not in around:
            if isinstance(parent, (ast.If, ast.For, ast.While, ast.Try)):
                return True
            parent = self._script.parents.get(parent)
        return False


def _before(node: ast.AST, call: ast.Call) -> bool:
    return getattr(node, "lineno", 0) < call.lineno
