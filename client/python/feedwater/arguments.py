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
    "plugins": "the daemon has them, `plugins:` in its feedwater.yaml. A private daemon has none: "
    "start feedwaterd with a file of your own, and say `address=`",
}


# The same of `Loader.from_dataset`.
OF_A_DATASET = {
    "sampler": "the daemon gives the order: `shuffle=`, `seed=`. Records of another order, or with "
    "weights: number them so in the dataset's own `__getitem__`",
    "batch_sampler": "`batch_size=`, `shuffle=` and `drop_last=` give the batches",
    "num_workers": "it is called `workers`",
    "collate_fn": "a batch has each value of the samples as one array, a `Ragged` where rows "
    "differ; ops on whole batches stand in a `Pipeline` over `serve_source`",
    "pin_memory": ELSEWHERE["pin_memory"],
    "pin_memory_device": ELSEWHERE["pin_memory_device"],
    "worker_init_fn": "what is random is seeded for each record; open files in `__getitem__` at "
    "first use",
    "multiprocessing_context": "the processes are forked from one that was started afresh",
    "generator": ELSEWHERE["generator"],
    "prefetch_factor": ELSEWHERE["prefetch_factor"],
    "persistent_workers": "the processes stay until the loader is closed",
    "in_order": ELSEWHERE["in_order"],
    "plugins": ELSEWHERE["plugins"],
    "pipeline": "the dataset stands in its place; what the daemon does to samples is `graph=`",
}


def refuse_arguments(
    unnamed: Sequence[Any],
    others: Mapping[str, Any],
    known: Set[str],
    elsewhere: Mapping[str, str] = ELSEWHERE,
    what: str = "feedwater.Loader",
) -> None:
    """Raise TypeError for an argument of Loader that it does not have, with the place of what a
    DataLoader's one would say, and for one without its name.
    """
    if unnamed:
        raise TypeError(
            "feedwater.Loader takes the pipeline alone without a name, so write "
            f"`batch_size={unnamed[0]!r}`"
        )
    for name in (one for one in others if one not in known):
        where = elsewhere.get(name)
        if where is None:
            close = difflib.get_close_matches(name, sorted(known), 1)
            where = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
        raise TypeError(f"{what} has no argument {name!r}: {where}")


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
