"""What may have changed a value of a script between its assignment and a loader: every use of a
name in the whole script, where a use that is not known only to read counts as a change.

A value that is held by another (a list by a Compose, that by a dataset, that by a dict) can be
changed through it, too; so the uses of whatever may hold it are looked at as well.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Optional, Union

from .script_dynamic import Dynamic, is_self
from .script_given import HOLDERS, Given
from .script_inner import Inner
from .torchvision_transforms import TRANSFORMS

if TYPE_CHECKING:
    from .script import Script

# A name in the scope that assigns it; an attribute of `self` in its class.
Variable = tuple[Union[ast.AST, None], str, bool]

# Methods that only look, and whose results cannot be used to change what they looked at.
_READS = {
    "astype", "clone", "count", "extra_repr", "float", "index", "item", "keys", "max", "mean",
    "min", "numel", "set_epoch", "size", "std", "sum", "target_transform", "tolist", "transform",
    "unique", "__len__",
}  # fmt: skip
# Methods that only look, but whose results may hold parts of what they looked at.
_VIEWS = {"copy", "get", "items", "numpy", "reshape", "unsqueeze", "values", "view", "__getitem__"}
# Attributes of datasets that decide nothing once they are made.
_IDLE = {
    "__doc__", "__module__", "__name__", "__qualname__", "class_to_idx", "classes", "device",
    "dtype", "ndim", "root", "shape", "split", "train",
}  # fmt: skip
# Attributes of datasets with entries that cannot be changed.
_RECORDS = {"data", "imgs", "samples", "targets"}
# Attributes that hold what can be changed, and are no methods.
_PARTS = {
    *_RECORDS, "T", "__class__", "data_source", "dataset", "datasets", "sampler",
    *(word for transform in TRANSFORMS.values() for word in transform.parameters),
    "target_transform", "transform", "transforms",
}  # fmt: skip
_LOOKS = (
    ast.Assert, ast.Compare, ast.Delete, ast.Expr, ast.FormattedValue, ast.If, ast.JoinedStr,
    ast.UnaryOp, ast.While,
)  # fmt: skip


class Uses:
    """Finds what may change the values of a script's names."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._names: dict[str, list[ast.Name]] = {}
        self._attributes: dict[str, list[ast.Attribute]] = {}
        self._outer: dict[str, ast.AST] = {}  # names of `global` and `nonlocal`
        self._dynamic = Dynamic(script)
        self._given = Given(script)
        self._inner = Inner(script)
        self._known: dict[tuple[Variable, bool], list[ast.AST]] = {}
        for node in script.nodes:
            if isinstance(node, ast.Name):
                self._names.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Attribute):
                self._attributes.setdefault(node.attr, []).append(node)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                self._outer.update(dict.fromkeys(node.names, node))

    def is_outer(self, name: str) -> bool:
        """Tell whether a function assigns a name of what is around it."""
        return name in self._outer

    def changes(self, node: ast.expr, is_loaders: bool = False) -> list[ast.AST]:
        """Return where the value of a name, or of `self.NAME`, may be changed.

        Parameters
        ----------
        node : ast.expr
            A use of it.
        is_loaders : bool
            It is a sampler, or another thing that loaders alone look at: it may be handed around.
        """
        variable = self._variable(node)
        if variable is None:
            return []
        found = self._known.get((variable, is_loaders))
        if found is None:
            found = self._known[variable, is_loaders] = self._find(variable, is_loaders)
        return found

    @property
    def dynamic(self) -> Optional[ast.AST]:
        """Where exec() or globals() may do anything with names of the module."""
        return self._dynamic.place

    def use_of(self, use: ast.expr, value: ast.expr) -> tuple[Optional[ast.AST], list[ast.expr]]:
        """Return what a use of a list, or the like, changes, and what holds it from then on."""
        parts = value.elts if isinstance(value, (ast.List, ast.Set, ast.Tuple)) else [value]
        if not _is_load(use):
            return None, []
        return self._use(use, self._is_plain(parts), False)[:2]

    def attribute_changes(self, name: str) -> list[ast.AST]:
        """Return where an attribute of any object but `self` may be set: of options."""
        found: list[ast.AST] = [
            node
            for node in self._attributes.get(name, [])
            if not isinstance(node.ctx, ast.Load) and not is_self(node.value)
        ]
        return found + self._dynamic.sets(name)

    def stores(self, name: str) -> list[ast.Attribute]:
        """Return where an attribute of any object is set."""
        return [node for node in self._attributes.get(name, []) if not _is_load(node)]

    # --- variables

    def _variable(self, node: ast.AST) -> Optional[Variable]:
        script = self._script
        if isinstance(node, ast.Name):
            return (script.binding(node), node.id, False)
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return (script.class_of(node), node.attr, True)
        return None

    def _values(self, variable: Variable) -> list[tuple[Optional[ast.expr], ast.AST]]:
        scope, name, is_of_self = variable
        if is_of_self:
            return self._script.set_in_class(scope, name)
        return self._script.assigned(scope, name)

    def _uses(self, variable: Variable) -> list[ast.expr]:
        """Return the uses of a variable, and those that may be."""
        scope, name, is_of_self = variable
        if not is_of_self:
            names = [n for n in self._names.get(name, []) if self._script.binding(n) is scope]
            # Of a class, which is read as CLASS.NAME, too.
            is_class = isinstance(scope, ast.ClassDef)
            return [*names, *(self._attributes.get(name, []) if is_class else [])]
        return [n for n in self._attributes.get(name, []) if not self._is_elsewhere(n, scope)]

    def _is_elsewhere(self, node: ast.Attribute, owner: Optional[ast.AST]) -> bool:
        """Tell whether an attribute is one of `self` in a class that has to do with no other."""
        return is_self(node.value) and self._is_of_other(node, owner)

    def _is_of_other(self, node: ast.AST, owner: Optional[ast.AST]) -> bool:
        """Tell whether a node stands in a class that has to do with no other."""
        other = self._script.class_of(node)
        if other is None or owner is None:
            return False
        return not self._script.classes.are_related(other, owner)

    # --- values

    def _is_plain(self, roots: list[ast.expr]) -> bool:
        """Tell whether values are numbers, texts and the like, or not known at all: nothing in
        them can be changed.
        """
        stack, seen = list(roots), set()
        while stack:
            node = stack.pop()
            variable = self._variable(node)
            if variable is not None:
                if variable not in seen:
                    seen.add(variable)
                    stack += [value for value, _ in self._values(variable) if value is not None]
            elif isinstance(node, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)):
                return False
            elif isinstance(node, ast.Call):
                name = self._script.dotted(node.func)
                if name.startswith((*HOLDERS, "torch.utils.")):
                    return False
            elif isinstance(node, ast.Attribute):
                default = self._script.options.declared(node)
                stack += [] if default is None else [default]
            elif isinstance(node, (ast.Tuple, ast.BinOp, ast.IfExp, ast.BoolOp)):
                stack += [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
        return True

    def _has_plain_entries(self, variable: Variable) -> bool:
        """Tell whether a variable is a list or dict of which each entry is plain."""
        for value, _ in self._values(variable):
            if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
                entries = value.elts
            elif isinstance(value, ast.Dict) and None not in value.keys:
                entries = value.values
            else:
                return False
            if not self._is_plain(entries):
                return False
        return True

    # --- changes

    def _find(self, start: Variable, is_loaders: bool) -> list[ast.AST]:
        script = self._script
        scope, name, is_of_self = start
        assigned = self._values(start)
        if not is_of_self and name in self._outer:
            return [self._outer[name]]
        if not is_of_self and assigned and scope is script.tree and self.dynamic is not None:
            return [self.dynamic]
        found: list[ast.AST] = [p for _, p in assigned if isinstance(p, ast.AugAssign)]
        if is_of_self:
            found += self._sets(start)
        found += self._stored_outside(start)
        values = [value for value, _ in assigned if value is not None]
        if self._is_plain(values):
            return found
        # Variables, and whether a dataset holds the value in them: what it does with its records
        # is nothing to its transform.
        work = [(start, False)]
        seen = set(work)
        is_loaded = False
        while work:
            variable, is_part = work.pop()
            if variable is not start and variable[2]:
                found += self._sets(variable)
            found += self._stored_outside(variable)
            has_plain = self._has_plain_entries(variable)
            aliases = [
                (other, is_part)
                for _, place in self._values(variable)
                if isinstance(place, ast.Assign) and len(place.targets) > 1
                for other in place.targets
            ]
            for use in self._uses(variable):
                if not _is_load(use) or (is_part and self._is_of_records(use)):
                    continue
                change, held, loaded = self._use(use, has_plain, is_loaders)
                found += [] if change is None else [change]
                is_given = is_part or self._is_in_dataset(use)
                aliases += [(name_held, is_given) for name_held in held]
                is_loaded = is_loaded or loaded
            found += self._add(aliases, work, seen)
            if is_loaded and not work:
                is_loaded = False
                found += self._through_loaders(work, seen)
        return list(dict.fromkeys(found))

    def _add(
        self,
        aliases: list[tuple[ast.expr, bool]],
        work: list[tuple[Variable, bool]],
        seen: set[tuple[Variable, bool]],
    ) -> list[ast.AST]:
        """Add variables that are to be looked at; return where functions assign them."""
        found: list[ast.AST] = []
        for alias, is_part in aliases:
            variable = self._variable(alias)
            if variable is None:
                continue
            if not isinstance(self._script.parents[alias], ast.AugAssign):  # that adds it
                found += self._augmented(variable)
            if (variable, is_part) in seen:
                continue
            seen.add((variable, is_part))
            work.append((variable, is_part))
            if not variable[2] and variable[1] in self._outer:
                found.append(self._outer[variable[1]])
        return found

    def _augmented(self, variable: Variable) -> list[ast.AST]:
        """Return where `NAME += ...` changes in place what a variable holds."""
        places = [place for _, place in self._values(variable)]
        statements = [p if isinstance(p, ast.stmt) else self._script.parents[p] for p in places]
        return [place for place in statements if isinstance(place, ast.AugAssign)]

    def _stored_outside(self, variable: Variable) -> list[ast.AST]:
        """Return where `CLASS.NAME` is set of what the body of a class assigns."""
        if variable[2] or not isinstance(variable[0], ast.ClassDef):
            return []
        return [use for use in self._attributes.get(variable[1], []) if not _is_load(use)]

    def _is_of_records(self, use: ast.AST) -> bool:
        parent = self._script.parents[use]
        return isinstance(parent, ast.Attribute) and parent.attr in _RECORDS

    def _is_in_dataset(self, use: ast.AST) -> bool:
        """Tell whether a value is given to a dataset of torchvision's."""
        parent: Optional[ast.AST] = self._script.parents[use]
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Call) and self._script.dotted(parent.func).startswith(
                "torchvision.datasets."
            ):
                return True
            parent = self._script.parents.get(parent)
        return False

    def _sets(self, variable: Variable) -> list[ast.AST]:
        """Return where an attribute of `self` is set, but by its own class."""
        own = {id(place) for _, place in self._values(variable)}
        found: list[ast.AST] = [
            use for use in self._uses(variable) if not _is_load(use) and id(use) not in own
        ]
        found += (
            node for node in self._dynamic.of_self() if not self._is_of_other(node, variable[0])
        )
        if variable[0] is not None:
            found += self._script.classes.properties(variable[0], variable[1])
        return found + self._dynamic.sets(variable[1])

    def _through_loaders(
        self, work: list[tuple[Variable, bool]], seen: set[tuple[Variable, bool]]
    ) -> list[ast.AST]:
        """Return changes of any `LOADER.dataset`, and note what else holds it."""
        found: list[ast.AST] = list(self._inner.kept)
        for use, _ in self._inner.places:
            change, held, _ = self._use(use, False, False)
            found += [] if change is None else [change]
            found += self._add([(alias, False) for alias in held], work, seen)
        return found

    def _use(
        self, use: ast.expr, has_plain: bool, is_loaders: bool
    ) -> tuple[Optional[ast.AST], list[ast.expr], bool]:
        """Return what a use changes, what holds its value from then on, and whether loaders do."""
        script = self._script
        held: list[ast.expr] = []
        child: ast.AST = use
        attribute = ""
        while True:
            parent = script.parents[child]
            if isinstance(parent, ast.Attribute):
                call = script.parents[parent]
                if not isinstance(parent.ctx, ast.Load):
                    return parent, held, False
                if isinstance(call, ast.Call) and call.func is parent:
                    if parent.attr in _READS:
                        return None, held, False
                    if parent.attr not in _VIEWS:
                        return call, held, False
                    if has_plain:
                        return None, held, False
                    child = call
                    continue
                if parent.attr not in _PARTS and not is_loaders:
                    is_read = parent.attr in _IDLE | _READS
                    is_read = is_read or (has_plain and parent.attr in _VIEWS)
                    return (None if is_read else parent), held, False
                attribute, has_plain, child = parent.attr, False, parent
                continue
            if isinstance(parent, ast.Subscript):
                if child is parent.slice:
                    return None, held, False
                if not isinstance(parent.ctx, ast.Load):
                    return parent, held, False
                if has_plain or (child is use and self._is_dataset(use)):
                    return None, held, False  # a dataset makes its samples anew
                child = parent
                continue
            if isinstance(parent, ast.keyword):
                if parent.arg is None and has_plain:
                    return None, held, False
                child = parent
                continue
            if isinstance(parent, ast.Call) and child is not parent.func:
                is_new = has_plain or attribute in _RECORDS - {"data"}
                is_new = is_new or (child is use and self._is_dataset(use))
                kind = "none" if is_loaders else self._given.does(parent, has_plain, is_new)
                if kind == "held":
                    has_plain, child = False, parent
                    continue
                return (parent if kind == "change" else None), held, kind == "loaded"
            if isinstance(parent, (ast.Call, *_LOOKS)):
                return None, held, False
            if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
                if isinstance(parent, ast.AugAssign) and has_plain:
                    return None, held, False
                if child is not parent.value:  # an annotation
                    return None, held, False
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                for target in targets:
                    owners = _owners(target)
                    if owners is None:
                        return parent, held, False
                    held += owners
                if isinstance(parent, ast.NamedExpr):
                    child = parent
                    continue
                return None, held, False
            if isinstance(parent, ast.IfExp) and child is parent.test:
                return None, held, False
            if isinstance(parent, ast.Dict) and child in parent.keys:
                return None, held, False
            if isinstance(parent, ast.BinOp) and has_plain:
                return None, held, False
            if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
                if child is not parent.iter or has_plain:
                    return None, held, False
                if attribute in _RECORDS or (child is use and self._is_dataset(use)):
                    return self._changed_entry(parent.target), held, False
                return parent, held, False
            if is_loaders:
                return None, held, False
            if isinstance(parent, (
                ast.BinOp, ast.BoolOp, ast.Dict, ast.DictComp, ast.GeneratorExp, ast.IfExp,
                ast.List, ast.ListComp, ast.Set, ast.SetComp, ast.Starred, ast.Tuple,
            )):  # fmt: skip
                has_plain = has_plain and isinstance(parent, ast.Starred)
                child = parent
                continue
            return parent, held, False

    def _changed_entry(self, target: ast.expr) -> Optional[ast.AST]:
        """Return where what a loop gets of records is changed in place: a row of an array, say."""
        for name in ast.walk(target):
            variable = self._variable(name)
            for use in self._uses(variable) if variable is not None else []:
                parent = self._script.parents[use]
                if isinstance(parent, ast.AugAssign) and parent.target is use:
                    return parent
                if isinstance(parent, ast.Attribute) and parent.attr.endswith("_"):
                    return parent
                is_owner = isinstance(parent, (ast.Attribute, ast.Subscript)) and (
                    parent.value is use and not _is_load(parent)
                )
                if is_owner:
                    return parent
        return None

    def _is_dataset(self, use: ast.expr) -> bool:
        variable = self._variable(use)
        values = [value for value, _ in self._values(variable)] if variable is not None else []
        return bool(values) and all(
            isinstance(value, ast.Call)
            and self._script.dotted(value.func).startswith("torchvision.datasets.")
            for value in values
        )


def _is_load(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _owners(target: ast.expr) -> Optional[list[ast.expr]]:
    """Return the names that hold what is assigned to a target; None where none does."""
    if isinstance(target, ast.Name):
        return [target]
    if isinstance(target, ast.Attribute):
        return [target] if is_self(target.value) else None
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _owners(target.value)
    if isinstance(target, (ast.Tuple, ast.List)):
        found: list[ast.expr] = []
        for item in target.elts:
            owners = _owners(item)
            if owners is None:
                return None
            found += owners
        return found
    return None
