"""The DataLoaders of a script, and the pipelines that stand in their place."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from . import errors
from .arguments import ELSEWHERE
from .pipeline import Pipeline
from .script import Script, is_none
from .script_changes import Changes
from .script_datasets import Datasets
from .script_dicts import NOT_NEEDED, Dicts
from .script_draws import Draws, Translation
from .script_order import Orders
from .script_patches import Patches
from .script_report import Report
from .script_roots import root_name
from .script_served import Served
from .script_text import printable
from .yaml_text import Comment, file_text

_LOADER_ARGUMENTS = [
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn",
    "pin_memory", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
]  # fmt: skip


@dataclass
class _Choice:
    """What a loader's dataset may be: the expression, and where it is assigned."""

    node: ast.expr
    place: Optional[ast.AST]
    translation: Optional[Translation] = None


@dataclass
class Migration:
    """What was found in a script.

    Attributes
    ----------
    files : dict of str to str
        Pipeline files by name.
    text : str
        The script as it would be.
    untranslated, notes : list of (int, str)
        Lines and texts.
    """

    files: dict[str, str] = field(default_factory=dict)
    text: str = ""
    untranslated: list[tuple[int, str]] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)


class Migrator:
    """Finds the loaders of a script and puts pipelines, which are in `folder`, in their place.

    `others` are files there that are not this script's.
    """

    def __init__(self, script: Script, folder: str, others: Set[str] = frozenset()) -> None:
        self._script = script
        self._folder = folder
        self._others = others
        self._report = Report()
        self._datasets = Datasets(script, self._report)
        self._dicts = Dicts(script, self._report)
        self._changes = Changes(script)
        self._orders = Orders(script, self._report, self._changes)
        self._found = Migration()
        # Where values may be changed: whose, and the lines of the loaders that stay for that.
        self._changed: dict[ast.AST, tuple[str, list[int]]] = {}
        self._served = Served(script)
        self._draws = Draws(script, self._report, folder)
        self._words = set(re.findall(r"\w+", script.text))  # no new name is one of them

    def run(self) -> Migration:
        """Return what was found."""
        script = self._script
        calls = list(script.calls())
        loaders = [
            call
            for call, name in calls
            if name.startswith("torch.utils.data.") and name.endswith(".DataLoader")
        ]
        unknown = script.imported_twice()
        if not loaders and not unknown:
            self._report.cannot(script.tree, "no torch.utils.data.DataLoader is in it")
        for node, reason in unknown:
            self._report.cannot(node, reason)
        patches = Patches(script)
        patched = patches.places() if loaders else []
        for call in loaders:
            script.met = dict.fromkeys(patched, "a class")
            try:
                self._loader(call)
            except errors.Error as error:  # of numbers that no pipeline takes
                self._report.cannot(call, f"{error}; the DataLoader stays")
        for change, (name, places) in self._changed.items():
            shown = ", ".join(map(str, places[:5])) + (" and others" if len(places) > 5 else "")
            self._report.cannot(
                change,
                f"{script.source(script.statement(change))}: {name} may be changed here, and only "
                f"running it tells to what; DataLoader of line {shown} stays",
            )
        if self._changes.edits:
            self._served.note(self._report)
            patches.note_settings(self._report)
            self._changes.remove_unused()
            self._changes.add_imports()
        self._found.text = self._edited()
        first = {
            text: line for line, text in sorted(self._report.notes + script.notes, reverse=True)
        }
        self._found.notes = sorted((line, text) for text, line in first.items())
        self._found.untranslated = sorted(set(self._report.untranslated))
        return self._found

    def _edited(self) -> str:
        """Return the script as it would be; as it is where two changes are at odds."""
        place = self._changes.conflict()
        if place is None:
            return self._changes.edited()
        line = self._script.text.count("\n", 0, place) + 1
        self._report.cannot(
            ast.Pass(lineno=line),
            "two DataLoaders change this line in different ways; the script stays as it is. Next: "
            "open the pipelines by feedwater.Loader yourself",
        )
        return self._script.text

    # --- a loader

    def _loader(self, call: ast.Call) -> None:
        """Translate a loader; where something that it takes may be changed, it stays."""
        report = self._report
        told, noted = len(report.untranslated), len(report.notes)
        made = self._made(call)
        if self._script.met:  # what else was found is of values that may be others
            del report.untranslated[told:], report.notes[noted:]
            for change, name in self._script.met.items():
                self._changed.setdefault(change, (name, []))[1].append(call.lineno)
            return
        if made is None or not any(choice.translation for choice in made[2]):
            del report.notes[noted:]  # they are of a pipeline
        if made is not None:
            given, kept, choices, ranks = made
            files = [choice.translation for choice in choices if choice.translation is not None]
            if files and not self._may_choose(call, given, kept, choices):
                del report.notes[noted:]
                return
            self._draws.give_seed(call, files, ranks is not None)
            self._found.files.update({file.file: self._file(file) for file in files})
            if any(file.lacks for file in files):
                names = ", ".join(file.file for file in files if file.lacks)
                report.cannot(
                    call,
                    f"the DataLoader stays, as {names} lacks what its comments name: complete it, "
                    "then let feedwater.Loader open it here",
                )
            elif files and self._draws.are_once(call, files, ranks is not None):
                if ranks is None:
                    is_random = any(file.is_random for file in files)
                    opened = os.path.join(self._folder, files[0].file)
                    ranks = self._orders.of_every_rank(call, opened, is_random)
                if ranks is not None:
                    self._replace(call, given, kept, choices, ranks)

    def _made(
        self, call: ast.Call
    ) -> Optional[tuple[dict[str, ast.expr], dict[str, str], list[_Choice], Optional[str]]]:
        """Return a loader's arguments, how those of dicts are written, its datasets, its place."""
        given, unpacked = self._script.arguments(call, _LOADER_ARGUMENTS)
        kept: dict[str, str] = {}  # arguments that come out of `**name`: how they are written
        for argument in unpacked:
            if not self._dicts.unpack(call, argument, given, kept):
                return None
        for name in given:
            if name not in _LOADER_ARGUMENTS and name not in NOT_NEEDED:
                self._report.cannot(
                    call, f"DataLoader({name}={self._script.source(given[name])}): not known here"
                )
                return None
        for name in ("batch_sampler", "collate_fn"):
            if name in given and not is_none(given[name]):
                where = ELSEWHERE[name]
                self._report.cannot(
                    call, f"DataLoader({name}={self._script.source(given[name])}): {where}"
                )
                return None
        if "dataset" not in given:
            self._report.cannot(call, "a DataLoader without a dataset")
            return None
        if "batch_size" in given and is_none(self._script.follow(given["batch_size"])):
            self._report.cannot(
                call, "DataLoader(batch_size=None) gives samples one by one, a Loader batches"
            )
            return None
        size = given.get("batch_size")
        if isinstance(size, ast.Constant) and (type(size.value) is not int or size.value < 1):
            self._report.cannot(
                call, f"DataLoader(batch_size={self._script.source(size)}): not a number of samples"
            )
            return None
        sampled = self._orders.of(call, given)
        if sampled is None:
            return None
        order, ranks = sampled
        choices = self._choices(given["dataset"])
        datasets = [(choice, self._datasets.dataset(choice.node, call)) for choice in choices]
        several = sum(dataset is not None for _, dataset in datasets) > 1
        is_folder = all(d is None or d[0]["format"] == "image_folder" for _, d in datasets)
        reason = self._served.refusal(call, is_folder)
        if reason is not None:
            self._report.cannot(call, reason)
            return None
        for choice, dataset in datasets:
            if dataset is None:
                continue
            source, about_root, graph, outputs = dataset
            base = _base_name(self._word_for(call), self._script.path)
            base += f"-{source['format']}" if several else ""
            file = self._free(base, [c.translation.file for c in choices if c.translation])
            sections: dict[str, Any] = {"version": 1, "dataset": source, "sampler": order}
            sections["graph"] = graph
            batch = self._batch_size(given)
            if isinstance(batch, int):
                sections["batch"] = {"size": batch}
            sections["outputs"] = outputs
            choice.translation = Translation(file, call.lineno, sections, about_root)
        return given, kept, choices, ranks

    def _batch_size(self, given: dict[str, ast.expr]) -> Union[int, ast.expr, None]:
        node = given.get("batch_size")
        if node is None:
            return 1
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        return node

    # --- its dataset

    def _choices(self, node: ast.expr) -> list[_Choice]:
        """Return what a dataset's name may be: several where branches assign it."""
        if isinstance(node, ast.Name):
            self._script.meet(node)
            found = self._script.assignments(node)
            if found and all(value is not None for value, _ in found):
                return [_Choice(value, place) for value, place in found if value is not None]
        return [_Choice(node, None)]

    # --- the files

    def _free(self, base: str, taken: list[str]) -> str:
        if f"{base}.yaml" in self._others:
            base = f"{_base_name('', self._script.path)}-{base}"
        name, number = f"{base}.yaml", 2
        while name in self._found.files or name in taken:
            name, number = f"{base}-{number}.yaml", number + 1
        return name

    def _file(self, translation: Translation) -> str:
        sections = translation.sections
        graph = [entry for entry in sections["graph"] if not isinstance(entry, Comment)]
        Pipeline(
            dataset=sections["dataset"],
            sampler=sections["sampler"],
            graph=graph,
            batch=sections.get("batch"),
            outputs=sections["outputs"],
        )
        shown = {key: value for key, value in sections.items() if key != "graph" or value}
        script = os.path.basename(self._script.path)
        lines = [
            f"By `feedwater migrate` from line {translation.line} of {printable(script)}.",
            printable(translation.about_root),
        ]
        if translation.lacks:
            lines.append("Incomplete: the comments in `graph` say what is missing.")
        return "".join(f"# {line}\n" for line in lines) + file_text(shown)

    # --- the script

    def _name_of(self, call: ast.Call) -> str:
        """Return the name that a loader is assigned to, or ""."""
        parent = self._script.parents.get(call)
        targets = parent.targets if isinstance(parent, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name):
                return target.id
            if isinstance(target, ast.Attribute):
                return target.attr
        return ""

    def _word_for(self, call: ast.Call) -> str:
        """Return what a loader's pipeline is named after: its name, or its function's."""
        scope = self._script.scope(call)
        around = scope.name if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""
        return self._name_of(call) or (around if around.lower().endswith("loader") else "")

    def _replace(
        self,
        call: ast.Call,
        given: dict[str, ast.expr],
        kept: dict[str, str],
        choices: list[_Choice],
        ranks: str,
    ) -> None:
        """Let a Loader stand where the DataLoader did."""
        script = self._script
        batch = self._batch_size(given)
        more = ranks
        if isinstance(batch, ast.expr):
            text = kept.get("batch_size") or script.whole_source(batch)
            more = f", batch_size={text}{ranks}"
        dropped = [word for word in given if word in NOT_NEEDED]
        for word in dropped:
            if word in ("worker_init_fn", "generator") and not is_none(given[word]):
                self._report.note(call, f"{word} is left out: {ELSEWHERE[word]}")
        dataset = given["dataset"]
        self._mark(call, given, kept)
        if len(choices) == 1 and choices[0].translation is not None:
            pipeline = self._path_of(choices[0].translation.file)
        else:
            pipeline = self._choose(dataset, choices, call)
        sampler = given.get("sampler")
        if isinstance(sampler, ast.Name):
            self._changes.rename(call, sampler)
        self._changes.edits.append((*script.span(call), f"feedwater.Loader({pipeline}{more})"))

    def _mark(self, call: ast.Call, given: dict[str, ast.expr], kept: dict[str, str]) -> None:
        """Note what is gone with a DataLoader, and what of it stays."""
        script, changes = self._script, self._changes
        changes.dead.add(call)
        batch = self._batch_size(given)
        if isinstance(batch, ast.expr) and "batch_size" not in kept:
            changes.kept.add(batch)
        for argument in given.values():
            if isinstance(argument, ast.Name):
                changes.removable[argument.id, script.scope(argument)] = None
        changes.may_be_unused(given["dataset"], script.scope(call))

    def _may_choose(
        self,
        call: ast.Call,
        given: dict[str, ast.expr],
        kept: dict[str, str],
        choices: list[_Choice],
    ) -> bool:
        """Tell whether each assignment of a loader's dataset can choose a file, too."""
        if len(choices) < 2:
            return True
        self._mark(call, given, kept)
        is_live = bool(self._live(given["dataset"], call))
        self._changes.dead.discard(call)
        name = self._script.source(given["dataset"])
        for choice in choices:
            place = choice.place
            is_alone = isinstance(place, ast.Assign) and _is_of_one_name(place)
            if is_alone and is_live:
                is_alone = self._script.line_span(place) is not None  # type: ignore[arg-type]
            if not is_alone:
                self._report.cannot(
                    call,
                    f"{name} may be one of several datasets, and line "
                    f"{getattr(place, 'lineno', 1)} is not `{name} = DATASET` alone; the "
                    "DataLoader stays. Next: write that assignment so, on a line of its own",
                )
                return False
        return True

    def _live(self, dataset: ast.expr, call: ast.Call) -> list[ast.expr]:
        """Return the uses of a dataset's name that need the dataset itself."""
        assert isinstance(dataset, ast.Name)
        uses = self._changes.uses(dataset.id, self._script.binding(dataset))
        return [use for use in uses if not self._changes.serves(use, call)]

    def _choose(self, dataset: ast.expr, choices: list[_Choice], call: ast.Call) -> str:
        """Assign file names where branches assign datasets; return the name to be opened."""
        script, changes = self._script, self._changes
        assert isinstance(dataset, ast.Name)
        name = dataset.id
        live = self._live(dataset, call)
        chosen = self._new_name(f"{name}_pipeline") if live else name
        for choice in choices:
            assert isinstance(choice.place, ast.Assign)
            file = choice.translation and self._path_of(choice.translation.file)
            if live:
                changes.put_behind(choice.place, f"{chosen} = {file or name}")
            elif file:
                changes.edits.append((*script.span(choice.node), file))
                changes.dead.add(choice.node)
                changes.may_be_unused(choice.node, script.scope(choice.place))
        if any(choice.translation is None for choice in choices):
            self._report.note(
                call, f"where {chosen} is still a dataset, feedwater.Loader refuses it"
            )
        return chosen

    def _path_of(self, file: str) -> str:
        """Return how the script names a pipeline file: by its own place, wherever it is run."""
        if os.path.isabs(self._folder) or not self._script.may_import("os"):
            return json.dumps(os.path.join(self._folder, file))
        if self._folder:
            here = os.path.dirname(os.path.abspath(self._script.path))
            file = os.path.relpath(os.path.join(self._folder, file), here)
        return f"os.path.join(os.path.dirname(__file__), {json.dumps(file)})"

    def _new_name(self, base: str) -> str:
        """Return a name that the script does not have: another loader may choose by the same."""
        name, number = base, 2
        while name in self._words:
            name, number = f"{base}_{number}", number + 1
        self._words.add(name)
        return name


def _is_of_one_name(place: ast.Assign) -> bool:
    return len(place.targets) == 1 and isinstance(place.targets[0], ast.Name)


def _base_name(loader: str, path: str) -> str:
    """Return the name of a loader's pipeline: `train` of `train_loader`, else the script's."""
    word = re.sub(r"_?(data)?_?loaders?$", "", loader, flags=re.IGNORECASE)
    word = re.sub(r"^(get|make|build|create|setup)(_|$)", "", word)
    if not word:
        word = os.path.splitext(os.path.basename(path))[0]
    return root_name(word)
