"""What programs expect of a torch DataLoader beside its batches: attributes that trainers look
at.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from .layout import epoch_positions

if TYPE_CHECKING:
    from .feed import Feed


_log = logging.getLogger("feedwater")
_warned: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders


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


class Step:
    """Stands for a batch of the loader in the hands of a DataLoader that was made of its parts."""

    __slots__ = ("_number", "_run")

    def __init__(self, run: _Run, number: int) -> None:
        self._run = run
        self._number = number

    def take(self) -> Any:
        """Return the batch."""
        return self._run.take(self._number)

    def __len__(self) -> NoReturn:
        raise TypeError(_ONE_LOADER)

    def __iter__(self) -> NoReturn:
        raise TypeError(_ONE_LOADER)


class _Run:
    """The rest of an epoch, step by step. The first ones may be left out."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._epoch = iter(loader)
        self._first = self._next = 0
        self._resumed_at = 0  # the step of a state that was loaded

    def steps(self, end: int) -> Iterator[Step]:
        feed = self._loader._feed
        feed.leave_end()
        self._first = self._next = feed.next_step
        self._resumed_at = feed.position.step(feed.position.consumed.position)
        for number in range(self._first, end):
            if self._has_begun and not feed.position.has_rest:
                break  # fewer are left than of whole batches: some are skipped, say
            yield Step(self, number)
        if not feed.position.has_rest:
            next(self._epoch, None)  # the loader learns that the epoch is over
        elif not self._has_begun:
            self._warn_of_skipping_twice(end)

    def take(self, number: int) -> Any:
        if number > self._next and not self._has_begun:
            self._warn_of_skipping_twice(number)
            self._loader.skip(self._next, number - 1)
        elif number != self._next:
            raise TypeError(_ONE_LOADER)
        self._next = number + 1
        return next(self._epoch)

    @property
    def _has_begun(self) -> bool:
        return self._next > self._first

    def _warn_of_skipping_twice(self, number: int) -> None:
        """Say that steps before `number` are left out behind those of a state."""
        if self._resumed_at > 0 and self._loader not in _warned:
            _warned.add(self._loader)
            _log.warning(
                "%d steps of %s are left out behind a state that was loaded. The state already "
                "stands at step %d: skip_first_batches(loader, 0) leaves out none",
                number - self._first,
                self._loader.pipeline,
                self._resumed_at,
            )


_ONE_LOADER = (
    "a feedwater.Loader gives this rank's batches itself, so no other loader can share them out "
    "once more. Use it as it is (accelerator.prepare() leaves it so, with "
    "Loader(device=accelerator.device) its batches are where they are needed; Ray's workers need "
    "no prepare_data_loader())"
)


class BatchSampler:
    """Stands where a DataLoader's BatchSampler would.

    ``len`` is the steps of an epoch. What comes of it are `Step`s: a DataLoader that is made of
    them and of ``loader.dataset`` gives the loader's own batches. So Accelerate's
    ``skip_first_batches``, and a Trainer of transformers that resumes, leave out the steps that
    they mean to, and nothing is read for these.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    @property
    def sampler(self) -> Sampler:
        """The loader's."""
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out what does not fill a batch on every rank."""
        return self._loader.drop_last

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Step]:
        return _Run(self._loader).steps(len(self))

    def set_epoch(self, epoch: int) -> None:
        """As `Loader.set_epoch`."""
        self._loader.set_epoch(epoch)


def _as_it_is(batch: Any) -> Any:
    return batch


class DataLoaderHabits:
    """The attributes of a DataLoader that say how it is made: trainers read them, and here they
    have one answer.
    """

    num_workers = 0  # no processes of the program's own
    pin_memory = False
    pin_memory_device = ""
    timeout = 0.0
    collate_fn = staticmethod(_as_it_is)
    worker_init_fn = None
    generator = None
    prefetch_factor = None
    persistent_workers = False
    multiprocessing_context = None
    in_order = True

    _feed: Feed

    def __getitem__(self, index: Any) -> Any:
        """Raise TypeError: a DataLoader was made of the loader, or a batch is asked for by number.

        torch asks so of what is no IterableDataset.
        """
        raise TypeError(
            "a feedwater.Loader gives batches in their order, and stands in a DataLoader's place: "
            "write `for batch in loader`, not DataLoader(loader) nor loader[0]. loader.dataset[i] "
            "is a record's path and label, loader.replay() a step's batch again"
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return the loader itself: NumPy takes what has numbers and a length for a sequence, and
        would take all of an epoch's batches.
        """
        one = np.empty((), dtype=object)
        one[()] = self
        return one

    @property
    def batch_sampler(self) -> BatchSampler:
        """What other loaders can be made of that give the same batches."""
        return BatchSampler(self)  # kept by whoever asks, and keeps the loader

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank. It cannot be set, as a DataLoader's cannot."""
        return self._feed.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out what does not fill a batch on every rank."""
        return bool(self._feed.stream.facts.last == "drop")

    @property
    def is_rank_of_launch(self) -> bool:
        """Whether a launcher or a process group made it one rank of several."""
        place = self._feed.place
        return place.world_size > 1 and place.source is not None

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
