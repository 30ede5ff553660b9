"""The arguments of `Loader`: those that stand elsewhere than a DataLoader's, and what numbers may
be.
"""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

from . import errors

# Where what an argument of a DataLoader says is said here.
ELSEWHERE = {
    "dataset": "the pipeline's `dataset:` says what is read",
    "shuffle": "the pipeline's `sampler: {shuffle: none | block | full}` says it",
    "sampler": "the pipeline's `sampler:` gives the order",
    "batch_sampler": "the pipeline's `sampler:` and `batch:` give the batches",
    "num_workers": "the daemon's workers serve all loaders; `cpus` in feedwater.yaml says how many",
    "collate_fn": "the pipeline's `outputs:`, and its `batch: {graph: [...]}`, make the batch",
    "pin_memory": "batches come in shared memory; `device=` copies each one to a device",
    "pin_memory_device": "`device=` copies each batch to a device",
    "drop_last": "the pipeline's `sampler: {last: drop | pad | partial}` says it",
    "timeout": "`reconnect_timeout=` is how long a daemon may be away",
    "worker_init_fn": "there are no worker processes; `seed=` decides what is random",
    "multiprocessing_context": "there are no worker processes",
    "generator": "`seed=` decides what is random",
    "prefetch_factor": "`slots=` is the number of batches in shared memory",
    "persistent_workers": "the daemon goes on from one epoch to the next",
    "in_order": "batches always come in order",
}


def refuse_arguments(unnamed: Sequence[Any], others: Mapping[str, Any], known: Set[str]) -> None:
    """Raise TypeError for an argument of Loader that it does not have, with the place of what a
    DataLoader's one would say, and for one without its name.
    """
    if unnamed:
        raise TypeError(
            "feedwater.Loader takes the pipeline alone without a name, so write "
            f"`batch_size={unnamed[0]!r}`"
        )
    for name in others:
        where = ELSEWHERE.get(name)
        if where is None:
            close = difflib.get_close_matches(name, sorted(known), 1)
            where = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
        raise TypeError(f"feedwater.Loader has no argument {name!r}: {where}")


def integer(name: str, value: Any) -> Any:
    """Return an int, or None for None."""
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise errors.InvalidArgument(f"{name} is {value!r}: it is an integer") from None


def epoch_number(value: Any) -> int:
    """Return the number of an epoch."""
    epoch = integer("epoch", value)
    if not 0 <= epoch < 1 << 63:
        raise errors.InvalidArgument(f"epoch is {epoch}: it is 0 or more")
    return epoch


def protects_memory() -> bool:
    """Return the default of ``debug_protect``."""
    return os.environ.get("FEEDWATER_DEBUG_PROTECT", "0") not in ("", "0")
