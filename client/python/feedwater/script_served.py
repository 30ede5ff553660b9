"""What a script does with the parts of a loader, and how much of it those of a Loader can do.

`LOADER.dataset` of a `feedwater.Loader` has a length, classes, and paths with labels: no pictures.
`LOADER.sampler` and `LOADER.batch_sampler` have lengths and set_epoch(), and no numbers of records.
Where a script does anything else with them, its DataLoader stays.
"""

from __future__ import annotations

import ast
from typing import Optional

from .script import Script
from .script_dynamic import is_self
from .script_inner import is_options
from .script_report import Report

_LOOKS = {"bool", "hasattr", "id", "isinstance", "len", "print", "repr", "str", "type"}
# Attributes of parts, which a Loader's have, too: of `dataset` those of an image folder apart.
_PARTS = {
    "batch_sampler": {"__len__", "batch_size", "drop_last", "set_epoch"},
    "collate_fn": set(),
    "dataset": {"__len__", "class_to_idx", "classes"},
    "generator": set(),
    "sampler": {"__len__", "set_epoch"},
}  # fmt: skip
_OF_FOLDERS = {"imgs", "samples", "targets"}
_INSTEAD = {
    "batch_sampler": "has a length alone: the order is the daemon's",
    "collate_fn": "does nothing: the daemon makes the batches",
    "dataset": "has paths and labels, no pictures. Next: use the dataset by a name of its own",
    "generator": "is None: the order comes of the pipeline's seed",
    "sampler": "has set_epoch() and a length alone: the order is the daemon's",
}
_TESTS = (
    ast.Assert, ast.BoolOp, ast.Compare, ast.Expr, ast.FormattedValue, ast.If, ast.IfExp,
    ast.UnaryOp, ast.While,
)  # fmt: skip
_DEEPEST = 5


class Served:
    """Finds the uses of a loader's parts, and which of them are a Loader's to serve."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._parts: list[tuple[ast.Attribute, ast.expr]] = []  # and whose they are
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and node.attr in _PARTS:
                owner = node.value
                if isinstance(owner, ast.Attribute) and owner.attr == "batch_sampler":
                    owner = owner.value
                self._parts.append((node, owner))

    def refusal(self, call: ast.Call, is_folder: bool) -> Optional[str]:
        """Return why a Loader cannot do for a DataLoader what the script does with its parts.

        Parameters
        ----------
        call : ast.Call
        is_folder : bool
            Whether its dataset is an image folder: labels are known before records are read then.
        """
        for part, owner in self._parts:
            if self._is(owner, call) and not self._serves(part, is_folder, 0):
                return (
                    f"{self._shown(part)} (line {part.lineno}): {self._instead(part)}; the "
                    f"DataLoader of line {call.lineno} stays"
                )
        return None

    def note(self, report: Report) -> None:
        """Note what may be done with a part of a Loader by a name that may be another loader's,
        and where the script asks whether something is a DataLoader.
        """
        for part, owner in self._parts:
            if self._may_be_one(owner, part.attr) and not self._serves(part, True, 0):
                shown = self._script.source(owner)
                report.note(
                    part,
                    f"{self._shown(part)}: where {shown} is a feedwater.Loader, "
                    f"{self._instead(part)}",
                )
        for asked in self._kinds():
            report.note(asked, f"{self._script.source(asked)} is false of a feedwater.Loader")

    def _shown(self, part: ast.Attribute) -> str:
        return self._script.source(self._script.statement(part))

    def _instead(self, part: ast.Attribute) -> str:
        return f"the {part.attr} of a feedwater.Loader {_INSTEAD[part.attr]}"

    def _kinds(self) -> list[ast.Call]:
        """Return where the script asks whether something is a DataLoader, which no Loader is."""
        return [
            call
            for call in self._script.nodes
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "isinstance"
            and any(
                self._script.dotted(inner).startswith("torch.utils.data.")
                and self._script.dotted(inner).endswith(".DataLoader")
                for argument in call.args[1:]
                for inner in ast.walk(argument)
            )
        ]

    def _is(self, owner: ast.expr, call: ast.Call) -> bool:
        """Tell whether an expression has a loader."""
        return owner is call or call in self._values(owner)

    def _may_be_one(self, owner: ast.expr, word: str) -> bool:
        """Tell whether an expression may be a loader, as what has a part of this name."""
        script = self._script
        values = self._values(owner)
        if script.dotted(owner) or (values and None not in values) or is_self(owner):
            return False
        is_loaders = word == "dataset" or "load" in script.source(owner).lower()
        return is_loaders and not isinstance(owner, ast.Call) and not is_options(owner)

    def _values(self, node: ast.expr) -> list[Optional[ast.expr]]:
        """Return what a name, or an attribute, is assigned."""
        script = self._script
        if isinstance(node, ast.Name):
            return [value for value, _ in script.assignments(node)]
        if not isinstance(node, ast.Attribute):
            return []
        stores = [(store, script.parents[store]) for store in script.stores(node.attr)]
        return [
            place.value if isinstance(place, (ast.AnnAssign, ast.Assign)) else None
            for _, place in stores
        ]

    def _serves(self, part: ast.expr, is_folder: bool, depth: int) -> bool:
        """Tell whether a use of a part asks for what a Loader's has, too."""
        script = self._script
        word = part.attr if isinstance(part, ast.Attribute) else "dataset"
        parent = script.parents[part]
        if not isinstance(getattr(part, "ctx", None), ast.Load):
            return False
        if isinstance(parent, ast.Attribute):
            known = _PARTS[word] | (_OF_FOLDERS if is_folder and word == "dataset" else set())
            is_part = word == "batch_sampler" and parent.attr == "sampler"
            return parent.attr in known or is_part  # which is looked at itself
        if isinstance(parent, ast.Call) and part in parent.args:
            is_name = isinstance(parent.func, ast.Name) and not script.assignments(parent.func)
            return is_name and parent.func.id in _LOOKS  # type: ignore[attr-defined]
        if isinstance(parent, ast.Assign) and word == "dataset" and depth < _DEEPEST:
            return all(
                isinstance(target, ast.Name)
                and len(script.assignments(target)) == 1
                and all(
                    self._serves(use, is_folder, depth + 1)
                    for use in script.nodes
                    if isinstance(use, ast.Name)
                    and use.id == target.id
                    and use not in parent.targets
                    and script.binding(use) is script.binding(target)
                )
                for target in parent.targets
            )
        return isinstance(parent, _TESTS)
