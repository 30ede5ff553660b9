"""The options of a script: what argparse declares, and where the script itself may change them.

The default of an option is its value where the command line does not say another one, and where
nothing else in the script does. Whatever holds the options (a name, an argument of the script's own
functions, an attribute) is followed; a use that is not known only to read them counts as a change,
after which no default is taken. Single options that are set (`args.size = 9`) count by their names.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, Union

from .script_command_line import CommandLine
from .script_functions import FUNCTIONS, Function, Functions
from .script_given import LOGS, OF_NUMBERS, PURE
from .script_handed import Handed
from .script_parser import Parser
from .script_uses import Uses

if TYPE_CHECKING:
    from .script import Script

# A name in the scope that assigns it (None: one that is `global` somewhere), an attribute of any
# object (".NAME"), or what a function returns ("()"); and whether it is the options themselves, or
# something that holds them.
_Holder = tuple[Optional[ast.AST], str, bool]

# Methods of the options and of `vars(options)` that only look.
_LOOKS = {"_get_args", "_get_kwargs", "copy", "get", "items", "keys", "values"}
# Methods of others that only look at what they are given, or copy it.
_TAKES = {
    *LOGS, "add_hparams", "add_text", "format", "init_trackers", "log", "log_hyperparams",
    "log_params", "print", "save_hyperparameters", "update", "write", "writelines",
}  # fmt: skip
_READERS = (
    "argparse.Namespace", "copy.copy", "copy.deepcopy", "json.", "logging.", "mlflow.", "pickle.",
    "pprint.", "torch.save", "wandb.", "yaml.",
)  # fmt: skip
_COPIES = {
    "delattr", "dict", "dir", "enumerate", "format", "getattr", "hasattr", "iter", "list", "next",
    "reversed", "set", "setattr", "sorted", "tuple", "zip",
}  # fmt: skip
_ACCESS = {"delattr", "getattr", "hasattr", "setattr"}
# Methods of what holds the options beside other things: they change that alone.
_OF_HOLDERS = {"add", "append", "clear", "extend", "insert", "remove", "reverse", "sort", "update"}
_STARTS = ("spawn", "start_processes")  # the function gets the process's number first
_TESTS = (
    ast.Assert, ast.Compare, ast.Delete, ast.Expr, ast.FormattedValue, ast.If, ast.Raise,
    ast.UnaryOp, ast.While,
)  # fmt: skip
_PARTS = (
    ast.Dict, ast.DictComp, ast.GeneratorExp, ast.List, ast.ListComp, ast.Set, ast.SetComp,
    ast.Tuple,
)  # fmt: skip
_DEEPEST = 20


class _Changed(Exception):
    """A use that may change the options."""

    def __init__(self, node: ast.AST) -> None:
        super().__init__()
        self.node = node


class Options:
    """Knows the options of a script, and whether their defaults are their values."""

    def __init__(self, script: Script, uses: Uses) -> None:
        self._script = script
        self._uses = uses
        self._parser = Parser(script)
        self._functions = Functions(script, self._parser.set_by_name)
        self._command_line = CommandLine(script, self._functions)
        self._changed: Optional[ast.AST] = None
        self._is_followed = False  # whether `_changed` is known
        self._names: dict[str, list[ast.Name]] = {}
        self._by_scope: dict[str, dict[Optional[ast.AST], list[ast.Name]]] = {}
        self._attributes: dict[str, list[ast.Attribute]] = {}
        self._known: dict[tuple[Optional[ast.AST], str], bool] = {}  # names, results of functions
        self._is_parameter: dict[tuple[ast.AST, str], bool] = {}
        self._handed: dict[ast.arg, set[ast.AST]] = {}  # calls that hand the options over
        for node in script.nodes:
            if isinstance(node, ast.Name):
                self._names.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Attribute):
                self._attributes.setdefault(node.attr, []).append(node)

    def declared(self, node: ast.Attribute) -> Optional[ast.expr]:
        """Return the default of an option that `NAME.OPTION` may be, as it was declared."""
        if not isinstance(node.value, ast.Name):
            return None
        return self._parser.declared.get(node.attr, (0, None))[1]

    # --- what its value is

    def default(self, node: ast.expr) -> Optional[tuple[int, ast.expr]]:
        """Return line and default of the option that `args.NAME` reads; None where it is not
        known.
        """
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        line, default = self._parser.declared.get(node.attr, (0, None))
        if default is None or self.change() is not None or not self._are_options(node.value):
            return None
        if self._uses.attribute_changes(node.attr) or self._is_filled(node.attr, default):
            return None
        while self._handed_on.adds:
            call = self._handed_on.adds.pop()
            shown = self._script.source(call)
            note = f"{shown} is taken to add options; where it changes defaults, set those values"
            self._script.notes.append((call.lineno, note))
        return line, default

    def _is_filled(self, name: str, default: ast.expr) -> bool:
        """Tell whether a default that is a list and the like may be changed in place."""
        value = self._script.follow(default)
        if not isinstance(value, (ast.Dict, ast.List, ast.Set, ast.Tuple)):
            return False
        for use in self._attributes[name]:
            change, held = self._uses.use_of(use, value)
            if change is not None or any(self._uses.changes(alias) for alias in held):
                return True
        return False

    def why_not(self, node: ast.expr) -> str:
        """Return why the default of `args.NAME` is not known, where all of them are not; or ""."""
        is_option = isinstance(node, ast.Attribute) and self.declared(node) is not None
        change = self.change() if is_option else None
        line = getattr(change, "lineno", 0)
        return f" (line {line} may give the options other values)" if change is not None else ""

    def are(self, node: ast.expr) -> bool:
        """Tell whether a name is what parse_args() gave, whatever was changed in it since."""
        self.change()  # which follows them
        return isinstance(node, ast.Name) and self._are_options(node)

    def _are_options(self, node: ast.expr, depth: int = 0) -> bool:
        """Tell whether an expression is what parse_args() gave, and nothing else."""
        what: Optional[ast.AST] = None
        name = ""
        if isinstance(node, ast.Name) and not self._script.is_imported(node.id):
            what, name = self._scope(node), node.id
        elif isinstance(node, ast.Call):
            if node in self._parser.parsed:
                return True
            what = self._functions.named(node.func)
        if depth > _DEEPEST or (what is None and not name):
            return False
        if (what, name) not in self._known:
            self._known[what, name] = False  # in circles
            values = self._values(node, what)
            self._known[what, name] = bool(values) and all(
                self._are_given(value) if isinstance(value, ast.arg)
                else value is not None and self._are_options(value, depth + 1)
                for value in values
            )  # fmt: skip
        return self._known[what, name]

    def _values(
        self, node: ast.expr, function: Optional[ast.AST]
    ) -> list[Union[ast.expr, ast.arg, None]]:
        """Return what a name is assigned, or a call's function returns; None: not known."""
        script = self._script
        if isinstance(node, ast.Call) and function is not None:
            return [
                inner.value
                for inner in ast.walk(function)
                if isinstance(inner, ast.Return) and script.scope(inner) is function
            ]
        if not isinstance(node, ast.Name):
            return []
        scopes = {script.binding(node)}
        if self._scope(node) is None:  # global: whoever assigns it
            scopes = {script.binding(use) for use in self._names[node.id]}
        found = [pair for scope in scopes for pair in script.assigned(scope, node.id)]
        if len(scopes) > 1:
            found = [(value, place) for value, place in found if not isinstance(place, ast.arg)]
        return [
            place if isinstance(place, ast.arg) else value
            for value, place in found
            if value is None or not _is(value, None)
        ]

    def _are_given(self, parameter: ast.arg) -> bool:
        """Tell whether all calls of a function hand the options to a parameter."""
        function = self._script.parents[self._script.parents[parameter]]
        handed = self._handed.get(parameter)
        if not handed or not isinstance(function, FUNCTIONS):
            return False
        default = self._functions.default_of(function, parameter)
        if default is not None and not _is(default, None):
            return False
        for call in self._functions.calls_of(function):
            places: list[Union[int, str]] = [
                *range(len(call.args)), *(k.arg for k in call.keywords if k.arg is not None)
            ]  # fmt: skip
            is_other = any(self._functions.parameter(function, p) is parameter for p in places)
            is_open = len(places) < len(call.args) + len(call.keywords) or any(
                isinstance(argument, ast.Starred) for argument in call.args
            )
            if call not in handed and (is_other or is_open):
                return False
        return True

    # --- where they may be changed

    @functools.cached_property
    def _handed_on(self) -> Handed:
        """What the script hands its parsers to."""
        return Handed(self._script, self._functions)

    @functools.cached_property
    def _other_line(self) -> Optional[ast.AST]:
        """What gives the options another command line than the program's."""
        return self._command_line.change(self._parser.parsed)

    def parsed_otherwise(self) -> list[ast.Call]:
        """Return the calls of parse_args() where one may read another line than the program's."""
        return [] if self._other_line is None else self._parser.parsed

    def change(self) -> Optional[ast.AST]:
        """Return a place where the script may change its options, whichever; None without."""
        if not self._is_followed:
            self._is_followed = True
            changed = self._follow()
            places = (
                self._parser.elsewhere,
                self._uses.dynamic,
                self._other_line,
                self._handed_on.other,
                *self._uses.attribute_changes("default"),  # of an action of the parser
                changed,
            )
            self._changed = next((place for place in places if place is not None), None)
        return self._changed

    def _follow(self) -> Optional[ast.AST]:
        """Look at every use of what holds the options; return the first that may change them."""
        work: list[tuple[ast.expr, bool]] = [(call, True) for call in self._parser.parsed]
        seen: set[_Holder] = set()
        changed: Optional[ast.AST] = None
        while work:
            try:
                holders = self._use(*work.pop())
            except _Changed as found:
                changed = changed or found.node
                continue
            for holder in holders:
                if holder not in seen:
                    seen.add(holder)
                    work += [(use, holder[2]) for use in self._uses_of(holder)]
        return changed

    def _uses_of(self, holder: _Holder) -> Sequence[ast.expr]:
        scope, name, _ = holder
        parents = self._script.parents
        if name == "()" and scope is not None:
            return self._functions.calls_of(scope)
        if name.startswith("."):
            return [a for a in self._attributes.get(name[1:], []) if isinstance(a.ctx, ast.Load)]
        if name not in self._by_scope:
            self._by_scope[name] = {}
            for use in self._names.get(name, []):
                if isinstance(use.ctx, ast.Load) or isinstance(parents[use], ast.AugAssign):
                    self._by_scope[name].setdefault(self._scope(use), []).append(use)
        return self._by_scope[name].get(scope, [])

    def _scope(self, name: ast.Name) -> Optional[ast.AST]:
        scope = self._script.binding(name)
        if not self._script.is_outer(name.id):
            return scope
        if (scope, name.id) not in self._is_parameter:
            places = [place for _, place in self._script.assignments(name)]
            is_one = any(isinstance(place, ast.arg) for place in places)
            self._is_parameter[scope, name.id] = is_one
        return scope if self._is_parameter[scope, name.id] else None

    def _held(self, target: ast.expr, is_whole: bool) -> _Holder:
        """Return what holds the options once they are assigned to a target."""
        is_foreign = isinstance(target, ast.Name) and self._script.is_imported(target.id)
        if isinstance(target, ast.Name) and not is_foreign:
            return (self._scope(target), target.id, is_whole)
        if isinstance(target, ast.Attribute) and self._functions.is_own_object(target.value):
            return (None, f".{target.attr}", is_whole)
        if isinstance(target, ast.Subscript):
            return self._held(target.value, False)
        raise _Changed(target)

    def _use(self, use: ast.expr, is_whole: bool) -> list[_Holder]:
        """Return what holds the options by a use of them; raise _Changed."""
        held: list[_Holder] = []
        child: ast.AST = use
        inner: ast.AST = use  # the part of a list or the like
        while True:
            parent = self._script.parents[child]
            if self._only_looks(parent, child, is_whole):
                return held
            if isinstance(parent, ast.Attribute):
                above = self._script.parents[parent]
                is_called = isinstance(above, ast.Call) and above.func is parent
                if is_whole and parent.attr != "__dict__":
                    if is_called and parent.attr not in {*self._parser.declared, *_LOOKS}:
                        raise _Changed(above)
                    if parent.attr.startswith("__"):  # a method that is kept, its class
                        raise _Changed(parent)
                    return held
                if not isinstance(parent.ctx, ast.Load):
                    raise _Changed(parent)  # its __dict__
                child = above if is_called else parent
            elif isinstance(parent, ast.Subscript):
                child, is_whole = parent, True
            elif isinstance(parent, ast.Call):
                more = self._taken(parent, child, inner, is_whole)
                if more is not None:
                    return held + more
                child = parent
            elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                held += [self._held(target, is_whole) for target in targets]
                if not isinstance(parent, ast.NamedExpr):
                    return held
                child = parent
            elif isinstance(parent, ast.Return):
                function = self._script.scope(parent)
                if self._functions.is_wrapped(function):
                    raise _Changed(parent)
                held.append((function, "()", is_whole))
                if self._functions.is_method(function):  # or a property
                    held.append((None, f".{getattr(function, 'name', '')}", is_whole))
                return held
            elif isinstance(parent, ast.For) and not is_whole and child is parent.iter:
                return [*held, self._held(parent.target, True)]
            elif isinstance(parent, _PARTS):
                pair = self._paired(parent, child)
                if pair is not None:
                    return [*held, self._held(pair, is_whole)]
                child, inner, is_whole = parent, child, False
            elif isinstance(parent, (ast.BinOp, ast.BoolOp, ast.IfExp, ast.keyword)):
                child = parent
            else:
                raise _Changed(parent)

    def _only_looks(self, parent: ast.AST, child: ast.AST, is_whole: bool) -> bool:
        """Tell whether a use reads alone, and its result holds nothing; raise _Changed."""
        if isinstance(parent, _TESTS):
            return True
        if isinstance(parent, ast.Attribute) and not is_whole:
            call = self._script.parents[parent]
            is_called = isinstance(call, ast.Call) and call.func is parent
            return not isinstance(parent.ctx, ast.Load) or (
                is_called and parent.attr in _OF_HOLDERS
            )
        if isinstance(parent, ast.Subscript):
            is_read = isinstance(parent.ctx, ast.Load) or child is parent.slice
            if is_whole and not is_read:
                raise _Changed(parent)
            return is_whole or not is_read
        if isinstance(parent, ast.Call):
            return child is parent.func
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            return child is not parent.value
        if isinstance(parent, ast.IfExp):
            return child is parent.test
        if isinstance(parent, ast.Dict):
            return child in parent.keys
        if isinstance(parent, ast.BinOp):
            return is_whole or isinstance(parent.op, ast.Mod)
        if isinstance(parent, ast.keyword):
            return parent.arg is None and is_whole  # `**vars(args)` copies
        return is_whole and isinstance(parent, (ast.For, ast.Starred, ast.comprehension))

    def _paired(self, part: ast.AST, child: ast.AST) -> Optional[ast.expr]:
        """Return the target of `A, B = 1, OPTIONS`."""
        place = self._script.parents[part]
        targets = place.targets if isinstance(place, ast.Assign) else []
        if len(targets) == 1 and isinstance(part, (ast.List, ast.Tuple)):
            target = targets[0]
            if isinstance(target, (ast.List, ast.Tuple)) and len(target.elts) == len(part.elts):
                return target.elts[[id(item) for item in part.elts].index(id(child))]
        return None

    # --- what functions do with them

    def _taken(
        self, call: ast.Call, child: ast.AST, inner: ast.AST, is_whole: bool
    ) -> Optional[list[_Holder]]:
        """Return what holds the options in the function that a call hands them to; None where it
        is the call's result. Raise _Changed where it may change them.
        """
        script = self._script
        name = script.dotted(call.func)
        word = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if isinstance(call.func, ast.Name) and not name and not script.assignments(call.func):
            if any(k.arg == "key" and self._is_own(k.value) for k in call.keywords):
                raise _Changed(call)
            if not is_whole and word in OF_NUMBERS:
                return None
            if word in PURE or (is_whole and word in _COPIES):
                if word == "setattr" and child is not call.args[0]:
                    raise _Changed(call)
                return []
            if (word == "vars") if is_whole else (word in _COPIES - _ACCESS):
                return None
        if name.startswith(_READERS) or (name and word in {*LOGS, "from_argparse_args"}):
            return []
        place = child.arg if isinstance(child, ast.keyword) else call.args.index(child)  # type: ignore[arg-type]
        functions = self._functions.called(call)
        held = [self._handed_to(call, f, place, is_whole) for f in functions if place is not None]
        if any(held):
            return [holder for holder in held if holder is not None]
        started = self._started(call, child, inner, is_whole)
        if started is not None:
            return [started]
        if isinstance(call.func, ast.Attribute) and not name and not functions:
            if word in _TAKES and (is_whole or word != "update"):
                return []
            if word in _OF_HOLDERS:
                return [self._held(call.func.value, False)]
        raise _Changed(call)

    def _is_own(self, node: ast.expr) -> bool:
        """Tell whether a name is that of a function of the script, or of a value of it."""
        return isinstance(node, ast.Name) and bool(self._script.assignments(node))

    def _handed_to(
        self, call: ast.Call, function: Function, place: Union[int, str], is_whole: bool
    ) -> Optional[_Holder]:
        parameter = self._functions.parameter(function, place)
        if parameter is None:
            return None
        if self._functions.is_wrapped(function):
            raise _Changed(call)
        if is_whole:
            self._handed.setdefault(parameter, set()).add(call)
        return (function, parameter.arg, is_whole)

    def _started(
        self, call: ast.Call, child: ast.AST, inner: ast.AST, is_whole: bool
    ) -> Optional[_Holder]:
        """Return what holds the options in a function that a call is given to start with them:
        `spawn(FUNCTION, args=(OPTIONS,))`, `partial(FUNCTION, OPTIONS)`.
        """
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        functions = [
            (n, f) for n, f in enumerate(map(self._functions.named, given)) if f is not None
        ]
        if len(functions) != 1:
            return None
        number, function = functions[0]
        word = getattr(call.func, "attr", getattr(call.func, "id", ""))
        value = child.value if isinstance(child, ast.keyword) else child
        if not is_whole and isinstance(value, (ast.List, ast.Tuple)) and inner in value.elts:
            place = value.elts.index(inner) + (word in _STARTS)
            return self._handed_to(call, function, place, True)
        if is_whole and child in call.args:
            place = call.args.index(child) - number - 1
            return self._handed_to(call, function, place, True) if place >= 0 else None
        return None


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
