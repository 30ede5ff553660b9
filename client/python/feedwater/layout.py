"""What a daemon says about a stream: its outputs, their places in a slot, and whether a daemon that
came back says the same as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Optional

from . import errors
from .control import DTYPE_NAMES
from .fields import Field, Place

# Of an OpenStreamResponse, what holds for the whole life of a stream. Left out is what a daemon may
# choose anew each time: where production starts, how many slots there are, its own version.
_FACTS = (
    "pipeline",
    "dataset_digest",
    "pipeline_digest",
    "seed",
    "batch_size",
    "world_size",
    "records",
    "steps_per_epoch",
    "samples_per_epoch",
)


def epoch_positions(facts: Any) -> int:
    """Return how many positions the order of an epoch has, by an OpenStreamResponse: the records
    of the dataset, or of a mix what its `stop` says.
    """
    return int(facts.positions_per_epoch or facts.records)  # an earlier daemon has no mixes


def outputs(facts: Any) -> Iterator[tuple[Field, Place]]:
    """Yield each output of an OpenStreamResponse and its place.

    Raises
    ------
    Error
        A type that this client does not know, or a place that is not inside a slot.
    """
    for f in facts.fields:
        dtype = DTYPE_NAMES.get(f.dtype, "unspecified")
        if dtype == "unspecified":
            raise errors.Error(
                f"output {f.name!r} has type {f.dtype}, which this client does not know"
            )
        shape: tuple[Optional[int], ...] = tuple(f.shape)
        if f.max_rows > 0 and shape[:1] == (-1,):
            shape = (None, *shape[1:])
        field = Field(dtype, shape, f.layout, f.doc, f.max_rows)
        place = Place(f.name, field, f.offset, f.offsets_offset)
        end = place.offset + facts.batch_size * place.sample_bytes
        if place.offsets is not None:
            offsets_end = place.offsets.offset + (facts.batch_size + 1) * place.offsets.sample_bytes
            end = max(end, offsets_end)
        ragged = field.max_rows > 0 and field.shape[:1] == (None,)
        if (field.max_rows != 0 and not ragged) or (
            min(place.shape, default=1) < 0 or end > facts.slot_bytes
        ):
            raise errors.Error(f"output {f.name!r} {field!r} does not fit into a slot")
        yield field, place


def check_same(now: Any, before: Any) -> None:
    """Compare two OpenStreamResponses of one stream.

    Everything that a program may have read from the first, and that decides which bytes of a slot
    are whose, must be in the second as it was.

    Raises
    ------
    FailedPrecondition
        Names the first difference.
    """
    difference = _difference(now, before)
    if difference is not None:
        what, new, old = difference
        raise errors.FailedPrecondition(
            f"the daemon came back with another {what}: {new} instead of {old}. Load the state "
            "into a new loader, which refuses it if the data are others"
        )


def _difference(now: Any, before: Any) -> Optional[tuple[str, Any, Any]]:
    for name in _FACTS:
        new, old = getattr(now, name), getattr(before, name)
        if new != old:
            return name, new, old
    new, old = now.own_identity, before.own_identity  # which a daemon of before it does not tell
    if new and old and new != old:
        return "own_identity", new, old
    for number, (new, old) in enumerate(zip_longest(now.classes, before.classes)):
        if new != old:
            return f"class {number}", repr(new), repr(old)
    for number, (new, old) in enumerate(zip_longest(now.fields, before.fields)):
        if new is None or old is None or new.name != old.name:
            names = [None if f is None else repr(f.name) for f in (new, old)]
            return f"output {number}", names[0], names[1]
        for part in ("dtype", "shape", "layout", "offset", "max_rows", "offsets_offset"):
            a, b = getattr(new, part), getattr(old, part)
            if a != b:
                a, b = (_shown(part, value) for value in (a, b))
                return f"{part} of output {new.name!r}", a, b
    # Last: where it differs, what made it so is of more use.
    if now.slot_bytes != before.slot_bytes:
        return "slot_bytes", now.slot_bytes, before.slot_bytes
    return None


def _shown(part: str, value: Any) -> Any:
    if part == "dtype":
        return DTYPE_NAMES.get(value, value)
    return list(value) if part == "shape" else value
