"""What a script tells argparse: its options, their defaults, and where parse_args() is called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .script import Script

# Arguments that give options values from elsewhere than their defaults.
_OTHER_VALUES = {"argument_default", "default_config_files", "is_config_file"}


class Parser:
    """Finds it.

    Attributes
    ----------
    declared : dict of str to (int, node or None)
        Options, with line and default; None where that is not known, or never taken.
    parsed : list of ast.Call
        Calls of parse_args().
    elsewhere : node or None
        What gives all options values.
    set_by_name : dict of str to list
        Functions that set_defaults() gives the options, as attributes of those names.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.declared: dict[str, tuple[int, Optional[ast.expr]]] = {}
        self.parsed: list[ast.Call] = []
        self.elsewhere: Optional[ast.AST] = None
        self.set_by_name: dict[str, list[ast.expr]] = {}
        for node in script.nodes:
            if isinstance(node, ast.Call):
                self._take(node)
            elif self._is_kept(node):
                self.elsewhere = self.elsewhere or node

    def _is_kept(self, node: ast.AST) -> bool:
        """Tell whether set_defaults() is named and not called, as a method or by a text."""
        parent = self._script.parents.get(node)
        if isinstance(node, ast.Attribute):
            is_called = isinstance(parent, ast.Call) and parent.func is node
            return node.attr == "set_defaults" and not is_called
        is_text = isinstance(node, ast.Constant) and node.value == "set_defaults"
        return is_text and isinstance(parent, ast.Call)

    def _take(self, call: ast.Call) -> None:
        """Note an option and its default, or what changes defaults."""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if _OTHER_VALUES & set(keywords):
            self.elsewhere = self.elsewhere or call
        if method == "parse_args":
            self.parsed.append(call)
            if "namespace" in keywords or len(call.args) > 1:
                self.elsewhere = self.elsewhere or call
        elif method == "set_defaults":
            if None in keywords:
                self.elsewhere = self.elsewhere or call
            for word, value in keywords.items():
                if word is not None:
                    self.declared[word] = (call.lineno, None)
                    self.set_by_name.setdefault(word, []).append(value)
        elif method == "add_argument":
            self._take_option(call, keywords)

    def _take_option(self, call: ast.Call, keywords: dict[Optional[str], ast.expr]) -> None:
        given = [a.value for a in call.args if isinstance(a, ast.Constant)]
        words = [word for word in given if isinstance(word, str)]
        long = [word for word in words if word.startswith("--")] or words
        if not long:
            return
        name = long[0].lstrip("-").replace("-", "_")
        dest = keywords.get("dest")
        if isinstance(dest, ast.Constant) and isinstance(dest.value, str):
            name = dest.value
        default = keywords.get("default")
        action = keywords.get("action")
        action_name = action.value if isinstance(action, ast.Constant) else None
        if default is None and action_name in ("store_true", "store_false"):
            default = ast.Constant(action_name == "store_false")
        required = keywords.get("required")
        nargs = keywords.get("nargs")
        may_lack = isinstance(nargs, ast.Constant) and nargs.value in ("?", "*")
        is_required = not (may_lack or words[0].startswith("-"))  # a positional one
        is_required = is_required or (required is not None and not _is(required, False))
        if None in keywords or is_required:
            default = None  # not known, or never taken
        if isinstance(default, ast.Constant) and isinstance(default.value, str):
            default = self._converted(default, keywords.get("type"))
        if name in self.declared:
            default = None  # of two parsers, or set elsewhere
        self.declared[name] = (call.lineno, default)

    def _converted(self, default: ast.Constant, type_: Optional[ast.expr]) -> Optional[ast.expr]:
        """Return what argparse makes of a default that is a text; None where a function does."""
        text = str(default.value)
        is_builtin = isinstance(type_, ast.Name) and not self._script.assignments(type_)
        word = type_.id if is_builtin and isinstance(type_, ast.Name) else ""
        if type_ is None or word == "str" or self._script.dotted(type_) == "pathlib.Path":
            return default
        try:
            if word in ("float", "int"):
                number = int(text) if word == "int" else float(text)
                return ast.copy_location(ast.Constant(number), default)
        except ValueError:
            pass
        return None


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
