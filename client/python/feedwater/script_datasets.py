"""The datasets of a script as a pipeline reads them: the files, and the ops of the transforms."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from .script import NotLiteral, Script, is_none
from .script_report import Report
from .script_roots import Roots
from .torchvision_chance import BY_CHANCE, ByChance
from .torchvision_transforms import (
    CONTAINERS,
    TRANSFORMS,
    NoCounterpart,
    Translator,
    image_field,
    told,
    translate,
    values_of,
    without_counterpart,
)
from .yaml_text import Comment


@dataclass(frozen=True)
class DatasetFormat:
    """A class of torchvision.datasets: the format that reads its files."""

    name: str
    below: tuple[str, ...] = ()  # where its files are below `root`
    note: str = ""

    @property
    def parameters(self) -> list[str]:
        """The constructor's parameters in their order."""
        if self.name == "image_folder":
            return ["root", "transform", "target_transform", "loader", "is_valid_file"]
        return ["root", "train", "transform", "target_transform", "download"]

    @property
    def translated(self) -> tuple[str, ...]:
        """Those whose values a pipeline takes over, or does not need."""
        return (
            "root",
            "transform",
            *(() if self.name == "image_folder" else ("train", "download")),
        )


_MOST_STEPS = 500
_DEEPEST = 20
# Arguments that make other samples than the format does: what can be done about each.
_OTHER_SAMPLES = {
    "target_transform": "it changes the labels, which the format reads as they are. Change them in "
    "the training loop, or by an op of your own: feedwater.serve_op(NAME, function), and "
    "`python: {name: NAME, in: label}` in the graph",
    "loader": "the format reads the files of images itself, and `decode` makes RGB of them. "
    "feedwater.Loader.from_dataset takes the dataset as it is",
    "is_valid_file": "the format takes every file of images. Move the others away, or "
    "feedwater.Loader.from_dataset takes the dataset as it is",
    "allow_empty": "the format refuses a class folder without images, as ImageFolder by default",
}
_BINARY = "the format reads the binary version ({0}-binary.tar.gz), torchvision the one for Python"
DATASETS = {
    "ImageFolder": DatasetFormat("image_folder"),
    "MNIST": DatasetFormat("mnist", ("MNIST", "raw")),
    "FashionMNIST": DatasetFormat("mnist", ("FashionMNIST", "raw")),
    "KMNIST": DatasetFormat("mnist", ("KMNIST", "raw")),
    "CIFAR10": DatasetFormat("cifar10", ("cifar-10-batches-bin",), _BINARY.format("cifar-10")),
    "CIFAR100": DatasetFormat("cifar100", ("cifar-100-binary",), _BINARY.format("cifar-100")),
}


def flag(script: Script, given: Mapping[str, ast.expr], name: str, default: bool) -> bool:
    """Return an argument that is true or false, or raise NotLiteral; None is false."""
    return bool(script.value(given[name])) if name in given else default


def is_torchvisions(name: str) -> bool:
    """Tell whether a name in full is that of a transform."""
    return name.startswith(("torchvision.transforms.", "torch.nn."))


# Their samples are lists of dicts, or trees, which no batch has.
_WITH_ANNOTATIONS = {
    "CocoDetection": "coco",
    "CocoCaptions": "coco",
    "VOCDetection": "voc",
    "VOCSegmentation": "voc",
}


