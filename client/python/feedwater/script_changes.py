"""Changes of a script's text: loaders are replaced, and what only served the old ones goes."""

from __future__ import annotations

import ast
from typing import Optional

from .script import Script
from .script_datasets import DATASETS
from .script_samplers import Samplers


class Changes:
    """Collects edits of a script.

    Attributes
    ----------
    edits : list of (int, int, str)
        Where in the text, and what stands there then.
    dead, kept : set of nodes
        Parts that are no longer in the script, and parts of those that are.
    removable : dict of (str, scope)
        Names that served what was replaced, with their scopes.
    samplers : Samplers
        What the script does with those of its loaders.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.edits: list[tuple[int, int, str]] = []
        self.dead: set[ast.AST] = set()
        self.kept: set[ast.AST] = set()
        self.removable: dict[tuple[str, ast.AST], None] = {}  # in order
        self._followed: set[ast.AST] = set()  # statements with a new line behind them
        self.samplers = Samplers(script)

    def serves(self, use: ast.AST, call: ast.Call) -> bool:
        """Tell whether a use of a dataset takes a file's name as well, or will be gone."""
        script = self._script
        parent = script.parents[use]
        if isinstance(parent, ast.Assert):
            return True
        place = script.parents.get(parent)  # SAMPLER = DistributedSampler(DATASET)
        if not isinstance(parent, ast.Call) or not isinstance(place, ast.Assign):
            return False
        target = place.targets[0]
        return (
            isinstance(target, ast.Name)
            and (target.id, script.scope(target)) in self.removable
            and self._may_go(place)
            and self.samplers.renamed(call, target) == self.samplers.uses(call, target)
        )

    def may_be_unused(self, node: ast.AST, scope: ast.AST) -> None:
        """Note the names that served a part of the script that is gone."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self.removable[inner.id, scope] = None

    def uses(self, name: str, scope: ast.AST) -> list[ast.expr]:
        """Return where a name that a scope assigns is read in what stays of the script."""
        script = self._script
        is_class = isinstance(scope, ast.ClassDef)  # others read it as CLASS.NAME
        return [
            node
            for node in script.nodes
            if (
                (isinstance(node, ast.Name) and node.id == name)
                or (is_class and isinstance(node, ast.Attribute) and node.attr == name)
            )
            and not isinstance(node.ctx, ast.Store)
            and (is_class or scope is script.tree or self._is_within(node, {scope}))
            and not self._is_gone(node)
        ]

    def _is_within(self, node: ast.AST, around: set[ast.AST]) -> bool:
        parent: Optional[ast.AST] = node
        while parent is not None:
            if parent in around:
                return True
            parent = self._script.parents.get(parent)
        return False

    def _is_gone(self, node: ast.AST) -> bool:
        parent: Optional[ast.AST] = node
        while parent is not None:
            if parent in self.kept:
                return False
            if parent in self.dead:
                return True
            parent = self._script.parents.get(parent)
        return False

    def put_behind(self, place: ast.stmt, line: str) -> None:
        """Put a line behind a statement, which then stays."""
        span = self._script.line_span(place)
        assert span is not None
        self.edits.append((span[1], span[1], f"{self._script.indent(place)}{line}\n"))
        self._followed.add(place)

    def rename(self, call: ast.Call, sampler: ast.Name) -> None:
        """Let `sampler.set_epoch` be the loader's, whose sampler has the same length, too."""
        script = self._script
        target = self.samplers.target(call)
        for use in self.samplers.renamed(call, sampler):
            assert target is not None
            self.edits.append((*script.span(use), f"{script.whole_source(target)}.sampler"))
            self.dead.add(use)

    def remove_unused(self) -> None:
        """Remove what served the replaced loaders alone: datasets, transforms, samplers, paths."""
        script = self._script
        statements: set[ast.stmt] = set()
        while True:
            more = False
            for name, scope in list(self.removable):
                places = [
                    place
                    for (of, assigned), found in script._assigned.items()
                    if assigned == name and of is scope
                    for _, place in found
                ]
                if script.is_outer(name) or not places or any(p in statements for p in places):
                    continue
                if not all(self._may_go(place) for place in places):
                    continue
                if any(not self._is_within(use, set(places)) for use in self.uses(name, scope)):
                    continue
                for place in places:
                    assert isinstance(place, ast.Assign)
                    statements.add(place)
                    self.dead.add(place)
                    self.may_be_unused(place.value, scope)
                more = True
            if not more:
                break
        self._cut(statements)

    def _may_go(self, place: ast.AST) -> bool:
        """Tell whether a statement only makes what a loader needed."""
        script = self._script
        if not isinstance(place, ast.Assign) or len(place.targets) != 1:
            return False
        if not isinstance(place.targets[0], ast.Name) or script.line_span(place) is None:
            return False
        value = place.value
        if place.value in self.dead or place in self._followed:  # it is a file's name now
            return False
        if isinstance(value, (ast.Constant, ast.Name, ast.Attribute)):
            return True
        name = script.dotted(value.func) if isinstance(value, ast.Call) else ""
        if name.startswith("torchvision.datasets."):
            return name.rpartition(".")[2] in DATASETS
        return name.startswith(("torchvision.transforms.", "torch.utils.data.")) or name == (
            "os.path.join"
        )

    def _cut(self, statements: set[ast.stmt]) -> None:
        """Take statements out, and the branches that are empty without them."""
        script = self._script
        gone: set[ast.AST] = set(statements)
        for node in reversed(script.nodes):  # inner ones before those around them
            if not isinstance(node, ast.If) or script.line_span(node) is None:
                continue
            if all(item in gone for item in [*node.body, *node.orelse]) and _only_looks(node.test):
                parent = script.parents[node]
                if not (isinstance(parent, ast.If) and node in parent.orelse):  # not an elif
                    gone.add(node)
        for node in script.nodes:
            if node in gone and script.parents[node] not in gone:
                span = script.line_span(node)  # type: ignore[arg-type]
                if span is not None:
                    self._cut_lines(*span, self._in_place_of(node, gone))

    def _cut_lines(self, start: int, end: int, new: str) -> None:
        """Replace lines; where nothing stays between two blank lines, one of those goes, too."""
        text = self._script.text
        after = text.find("\n", end)
        above_is_blank = start == 0 or text[:start].endswith(("\n\n", ":\n"))
        if not new and above_is_blank and after >= 0 and not text[end:after].strip():
            end = after + 1
        self.edits.append((start, end, new))

    def _in_place_of(self, node: ast.AST, gone: set[ast.AST]) -> str:
        """Return `pass` for the last statement of a block that must not be empty."""
        parent = self._script.parents[node]
        for block in ("body", "orelse", "finalbody"):
            items = getattr(parent, block, None)
            if isinstance(items, list) and node in items:
                empty = not isinstance(parent, ast.Module) and all(item in gone for item in items)
                if empty and items[-1] is node:
                    return f"{self._script.indent(node)}pass\n"
        return ""

    def add_imports(self) -> None:
        """Import what the edits need behind the last import at the top that comes before them."""
        script = self._script
        used = min(start for start, _, _ in self.edits)
        is_os_needed = any("os.path." in new for _, _, new in self.edits)
        wanted = ["os"] * is_os_needed + ["feedwater"]
        place = script.offset_behind_comments()
        for node in script.tree.body:
            span = script.line_span(node)
            if span is None or span[1] > used:
                continue
            is_doc = node is script.tree.body[0] and isinstance(node, ast.Expr) and isinstance(
                node.value, ast.Constant
            )  # fmt: skip
            if isinstance(node, (ast.Import, ast.ImportFrom)) or is_doc:
                place = span[1]
            if isinstance(node, ast.Import):
                there = {a.name.partition(".")[0] for a in node.names if a.asname is None}
                wanted = [name for name in wanted if name not in there]
        self.edits.append((place, place, "".join(f"import {name}\n" for name in wanted)))

    def conflict(self) -> Optional[int]:
        """Return where the text would be changed in two ways at once; None: nowhere."""
        last = (0, 0, "")
        for edit in self._in_order():
            if edit[0] < last[1]:
                return edit[0]
            last = edit
        return None

    def edited(self) -> str:
        """Return the script with all edits."""
        text = self._script.text
        for start, end, new in reversed(self._in_order()):
            before = text[:start]
            if new.endswith("\n") and before and not before.endswith("\n"):
                before += "\n"
            text = before + new + text[end:]
        return text

    def _in_order(self) -> list[tuple[int, int, str]]:
        """Return the edits; what is put in before a part that is replaced comes first."""
        return sorted(dict.fromkeys(self.edits), key=lambda e: (e[0], e[1] > e[0], -e[1]))


def _only_looks(node: ast.expr) -> bool:
    """Tell whether an expression only looks at names."""
    allowed = (
        ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp,
        ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop,
    )  # fmt: skip
    return all(isinstance(inner, allowed) for inner in ast.walk(node))
