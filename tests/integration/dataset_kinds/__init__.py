"""Datasets of every format, of files that can change: one class each, in this folder's modules.

The formats are those of the reference: test_changed_datasets.py fails until a format that comes
later has a class.
"""

from __future__ import annotations

import importlib
import pkgutil

from daemon_process import BUILD

from .kind import KINDS

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

ALL_DATASETS = dict(KINDS)
HAS_COLUMNAR = (BUILD / "bin/feedwater-columnar").exists()
DATASETS = {
    name: kind for name, kind in ALL_DATASETS.items() if HAS_COLUMNAR or not kind.is_unpacked
}
