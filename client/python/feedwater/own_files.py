"""The files in which a user's own code stands.

A pickle has the names of functions and classes, and not what they do. So a digest of what is served
covers their files, too: of each module that the pickle names, of the user's own modules that those
import, and of the packages in which those lie. Nothing is imported for that, and no path is in it:
ranks, spawned processes and other hosts' checkouts of the same files have the same digest.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Optional

# They only say how values are pickled; hosts may have other builds of them.
_COMMON = {
    *getattr(sys, "stdlib_module_names", ()),  # Python 3.10
    *sys.builtin_module_names,
    "numpy",
    "torch",
    __package__,
}
MAINS = {"__main__", "__mp_main__"}  # the latter in a process that multiprocessing spawned
_STDLIB = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
# In a file that is not parsed.
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[ \t]*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)
_MOST_PARSED = 1 << 20  # bytes of a file: its tree has a hundred times as many
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # of statements in statements

# Of a statement: its level, its `from`, and the names that it imports.
_Import = tuple[int, str, list[str]]


def files_of(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the files of modules, and of those that they import, each with its digest.

    Parameters
    ----------
    modules : iterable of str
        Names. Of what they import, installed packages are left out.
    """
    named = {name for name in modules if name in MAINS or not _is_common(name)}
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    left = list(named)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        path, package = _place_of(name)
        left += _packages_from(package)  # which are imported with it
        if path is None or path in found or (_is_installed(path) and name not in named):
            continue
        try:
            text = _read(path)
        except OSError:
            continue
        found[path] = _digest_of(text)
        if path.endswith(".py") and not _is_installed(path):
            left += {other for other in _imported(text, package) if not _is_common(other)}
    return found


def digest_of(files: dict[str, bytes]) -> bytes:
    """Return a digest of files, wherever they lie."""
    return b"".join(sorted(set(files.values())))


def changed_since(files: dict[str, bytes]) -> list[str]:
    """Return which of the files have another content by now. One that is gone has none."""
    changed = []
    for path, digest in files.items():
        try:
            if _digest_of(_read(path)) != digest:
                changed.append(path)
        except OSError:
            continue
    return changed


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest_of(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def _packages_from(package: str) -> Iterator[str]:
    """Yield a package, and those in which it lies."""
    while package:
        yield package
        package = package.rpartition(".")[0]


def _is_common(name: str) -> bool:
    return name.partition(".")[0] in _COMMON


def _is_installed(path: str) -> bool:
    return path.startswith(_STDLIB) or not {"site-packages", "dist-packages"}.isdisjoint(
        path.split(os.sep)
    )


def _place_of(name: str) -> tuple[Optional[str], str]:
    """Return a module's file, and the package in which its relative imports begin."""
    spec = _spec_of(name)
    if spec is not None:
        is_package = spec.submodule_search_locations is not None
        path = spec.origin if spec.has_location else None
        return path, spec.name if is_package else spec.parent or ""
    module = sys.modules.get(name)
    return getattr(module, "__file__", None), getattr(module, "__package__", None) or ""


def _spec_of(name: str) -> Optional[ModuleSpec]:
    """Find a module without importing it."""
    folders, spec = None, None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        whole = ".".join(parts[:end])
        module = sys.modules.get(whole)
        spec = getattr(module, "__spec__", None)
        if spec is None and (module is not None or (end > 1 and folders is None)):
            return None
        try:
            spec = spec or PathFinder.find_spec(whole, folders)
        except (ImportError, KeyError, AttributeError, ValueError):  # of what is not imported yet
            return None
        if spec is None:
            return None
        folders = spec.submodule_search_locations
    return spec


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Yield the names of what a file may import, by any of its statements."""
    for level, base, names in _statements(text):
        if level:
            parents = package.split(".") if package else []
            if level > len(parents):
                continue
            base = ".".join([*parents[: len(parents) - level + 1], *filter(None, [base])])
        if base:
            yield base
            yield from (f"{base}.{name}" for name in names)  # each of which may be a module
        else:
            yield from names


def _statements(text: bytes) -> Iterable[_Import]:
    if len(text) <= _MOST_PARSED:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what Python has said when it imported it
                return _parsed(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # of another version of Python, or no text
    return _matched(text)


def _parsed(tree: ast.AST) -> list[_Import]:
    """Return a file's imports. Expressions, most of a tree, have none."""
    found: list[_Import] = []
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found.append((0, "", [alias.name for alias in node.names]))
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.name != "*"]
            found.append((node.level, node.module or "", names))
        else:
            for block in _BLOCKS:
                if block != "body" or not _is_for_checkers(node):
                    left += getattr(node, block, ())
    return found


def _is_for_checkers(node: ast.AST) -> bool:
    """Tell whether a statement is `if TYPE_CHECKING:`, whose body never runs."""
    test = getattr(node, "test", None)
    if isinstance(test, ast.Attribute):
        is_typings = isinstance(test.value, ast.Name) and test.value.id == "typing"
        return is_typings and test.attr == "TYPE_CHECKING"
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _matched(text: bytes) -> Iterator[_Import]:
    for where, names, plain in _IMPORT.findall(text):
        if plain:
            modules = re.findall(rb"(?:^|,)[ \t]*([\w.]+)", plain)
            yield 0, "", [name.decode("utf-8", "replace") for name in modules]
            continue
        base = where.decode("utf-8", "replace").replace(" ", "").replace("\t", "")
        level = len(base) - len(base.lstrip("."))
        found = [name.decode("utf-8", "replace") for name in re.findall(rb"\w+", names)]
        yield level, base[level:], found
