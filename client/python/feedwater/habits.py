"""What programs expect of a torch DataLoader beside its batches: attributes that trainers look
at.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from .layout import epoch_positions

if TYPE_CHECKING:
    from .feed import Feed


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
    in_order = True

    batch_sampler: BatchSampler
    _feed: Feed

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank. It cannot be set, as a DataLoader's cannot."""
        return self.batch_sampler.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out what does not fill a batch on every rank."""
        return self.batch_sampler.drop_last

    @property
    def has_uneven_batches(self) -> bool:
        """Whether an epoch's last batches have other sizes on other ranks."""
        facts = self._feed.stream.facts
        return (
            facts.last == "partial"
            and self._feed.place.world_size > 1
            and epoch_positions(facts) % self._feed.global_batch % self._feed.place.world_size != 0
        )

    @property
    def has_scattered_padding(self) -> bool:
        """Whether an epoch's last batches have padding that is not at the end of all ranks' batches
        one after the other.
        """
        facts = self._feed.stream.facts
        return (
            facts.last == "pad"
            and facts.shard == "interleave"
            and self._feed.place.world_size > 1
            and epoch_positions(facts) % self._feed.global_batch != 0
        )

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the epoch's last batch was the last one returned, for Accelerate."""
        at = self._feed.position
        return at.at_epoch_end or not (at.fresh or at.has_rest)

    @property
    def remainder(self) -> int:
        """How many samples of the epoch's last global batch, the last one returned, are no
        padding, as Accelerate counts them: 0 where it is full, -1 where padding, if any, is not at
        the end of all ranks' batches.
        """
        if self._feed.stream.facts.last != "pad" or self.has_scattered_padding:
            return -1
        if not self._feed.position.at_epoch_end:
            return 0
        return self._feed.position.last_samples % self._feed.global_batch
