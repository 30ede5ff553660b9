"""The datasets of a script as a pipeline reads them: the files, and the ops of the transforms."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from .script import NotLiteral, Script, is_none
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

if TYPE_CHECKING:
    from typing_extensions import TypeGuard


@dataclass
class Report:
    """Lines and texts: what could not be translated, and what the user should know."""

    untranslated: list[tuple[int, str]] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def cannot(self, node: ast.AST, reason: str) -> None:
        """Add what could not be translated."""
        self.untranslated.append((getattr(node, "lineno", 1), reason))

    def note(self, node: ast.AST, text: str) -> None:
        """Add a note."""
        self.notes.append((getattr(node, "lineno", 1), text))


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


_MOST_PARTS = 200
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
    """Return an argument that is true or false, or raise NotLiteral."""
    if name not in given or is_none(given[name]):
        return default
    return bool(script.value(given[name]))


def _normal(path: str) -> str:
    """Return an absolute path without `..` and the like, and any other one as it is."""
    return "/" + os.path.normpath(path).lstrip("/") if path.startswith("/") else path


def is_torchvisions(name: str) -> bool:
    """Tell whether a name in full is that of a transform."""
    return name.startswith(("torchvision.transforms.", "torch.nn."))


def root_name(word: str) -> str:
    """Return a word as the name of a root."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-") or "data"


def _is_bare(part: ast.expr) -> TypeGuard[ast.FormattedValue]:
    """Tell whether a part of an f-string is `{VALUE}`, as it is."""
    return isinstance(part, ast.FormattedValue) and part.conversion < 0 and part.format_spec is None


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
        self._roots: dict[str, tuple[str, ...]] = {}  # names, and what they stand for
        # Of a path, and of transforms: names that lead in circles have too many.
        self._parts_left = 0
        self._steps_left = 0
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
        source, roots = self._root(given["root"], form)
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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for _, place in script.assignments(node.func):
                if isinstance(place, ast.ClassDef):
                    return (
                        f"{shown}: a Dataset of the script's own (line {place.lineno}): "
                        "feedwater.Loader.from_dataset takes it as it is"
                    )
        return f"DataLoader of line {call.lineno} over {shown}: not a dataset of torchvision's"

    def _root(self, node: ast.expr, form: DatasetFormat) -> tuple[dict[str, Any], str]:
        """Return the section `dataset`, and what its root has to do with a feedwater.yaml.

        A folder whose absolute path is known is the root itself, which a private daemon takes;
        any other one is a name that feedwater.yaml declares.
        """
        script = self._script
        self._parts_left = _MOST_PARTS
        base, parts = self._path(node, 0)
        if isinstance(base, str):
            value = _normal(base)
            steps = [part for part in value.split("/") if part not in ("", ".", "..")]
            if form.name == "image_folder" and not parts and len(steps) > 1:
                value, _, last = value.rstrip("/").rpartition("/")
                parts, steps = [last], steps[:-1]
            name = self._root_name(steps[-1] if steps else "data", (os.path.normpath(value),))
            said = f"{value!r} as seen from where the script runs"
        else:
            default = script.options.default(base)
            shown = script.source(base)
            word = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(
                base, ast.Name) else "data"  # fmt: skip
            value = f"<{shown}>"
            if default is not None:
                with contextlib.suppress(NotLiteral):
                    value = _normal(str(script.value(default[1])))
            whose = id(script.binding(base)) if isinstance(base, ast.Name) else 0
            name = self._root_name(word, (value, script.whole_source(base), str(whose)))
            said = f"{shown} of the script"
        declared = f"roots: {{{name}: {json.dumps(value)}}}"
        is_absolute = value.startswith("/")
        if is_absolute:
            about = f"With a shared daemon: `root: {name}`, and in its feedwater.yaml: {declared}"
            if not isinstance(base, str):
                self._report.note(node, f"the root is {said}: {value}, its default")
        else:
            about = f"In feedwater.yaml: {declared}; or write the folder's absolute path as `root`."
            self._report.note(
                node,
                f"the root {name!r} is {said}. Next: write its absolute path as `root` into the "
                "file, and a Loader starts a daemon of its own; or start one whose feedwater.yaml "
                "names that folder",
            )
        source: dict[str, Any] = {"format": form.name, "root": value if is_absolute else name}
        path = "/".join([*parts, *form.below])
        if path:
            source["path"] = path
        return source, about

    def _root_name(self, word: str, meaning: tuple[str, ...]) -> str:
        """Return a root's name: that of another folder gets a number."""
        name, number = root_name(word), 2
        while self._roots.setdefault(name, meaning) != meaning:
            name, number = f"{root_name(word)}-{number}", number + 1
        return name

    def _path(self, node: ast.expr, depth: int) -> tuple[Union[str, ast.expr], list[str]]:
        """Split a path into where it begins, a text or an expression, and literal parts below."""
        script = self._script
        node = script.follow(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value, []
        self._parts_left -= 1
        if depth > 20 or self._parts_left < 0:
            return node, []
        if isinstance(node, ast.JoinedStr):
            if not all(isinstance(p, ast.Constant) or _is_bare(p) for p in node.values):
                return node, []
            parts = [part.value if _is_bare(part) else part for part in node.values]
            return self._joined(node, parts, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.right]
            left = node.left
            while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
                parts.append(left.right)
                left = left.left
            return self._joined(node, [left, *reversed(parts)], depth)
        inner: list[ast.expr] = []
        if isinstance(node, ast.Call) and script.dotted(node.func) == "os.path.join":
            inner = node.args
        elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            name = script.dotted(node.func)
            if name in ("pathlib.Path", "os.path.expanduser", "os.path.abspath"):
                inner = node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            inner = [node.left, node.right]
        if not inner:
            return node, []
        below = []
        for part in inner[1:]:
            value = self._text(part, False, depth)
            words = value.split("/") if value is not None else [".."]
            if ".." in words or value.startswith("/"):  # type: ignore[union-attr]
                return node, []
            below += [word for word in words if word not in ("", ".")]
        base, parts_below = self._path(inner[0], depth + 1)
        return base, [*parts_below, *below]

    def _text(self, node: ast.expr, is_formatted: bool, depth: int) -> Optional[str]:
        """Return an expression as a part of a path; None where only running tells it."""
        if not is_formatted:
            base, parts = self._path(node, depth + 1)
            if isinstance(base, str):
                return "/".join([base, *parts]) if parts else base
        with contextlib.suppress(NotLiteral):
            value = self._script.value(node)
            if isinstance(value, str) or (is_formatted and type(value) is int):
                return str(value)
        return None

    def _joined(
        self, node: ast.expr, parts: list[ast.expr], depth: int
    ) -> tuple[Union[str, ast.expr], list[str]]:
        """Split texts that are put together: what is known must begin with a folder's end."""
        if not parts:
            return "", []
        base, below = self._path(parts[0], depth + 1)
        texts = [self._text(part, isinstance(node, ast.JoinedStr), depth) for part in parts[1:]]
        if any(text is None for text in texts):
            return node, []
        rest = "".join(text for text in texts if text is not None)
        if base == "":
            return rest, []
        if isinstance(base, str) and not base.endswith("/") and not rest.startswith("/"):
            return "/".join([base, *below]) + rest, []
        words = rest.split("/")
        is_whole = rest.startswith("/") or not rest or (isinstance(base, str) and not below)
        if ".." in words or not is_whole:
            return node, []
        return base, [*below, *(word for word in words if word not in ("", "."))]

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
        except (TypeError, ValueError):
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
