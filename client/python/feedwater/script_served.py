"""What a script does with the parts of a loader, and how much of it those of a Loader can do.

`LOADER.dataset` of a `feedwater.Loader` has a length, classes, and paths with labels: no pictures.
`LOADER.sampler` and `LOADER.batch_sampler` have lengths and set_epoch(), and no numbers of records.
Where a script does anything else with them, its DataLoader stays.
"""

from __future__ import annotations

import ast
from typing import Optional

from .script import Script
from .script_dynamic import called_name, is_self
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
    "worker_init_fn": set(),
}  # fmt: skip
_OF_FOLDERS = {"imgs", "samples", "targets"}
_INSTEAD = {
    "batch_sampler": "has a length alone: the order is the daemon's",
    "collate_fn": "does nothing: the daemon makes the batches",
    "dataset": "has paths and labels, no pictures. Next: use the dataset by a name of its own",
    "generator": "is None: the order comes of the pipeline's seed",
    "sampler": "has set_epoch() and a length alone: the order is the daemon's",
    "worker_init_fn": "is not called: it has no workers of the program's own",
}
_TESTS = (
    ast.Assert, ast.BoolOp, ast.Compare, ast.Expr, ast.FormattedValue, ast.If, ast.IfExp,
    ast.UnaryOp, ast.While,
)  # fmt: skip
_BY_NAME = {"delattr", "getattr", "setattr"}
_KINDS = {"isinstance", "issubclass"}
_DEEPEST = 5


class Served:
    """Finds the uses of a loader's parts, and which of them are a Loader's to serve."""

    def __init__(self, script: Script) -> None:
        self._script = script
        # Parts, whose they are, and their names.
        self._parts: list[tuple[ast.expr, ast.expr, str]] = []
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and node.attr in _PARTS:
                owner = node.value
                if isinstance(owner, ast.Attribute) and owner.attr == "batch_sampler":
                    owner = owner.value
                self._parts.append((node, owner, node.attr))
            elif isinstance(node, ast.Call) and called_name(node) in _BY_NAME and node.args[1:]:
                word = getattr(node.args[1], "value", None)
                if isinstance(word, str) and word in _PARTS:
                    self._parts.append((node, node.args[0], word))

    def refusal(self, call: ast.Call, is_folder: bool) -> Optional[str]:
        """Return why a Loader cannot do for a DataLoader what the script does with its parts.

        Parameters
        ----------
        call : ast.Call
        is_folder : bool
            Whether its dataset is an image folder: labels are known before records are read then.
        """
        for part, owner, word in self._parts:
            if self._is(owner, call) and not self._serves(part, word, is_folder, 0):
                return (
                    f"{self._shown(part)} (line {part.lineno}): {_instead(word)}; the DataLoader "
                    f"of line {call.lineno} stays"
                )
        return None

    def note(self, report: Report) -> None:
        """Note what may be done with a part of a Loader by a name that may be another loader's,
        and where the script asks whether something is a DataLoader.
        """
        for part, owner, word in self._parts:
            if self._may_be_one(owner, word) and not self._serves(part, word, True, 0):
                shown = self._script.source(owner)
                report.note(
                    part,
                    f"{self._shown(part)}: where {shown} is a feedwater.Loader, {_instead(word)}",
                )
        for asked in self._kinds():
            report.note(asked, f"{self._script.source(asked)}: a feedwater.Loader is no DataLoader")

    def _shown(self, part: ast.AST) -> str:
        return self._script.source(self._script.statement(part))

    def _kinds(self) -> list[ast.AST]:
        """Return where the script asks whether something is a DataLoader, which no Loader is."""
        found: list[ast.AST] = []
        for node in self._script.nodes:
            name = self._script.dotted(node)
            if not name.startswith("torch.utils.data.") or not name.endswith(".DataLoader"):
                continue
            parent = self._script.parents[node]
            while isinstance(parent, ast.Tuple):
                parent = self._script.parents[parent]
            is_call = isinstance(parent, ast.Call) and called_name(parent) in _KINDS
            is_pattern = type(parent).__name__ == "MatchClass"  # which Python 3.9 lacks
            if is_call or is_pattern or isinstance(parent, ast.Compare):
                found.append(parent)
        return found

    def _is(self, owner: ast.expr, call: ast.Call) -> bool:
        """Tell whether an expression has a loader."""
        return owner is call or call in self._values(owner)

    def _may_be_one(self, owner: ast.expr, word: str) -> bool:
        """Tell whether an expression may be a loader, as what has a part of this name."""
        script = self._script
        if script.dotted(owner) or is_self(owner) or is_options(owner):
            return False
        values = self._values(owner)
        if values and all(self._is_known(value) for value in values):
            return False
        shown = [script.source(one).lower() for one in (owner, *values) if one is not None]
        return word == "dataset" or any("load" in text for text in shown)

    def _is_known(self, value: Optional[ast.expr]) -> bool:
        """Tell whether a value is a DataLoader, whose own uses are known, or of another kind."""
        if isinstance(value, ast.Call):
            return bool(self._script.dotted(value.func))
        return isinstance(value, (ast.Constant, ast.Dict, ast.List, ast.Tuple))

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

    def _serves(self, part: ast.expr, word: str, is_folder: bool, depth: int) -> bool:
        """Tell whether a use of a part asks for what a Loader's has, too."""
        script = self._script
        parent = script.parents[part]
        is_got = isinstance(part, ast.Call) and called_name(part) == "getattr"
        if not is_got and not isinstance(getattr(part, "ctx", None), ast.Load):
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
                    self._serves(use, word, is_folder, depth + 1)
                    for use in script.nodes
                    if isinstance(use, ast.Name)
                    and use.id == target.id
                    and use not in parent.targets
                    and script.binding(use) is script.binding(target)
                )
                for target in parent.targets
            )
        return isinstance(parent, _TESTS)


def _instead(word: str) -> str:
    return f"the {word} of a feedwater.Loader {_INSTEAD[word]}"
