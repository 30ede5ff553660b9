"""Counts as people write them."""

from __future__ import annotations


def count_of(number: int, what: str) -> str:
    """Return ``1 record``, ``2 records``, ``0 batches``."""
    many = "es" if what.endswith(("s", "ch")) else "s"
    return f"{number} {what}{'' if number == 1 else many}"
