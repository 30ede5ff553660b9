"""Counts and sizes as people write them."""

from __future__ import annotations

import re

_UNITS = {
    **{"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"PB": 10**15, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40},
    "PiB": 1 << 50,
}


def count_of(number: int, what: str) -> str:
    """Return ``1 record``, ``2 records``, ``0 batches``."""
    many = "es" if what.endswith(("s", "ch")) else "s"
    return f"{number} {what}{'' if number == 1 else many}"


def bytes_of(text: str, otherwise: float) -> float:
    """Return the bytes of ``16GiB`` or ``512 MB``; `otherwise` where the text is no size."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2] not in _UNITS:
        return otherwise
    return float(found[1]) * _UNITS[found[2]]
