"""What programs expect of a torch DataLoader beside its batches: attributes that trainers look at,
and arguments that are given elsewhere here.
"""

from __future__ import annotations

import contextlib
import difflib
import weakref
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

_ELSEWHERE = {
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
        where = _ELSEWHERE.get(name)
        if where is None:
            close = difflib.get_close_matches(name, sorted(known), 1)
            where = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known))}"
        raise TypeError(f"feedwater.Loader has no argument {name!r}: {where}")


class _Settable(Protocol):
    def set_epoch(self, epoch: int) -> None: ...


class Sampler:
    """Stands where a DistributedSampler would.

    ``len`` is this rank's share of an epoch's samples.
    """

    def __init__(self, loader: _Settable, samples: int) -> None:
        self._loader = weakref.proxy(loader)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __iter__(self) -> Iterator[int]:
        raise TypeError(
            "the order is the daemon's: `outputs: [..., sample_id]` gives each batch's records, "
            "and `feedwater ledger` those of any step"
        )

    def set_epoch(self, epoch: int) -> None:
        """As `Loader.set_epoch`; nothing where the loader is gone."""
        with contextlib.suppress(ReferenceError):
            self._loader.set_epoch(epoch)


class BatchSampler:
    """Stands where a DataLoader's BatchSampler would, for trainers that look for its sampler.

    ``len`` is the steps of an epoch. It cannot be iterated: the daemon gives the order, and a
    DataLoader that a wrapper makes of these parts would read the records once more, in its own way.
    """

    def __init__(self, sampler: Sampler, batch_size: int, steps: int, drop_last: bool) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "a feedwater.Loader gives this rank's batches itself, so no other loader can be made "
            "of its parts. Use it as it is (accelerator.prepare() leaves it so, with "
            "Loader(device=accelerator.device) its batches are where they are needed), and instead "
            "of skip_first_batches(loader, n) call loader.skip(0, n - 1)"
        )


class DataLoaderHabits:
    """The attributes of a DataLoader that say how it is made: trainers read them, and here they
    have one answer.
    """

    num_workers = 0  # no processes of the program's own
    pin_memory = False
    pin_memory_device = ""
    timeout = 0.0
    collate_fn = None
    worker_init_fn = None
    generator = None
    prefetch_factor = None
    persistent_workers = False
    multiprocessing_context = None

    batch_sampler: BatchSampler

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank. It cannot be set, as a DataLoader's cannot."""
        return self.batch_sampler.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out what does not fill a batch on every rank."""
        return self.batch_sampler.drop_last
