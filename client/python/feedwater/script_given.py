"""What the functions that a script calls do with what they are given, as far as that is known."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .script import Script

# Functions that only look, and return nothing of what they are given.
PURE = {
    "all", "any", "bool", "float", "hash", "id", "int", "isinstance", "len", "max", "min", "print",
    "range", "repr", "str", "sum", "type",
}  # fmt: skip
# Those of numbers only do so; of other things they return one, or what is made of them.
OF_NUMBERS = {"max", "min", "sum"}
# What they return holds the entries of what they are given.
_COPIES = {
    "dict", "enumerate", "iter", "list", "next", "reversed", "set", "sorted", "tuple", "zip",
}  # fmt: skip
_PURE_OF_MODULES = {
    "collections.Counter", "copy.deepcopy", "json.dumps", "numpy.array",
    "numpy.bincount", "numpy.unique", "os.fspath",
    "os.path.exists", "os.path.isdir", "os.path.join", "pprint.pprint", "torch.tensor",
}  # fmt: skip
LOGS = {"critical", "debug", "error", "exception", "info", "warning"}
HOLDERS = ("torchvision.", "torch.nn.")
LOADERS = "torch.utils.data."
_SHOW = "torchvision.utils."  # pictures, of which they make others
# Arguments by which a function calls another one, or returns what it was given.
_OTHERWISE = {"copy", "default", "key"}


class Given:
    """Tells what a call does."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._own = {  # methods of the script's classes, which may do anything
            node.name
            for node in script.nodes
            if isinstance(node, (ast.AsyncFunctionDef, ast.FunctionDef))
            and isinstance(script.parents[node], ast.ClassDef)
        }

    def does(self, call: ast.Call, has_plain: bool, is_new: bool) -> str:
        """Tell what a call does with what it is given: none, held, loaded, change.

        Parameters
        ----------
        call : ast.Call
        has_plain, is_new : bool
            Whether it is given what has plain entries alone, or makes its entries anew.
        """
        script = self._script
        name = script.dotted(call.func)
        if name.startswith(LOADERS):
            return "loaded"
        if name.startswith(HOLDERS):
            is_class = name.rpartition(".")[2][:1].isupper()  # functions may work in place
            return "held" if is_class or name.startswith(_SHOW) else "change"
        is_otherwise = any(keyword.arg in _OTHERWISE for keyword in call.keywords)
        if name in _PURE_OF_MODULES:
            return "held" if is_otherwise else "none"
        if isinstance(call.func, ast.Name) and not name and not script.assignments(call.func):
            word = call.func.id
            if word in PURE - OF_NUMBERS or (word in PURE and is_new):
                return "none"
            if word in _COPIES | OF_NUMBERS:
                if is_new:
                    return "none"
                return "change" if is_otherwise else "held"
        method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
        is_copied = method == "update" and has_plain
        is_log = method in LOGS and method not in self._own
        return "none" if is_log or is_copied else "change"