class Datasets:
    """Translates calls of torchvision.datasets and what they are given."""

    def __init__(self, script: Script, report: Report) -> None:
        self._script = script
        self._report = report
        self._roots = Roots(script, report)
        self._steps_left = 0  # of transforms: names that lead in circles have too many
        self._depth = 0  # of what does others by chance

    def shown(self, node: ast.AST) -> str:
        """Return a node's text in one line."""
        return self._script.source(node)

    def dataset(
        self, node: ast.expr, call: ast.Call
    ) -> Optional[tuple[dict[str, Any], str, list[Any], list[str]]]:
        """Return sections dataset, what is to say of its root, graph and outputs."""
        script = self._script
        node = script.follow(node)
        name = script.dotted(node.func) if isinstance(node, ast.Call) else ""
        kind = name.rpartition(".")[2]
        if not isinstance(node, ast.Call) or not name.startswith("torchvision.datasets."):
            self._report.cannot(node, self._own_dataset(node, call))
            return None
        if kind not in DATASETS:
            form_name = _WITH_ANNOTATIONS.get(kind)
            why = (
                "no format reads it"
                if form_name is None
                else f"format {form_name} reads its files, in another shape: "
                f"feedwater describe format {form_name}"
            )
            self._report.cannot(node, f"torchvision.datasets.{kind}: {why}")
            return None
        form = DATASETS[kind]
        given, unpacked = script.arguments(node, form.parameters)
        if unpacked or "root" not in given:
            self._report.cannot(node, f"{kind}: its arguments are not known before it runs")
            return None
        if not self._are_known(kind, form, given):
            return None
        try:
            source, roots = self._roots.of(given["root"], form.name, form.below)
        except NotLiteral as unknown:
            self._report.cannot(node, f"{kind}(root={unknown}; its DataLoader stays")
            return None
        if form.name != "image_folder":
            try:
                is_train = flag(script, given, "train", True)
            except NotLiteral as unknown:
                self._report.cannot(node, f"{kind}(train={unknown}) is not known before it runs")
                return None
            source["split"] = "train" if is_train else "test"
        if form.note:
            self._report.note(node, f"{kind}: {form.note}")
        self._note_download(kind, given)
        graph = self._graph(given.get("transform"), source)
        return source, roots, graph, ["image", "label"]

    def _are_known(self, kind: str, form: DatasetFormat, given: Mapping[str, ast.expr]) -> bool:
        """Tell whether nothing that a dataset is given makes other samples than the format's."""
        is_known = True
        for argument, value in given.items():
            if argument in form.translated:
                continue
            followed = self._script.follow(value)
            if isinstance(followed, ast.Constant) and followed.value in (None, False):
                continue  # the default
            self._report.cannot(
                value,
                f"{kind}({argument}={self._script.source(value)}): "
                f"{_OTHER_SAMPLES.get(argument, 'not known here')}; its DataLoader stays",
            )
            is_known = False
        return is_known

    def _note_download(self, kind: str, given: Mapping[str, ast.expr]) -> None:
        value = given.get("download")
        if value is None or (isinstance(value, ast.Constant) and not value.value):
            return
        self._report.note(
            value,
            f"{kind}(download={self._script.source(value)}) is left out: a loader downloads "
            "nothing. Next: get the files once, before the script runs",
        )

    def _own_dataset(self, node: ast.expr, call: ast.Call) -> str:
        script = self._script
        shown = script.source(node)
        over = f"DataLoader of line {call.lineno} over {shown}"
        part = self._part(node)
        if part:
            return (
                f"{over}: a part of a dataset ({part}). Next: feedwater.Loader.from_dataset takes "
                "it as it is; or a pipeline of the part's own files"
            )
        if isinstance(node, ast.Subscript) and self._is_of_datasets(node.value):
            return (
                f"{over}: one of several datasets, by {script.source(node.slice)}. Next: write it "
                "out, a dataset and a DataLoader for each; or feedwater.Loader.from_dataset("
                f"{shown}, ...) takes it as it is"
            )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for _, place in script.assignments(node.func):
                if isinstance(place, ast.ClassDef):
                    return (
                        f"{shown}: a Dataset of the script's own (line {place.lineno}): "
                        "feedwater.Loader.from_dataset takes it as it is"
                    )
        return (
            f"{over}: not known to be a dataset of torchvision's. Next: "
            "feedwater.Loader.from_dataset takes any Dataset as it is"
        )

    def _part(self, node: ast.expr) -> str:
        """Return what makes the part of a dataset that a node is: Subset, random_split; or ""."""
        script = self._script
        if isinstance(node, ast.Subscript):
            node = script.follow(node.value)
        made: list[Optional[ast.expr]] = [node]
        if isinstance(node, ast.Name):  # of `a, b = random_split(...)`
            places = [place for _, place in script.assignments(node)]
            made = []
            for place in places:
                while isinstance(place, (ast.Name, ast.Tuple, ast.List, ast.Starred)):
                    place = script.parents[place]
                made.append(place.value if isinstance(place, ast.Assign) else None)
        for value in made:
            name = script.dotted(value.func) if isinstance(value, ast.Call) else ""
            kind = name.rpartition(".")[2]
            if name.startswith("torch.utils.data.") and kind in ("Subset", "random_split"):
                return kind
        return ""

    def _is_of_datasets(self, node: ast.expr) -> bool:
        """Tell whether a node is a dict, list or tuple, or what makes one, of torchvision's."""
        held = self._script.follow(node)
        return isinstance(held, (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Tuple)) and (
            any(
                self._script.dotted(inner.func).startswith("torchvision.datasets.")
                for inner in ast.walk(held)
                if isinstance(inner, ast.Call)
            )
        )

    # --- its transforms

    def _graph(self, transform: Optional[ast.expr], source: dict[str, Any]) -> list[Any]:
        """Return the entries of `graph`, with a comment for each that cannot be translated."""
        translator = Translator(*image_field(source, None, None))
        graph: list[Union[int, Comment]] = []  # places in `translator.ops`
        self._steps_left = _MOST_STEPS
        if transform is not None and not is_none(transform):
            for step in self._steps(transform, 0):
                reason = self._step(step, translator)
                graph += range(sum(isinstance(e, int) for e in graph), len(translator.ops))
                if reason is not None:
                    shown = self._script.source(step)
                    self._report.cannot(step, told(shown, reason))
                    graph.append(Comment(f"line {step.lineno}: {shown} was not translated"))
        ops = translator.finish()
        graph += range(sum(isinstance(entry, int) for entry in graph), len(ops))
        return [ops[entry].to_plain() if isinstance(entry, int) else entry for entry in graph]

    def _steps(self, node: ast.expr, depth: int) -> list[ast.expr]:
        """Return the transforms of a Compose, of Composes in it, too."""
        followed = self._script.follow(node)
        self._steps_left -= 1
        if isinstance(followed, ast.Call) and depth < _DEEPEST and self._steps_left >= 0:
            name = self._script.dotted(followed.func)
            if is_torchvisions(name) and name.rpartition(".")[2] in CONTAINERS:
                items = self._contained(followed, name.endswith(".Compose"))
                if items is not None:
                    return [step for item in items for step in self._steps(item, depth + 1)]
        return [node]

    def _contained(self, call: ast.Call, is_compose: bool) -> Optional[list[ast.expr]]:
        """Return what a Compose or Sequential is given; None where it would not take it."""
        if not is_compose:
            return None if call.keywords else call.args
        given, unpacked = self._script.arguments(call, ["transforms"])
        if unpacked or list(given) != ["transforms"]:
            return None
        held = self._script.follow(given["transforms"])
        return held.elts if isinstance(held, (ast.List, ast.Tuple)) else [held]

    def _step(self, node: ast.expr, translator: Translator) -> Optional[NoCounterpart]:
        """Translate one transform, or say why not."""
        try:
            self.translate(node, translator)
        except NotLiteral as unknown:
            return NoCounterpart(
                f"{unknown} is not a literal, and a pipeline file has values: write the op",
                None,
            )
        except NoCounterpart as reason:
            return reason
        except (ArithmeticError, TypeError, ValueError):
            return NoCounterpart("its arguments are not what the transform takes")
        return None

    def translate(self, node: ast.expr, translator: Translator) -> None:
        """Translate one transform; raise NoCounterpart, or NotLiteral."""
        script = self._script
        followed = script.follow(node)
        name = script.dotted(followed.func) if isinstance(followed, ast.Call) else ""
        if not name:
            is_known = isinstance(followed, (ast.Call, ast.Lambda))
            if isinstance(followed, ast.Name):  # a function or class, and not a choice of branches
                places = [place for _, place in script.assignments(followed)]
                is_known = len(places) == 1 and isinstance(places[0], ast.FunctionDef)
            if not is_known:
                raise NoCounterpart("it is not known before the script runs")
        if not isinstance(followed, ast.Call) or not name:
            raise without_counterpart("", is_own=True)
        kind = name.rpartition(".")[2]
        if not is_torchvisions(name):
            raise without_counterpart(kind, is_own=True)
        by_chance = BY_CHANCE.get(kind)
        if by_chance is None and kind not in TRANSFORMS:
            raise without_counterpart(kind)
        parameters = TRANSFORMS[kind].parameters if by_chance is None else by_chance
        given, unpacked = script.arguments(followed, list(parameters))
        if unpacked:
            raise NoCounterpart("its arguments are not known before the script runs")
        transforms = given.pop("transforms", None) if by_chance is not None else None
        taken: dict[str, Any] = {}
        if transforms is not None:
            taken["transforms"] = self._held(transforms)
        taken.update({argument: script.value(value) for argument, value in given.items()})
        values = values_of(kind, parameters, taken)
        if by_chance is not None:
            if self._depth == _DEEPEST:
                raise NoCounterpart("it is nested too deeply")
            self._depth += 1
            try:
                _ByChance(self, translator).translate(kind, values["transforms"], values)
            finally:
                self._depth -= 1
            return
        was_tensor = translator.is_tensor
        translate(translator, kind, values)
        if was_tensor and "antialias" in parameters and "antialias" not in given:
            self._report.note(
                node,
                f"{script.source(node)}: taken as antialiased, as torchvision from 0.17 on "
                "does; older versions do not antialias tensors",
            )

    def _held(self, node: ast.expr) -> list[ast.expr]:
        """Return the transforms of a list, or of a ModuleList; raise NoCounterpart."""
        script = self._script
        node = script.follow(node)
        if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.nn.ModuleList":
            node = script.follow(node.args[0]) if len(node.args) == 1 else node
        if not isinstance(node, (ast.List, ast.Tuple)) or self._steps_left < 0:
            raise NoCounterpart("its transforms are not known before the script runs")
        return node.elts

    def inner_steps(self, node: ast.expr, place: str) -> list[tuple[str, ast.expr]]:
        """Return a transform with its place, or those of a Compose with theirs."""
        steps = self._steps(node, 0)
        if len(steps) == 1:
            return [(place, steps[0])]
        return [(f"{place}.{number}", step) for number, step in enumerate(steps, 1)]


class _ByChance(ByChance):
    """That of transforms that are calls in a script."""

    def __init__(self, datasets: Datasets, translator: Translator) -> None:
        super().__init__(translator)
        self._datasets = datasets

    def _steps(self, transform: Any, place: str) -> list[tuple[str, Any]]:
        return self._datasets.inner_steps(transform, place)

    def _translate(self, step: Any) -> None:
        self._datasets.translate(step, self._translator)

    def _name(self, step: Any) -> str:
        return self._datasets.shown(step)
