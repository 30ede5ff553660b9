"""Where a script changes torch's and torchvision's own classes and modules, so that the same calls
give other samples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Union

from .script_dynamic import called_name, is_self
from .script_report import Report

if TYPE_CHECKING:
    from .script import Script

# A name in the scope that assigns it; of any object an attribute, or what a method returns (None).
_Holder = tuple[Union[ast.AST, None], str]

# Those that make samples: transforms are Modules, and pictures PIL's, or Tensors.
_THEIRS = ("torchvision.", "torch.utils.data.", "torch.nn.Module.", "torch.Tensor.", "PIL.Image.")
# What is set of them and changes no sample: where a dataset is downloaded from, limits of PIL's.
_HARMLESS = ("MAX_IMAGE_PIXELS", "mirrors", "resources", "url", "urls")
# What is set for the whole program, and what that means.
_SETTINGS = {
    "torch.set_default_dtype": "transforms to floats give that type, and a pipeline float32",
    "torch.set_default_tensor_type": "transforms to floats give that type, and a pipeline float32",
    "torchvision.set_image_backend": "the daemon decodes by a library of its own",
}
_SETTERS = {"__delattr__", "__setattr__", "delattr", "setattr"}
# What they return may be, or hold, what they are given, or what its name or text names.
_GIVE_BACK = {
    "__import__", "dict", "enumerate", "get", "getattr", "import_module", "items", "iter", "list",
    "max", "min", "next", "nullcontext", "pop", "reload", "reversed", "set", "sorted", "tuple",
    "type", "values", "vars", "zip",
}  # fmt: skip
_CLASSES = {"__base__", "__bases__", "__class__", "__mro__"}  # of anything, so of theirs
_READS = {"copy", "get", "items", "keys", "values"}
_WHOLES = (
    ast.BoolOp, ast.Dict, ast.IfExp, ast.List, ast.NamedExpr, ast.Set, ast.Starred, ast.Tuple,
)  # fmt: skip
_FUNCTIONS = (ast.AsyncFunctionDef, ast.FunctionDef, ast.Lambda)
_DEEPEST = 40
_MOST_ROUNDS = 20


class Patches:
    """Finds these places, where classes and modules have other names, too."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._held: set[_Holder] = set()
        self._own: dict[str, list[ast.AST]] = {}  # functions by their names
        self._calls: list[ast.Call] = []
        for node in script.nodes:
            if isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef)):
                self._own.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                for name in _names(node.targets):
                    self._own.setdefault(name.id, []).append(node.value)
            elif isinstance(node, ast.Call):
                self._calls.append(node)

    def places(self) -> list[ast.AST]:
        """Return them."""
        self._follow()
        return [node for node in self._script.nodes if self._is_patch(node)]

    def note_settings(self, report: Report) -> None:
        """Note what the script sets for the whole program, and no pipeline follows."""
        for call in self._calls:
            meaning = _SETTINGS.get(self._script.dotted(call.func))
            given = [self._script.dotted(value) for value in call.args]
            if meaning is not None and given != ["torch.float32"]:
                report.note(call, f"{self._script.source(call)}: {meaning}")

    def _follow(self) -> None:
        """Find what has one of their classes or modules."""
        for _ in range(_MOST_ROUNDS):
            before = len(self._held)
            for node in self._script.nodes:
                self._take(node)
            if len(self._held) == before:
                break

    def _take(self, node: ast.AST) -> None:
        if isinstance(node, (ast.AnnAssign, ast.Assign, ast.NamedExpr)):
            if node.value is not None and self._is_theirs(node.value):
                self._hold(node.targets if isinstance(node, ast.Assign) else [node.target])
        elif isinstance(node, (ast.AsyncFor, ast.For, ast.comprehension)):
            if self._is_theirs(node.iter):
                self._hold([node.target])
        elif isinstance(node, ast.withitem):
            if node.optional_vars is not None and self._is_theirs(node.context_expr):
                self._hold([node.optional_vars])
        elif isinstance(node, ast.Return):
            function = self._script.scope(node)
            if node.value is not None and self._is_theirs(node.value):
                self._held.add((None, f"{getattr(function, 'name', '')}()"))
        elif isinstance(node, ast.arguments):
            if any(self._is_theirs(d) for d in [*node.defaults, *node.kw_defaults] if d):
                self._hold_parameters([self._script.parents[node]])
        elif isinstance(node, ast.Call):
            functions = [node.func] if isinstance(node.func, ast.Lambda) else self._own.get(
                called_name(node), []
            )  # fmt: skip
            if functions and self._is_given(node):
                self._hold_parameters(functions)

    def _hold(self, targets: Iterable[ast.AST]) -> None:
        for target in targets:
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name) and not is_self(inner):
                    self._held.add((self._script.binding(inner), inner.id))
                elif isinstance(inner, ast.Attribute) and not isinstance(inner.ctx, ast.Load):
                    self._held.add((None, f".{inner.attr}"))

    def _hold_parameters(self, functions: Iterable[ast.AST]) -> None:
        for function in functions:
            given = function.args  # type: ignore[attr-defined]
            for argument in ast.walk(given):
                if isinstance(argument, ast.arg) and argument.arg != "self":
                    self._held.add((function, argument.arg))

    def _is_given(self, call: ast.Call) -> bool:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return any(self._is_theirs(value) for value in given)

    def _is_theirs(self, node: ast.AST, depth: int = 0) -> bool:
        """Tell whether an expression is, or holds, one of their classes or modules."""
        if depth > _DEEPEST:
            return False
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = self._script.dotted(node)
            if name:
                return f"{name}.".startswith(_THEIRS)
            if isinstance(node, ast.Name):
                return (self._script.binding(node), node.id) in self._held
            if node.attr in _CLASSES:
                return not is_self(node.value)
            is_held = (None, f".{node.attr}") in self._held
            return is_held or self._is_theirs(node.value, depth + 1)
        if isinstance(node, ast.Subscript):
            is_named = _is_their_name(node.slice) or self._is_theirs(node.slice, depth + 1)
            return is_named or self._is_theirs(node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._is_given_back(node, depth)
        if isinstance(node, (ast.DictComp, ast.GeneratorExp, ast.ListComp, ast.SetComp)):
            value = node.value if isinstance(node, ast.DictComp) else node.elt
            return self._is_theirs(value, depth + 1)
        return isinstance(node, _WHOLES) and any(
            self._is_theirs(inner, depth + 1) for inner in ast.iter_child_nodes(node)
        )

    def _is_given_back(self, call: ast.Call, depth: int) -> bool:
        word = called_name(call)
        if (None, f"{word}()") in self._held:
            return True
        if word not in _GIVE_BACK:
            return False
        if word == "type" and isinstance(call.func, ast.Name):
            return len(call.args) == 1 and not is_self(call.args[0])
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return any(
            _is_their_name(value) or self._is_theirs(value, depth + 1)
            for value in [*owner, *call.args]
        )

    # --- what changes them

    def _is_patch(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return node.attr not in _HARMLESS and self._is_theirs(node.value)
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return self._is_dict(node.value)
        if not isinstance(node, ast.Call):
            return False
        word = called_name(node)
        if isinstance(node.func, ast.Attribute) and self._is_dict(node.func.value):
            return word not in _READS
        if word in _SETTERS:
            return self._sets(node)
        if word.startswith("wrap_") or _is_mock(node.func):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            return any(_is_their_name(value) or self._is_theirs(value) for value in values)
        return False

    def _sets(self, call: ast.Call) -> bool:
        """Tell whether a call of setattr(), or of a method like it, sets something of theirs."""
        given = [*call.args]
        if isinstance(call.func, ast.Attribute):
            given.insert(0, call.func.value)
        names = [value.value for value in given[1:3] if isinstance(value, ast.Constant)]
        if any(name in _HARMLESS for name in names):
            return False
        return any(_is_their_name(value) or self._is_theirs(value) for value in given[:2])

    def _is_dict(self, node: ast.AST) -> bool:
        """Tell whether a node is the dict of a class or module of theirs."""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return self._is_theirs(node.value)
        return isinstance(node, ast.Call) and called_name(node) == "vars" and self._is_given(node)


def _names(targets: Iterable[ast.AST]) -> Iterator[ast.Name]:
    return (target for target in targets if isinstance(target, ast.Name))


def _is_their_name(node: ast.AST) -> bool:
    """Tell whether a node is the name of one of them, as a text."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and f"{node.value}.".startswith(_THEIRS)
    )


def _is_mock(node: ast.expr) -> bool:
    """Tell whether a function's name says that it patches, as mock.patch.object does."""
    words = [getattr(inner, "attr", getattr(inner, "id", "")) for inner in ast.walk(node)]
    return any("patch" in word for word in words)
