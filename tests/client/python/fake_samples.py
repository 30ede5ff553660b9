"""The samples of the fake daemon's pipeline ``numbers``.

The record at position i of epoch e is ``(7 i + 3 e) mod N``. Every element of ``image`` is
``1000 * epoch + record`` plus its index in the sample divided by 1000.
"""

from __future__ import annotations

import numpy as np

OUTPUTS = (
    ("image", "float32", (3, 4, 5), "CHW"),
    ("label", "int64", (), "plain"),
    ("sample_id", "int64", (), "plain"),
    ("position", "int64", (), "plain"),
    ("is_real", "bool", (), "plain"),
    ("half", "bfloat16", (2,), "plain"),
    ("pixels", "uint8", (40, 50, 3), "HWC"),
)


def record_at(position: int, epoch: int, records: int) -> int:
    """Return the record at a position of an epoch."""
    return (7 * position + 3 * epoch) % records


def sample(name: str, position: int, epoch: int, records: int, is_real: bool = True):
    """Return one output of a sample as it must arrive."""
    record = record_at(position % records, epoch, records)
    if name == "image":
        return (1000 * epoch + record + np.arange(60).reshape(3, 4, 5) / 1000).astype(np.float32)
    if name == "half":  # bfloat16 of small whole numbers, as bits
        values = np.array([record, epoch], dtype=np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    if name == "pixels":
        return np.full((40, 50, 3), (record + epoch) % 251, dtype=np.uint8)
    scalars = {
        "label": record % 10,
        "sample_id": record,
        "position": position % records,
        "is_real": is_real,
    }
    return scalars[name]
