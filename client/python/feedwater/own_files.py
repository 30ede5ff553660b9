"""The files in which a user's own code stands.

A pickle has the names of functions and classes, and not what they do. So a digest of what is served
covers their files, too: of each module that the pickle names, and of the user's own modules that
those import. Nothing is imported for that, and no path is in it: ranks, spawned processes and other
hosts' checkouts of the same files have the same digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
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
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[ \t]*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+([^\n#;]+))",
    re.MULTILINE,
)


def digest_of_files(modules: Iterable[str]) -> bytes:
    """Return a digest of the files of modules, and of those that they import.

    Parameters
    ----------
    modules : iterable of str
        Names. Of what they import, installed packages are left out.
    """
    named = [name for name in modules if name in MAINS or not _is_common(name)]
    found: set[bytes] = set()
    seen, left = set(named), list(named)
    while left:
        name = left.pop()
        path, package = _place_of(name)
        if path is None or (_is_installed(path) and name not in named):
            continue
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            continue
        found.add(hashlib.blake2b(text, digest_size=16).digest())
        if path.endswith(".py") and not _is_installed(path):
            new = {other for other in _imported(text, package) if not _is_common(other)} - seen
            seen |= new
            left += new
    return b"".join(sorted(found))


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
    for where, names, plain in _IMPORT.findall(text):
        if plain:
            for name in re.findall(rb"(?:^|,)[ \t]*([\w.]+)", plain):
                yield name.decode("utf-8", "replace")
            continue
        base = where.decode("utf-8", "replace").replace(" ", "").replace("\t", "")
        level = len(base) - len(base.lstrip("."))
        if level:
            parents = package.split(".") if package else []
            if level > len(parents):
                continue
            base = ".".join([*parents[: len(parents) - level + 1], *filter(None, [base[level:]])])
        yield base
        for name in re.findall(rb"\w+", names):
            yield f"{base}.{name.decode('utf-8', 'replace')}"  # which may be a module
