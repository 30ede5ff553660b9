"""`LoaderPosition`: the calls of a `Loader` that tell where it stands and move it."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Optional, Union

from . import errors
from .arguments import epoch_number, integer
from .cursor import Cursor
from .feed import BegunBatch, Feed
from .position import Consumed
from .stream import Batch, Failure


class LoaderPosition(ABC):
    """A feed's place in the order, for one process, one thread at a time and one iteration at a
    time.

    Parameters
    ----------
    feed : Feed
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._iteration = 0
        self._failure: Optional[Failure] = None  # what the present iteration ended with

    @abstractmethod
    def _take_over(self) -> None:
        """Take what the daemon of the feed's stream says: the feed has another one."""

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, or of the last one when its iteration has not ended.

        Where an iteration was left within an epoch, this is that epoch, and the next ``for`` begins
        the one behind it, unless ``set_epoch`` says otherwise.
        """
        return self._feed.position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for``, from its beginning.

        Nothing happens when the loader stands in that epoch and nothing has been taken since it was
        opened, loaded with a state, or finished the epoch before: so a program may call this before
        every epoch, after resuming inside one too. But a batch that could not be made is tried
        again. An iteration of which nothing has been taken
        goes on in that epoch, as with a DataLoader's sampler; any other one ends.
        """
        epoch = epoch_number(epoch)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            begun = not self._feed.position.fresh
            self._failure = None
            if not self._feed.position.choose_epoch(epoch):
                return
            if begun:
                self._end_iteration()
            self._feed.settle()

    def state_dict(self) -> dict[str, Any]:
        """Return the position: it counts the batches that were returned, no more, no less.

        Returns
        -------
        dict
            JSON-serialisable, at most 1 KiB. It fits a loader with any rank, world size and batch
            size of the same dataset, pipeline and seed; of an iterable dataset, with the same world
            size. What `skip` leaves out further on is part of it.
        """
        return self._feed.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken: the next ``for`` runs the rest of its epoch, or the
        next epoch where none of it is left. Where `set_epoch` then says the state's epoch, its rest
        is what the ``for`` runs, even an empty one.

        Raises
        ------
        InvalidArgument
            It is no state, or damaged.
        FailedPrecondition
            It belongs to another dataset, pipeline or seed, or to another world size of an iterable
            dataset; the text names which.
        """
        cursor = Cursor.from_state(state)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            facts = self._feed.stream.facts
            about = ""
            if facts.own_workers:  # whose number is part of the dataset's digest
                cursor.check_same_world(facts.world_size)
                about = (
                    ". An iterable dataset is another one with other workers= (here "
                    f"{facts.own_workers // facts.world_size} on each rank), length= (here "
                    f"{facts.records}), fields or version="
                )
            cursor.check_same_source(facts.dataset_digest, facts.pipeline_digest, facts.seed, about)
            self._feed.position.load(
                Consumed(cursor.epoch, cursor.position, cursor.substituted, cursor.skip)
            )
            self._end_iteration()
            self._feed.settle()

    def skip(self, first: int, last: int, *, epoch: Optional[int] = None) -> None:
        """Leave out steps `first` to `last`, both included: those of a loss spike, say.

        Every rank must do so. It may be done before an iteration or in the midst of one, and holds
        for what is still to come: a range that has been passed is forgotten. Until then it is part
        of `state_dict`. With another world size or batch size the same samples are left out, and
        the rest of a batch that would reach into them.

        Steps count as `batch_info` tells them, so ranks need not ask at the same moment: the step
        of a batch is the position where it begins, in whole batches of all ranks. An epoch that was
        resumed inside counts from the state's position, and behind a range that a state of other
        batches left out from the range's end, also when that is passed.

        Parameters
        ----------
        first, last : int
            Steps of the epoch, from 0, as this loader's world size and batch size count them.
        epoch : int, optional
            Default: the epoch of the next batch.

        Raises
        ------
        InvalidArgument
            No such steps, or more than 8 ranges at a time.
        """
        first, last = integer("first", first), integer("last", last)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            self._check_place()
            self._feed.touched = True  # steps count as world size and batch size make them
            at = self._feed.position
            at.skip(first, last, at.next_epoch if epoch is None else epoch_number(epoch))

    def replay(self, step: int, *, epoch: Optional[int] = None) -> Any:
        """Return a batch once more, or ahead of its time: this rank's part of a step.

        It is the same bytes as in the iteration. The position does not change, and a running
        iteration goes on where it was; the daemon begins anew there, which costs about as many
        batches as there are slots. Steps count as for `skip`; those of an epoch that the position
        has left count from its beginning, also where it was resumed inside.

        Parameters
        ----------
        step : int
            Step of the epoch, from 0, as this loader's world size and batch size count them.
        epoch : int, optional
            Default: `epoch`, that of the present iteration.

        Raises
        ------
        InvalidArgument
            No such step.
        BadSample
            As when the batch came in its turn.
        """
        step = integer("step", step)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            self._check_place()
            self._feed.touched = True
            of_epoch = self.epoch if epoch is None else epoch_number(epoch)
            try:
                got = self._feed.receive_step(of_epoch, step)
                if isinstance(got, Failure):
                    raise self._error_of(got)
                return self._show(got)
            except errors.Error:
                raise
            except BaseException:  # interrupted: what comes next is not known
                self._feed.forget()
                raise

    @abstractmethod
    def _error_of(self, failure: Failure) -> errors.Error:
        """Return the error of a batch that could not be made."""

    # --- what the calls share ---------------------------------------------------------------------

    def _check_process(self) -> None:
        """Refuse a forked child: before the lock, which a thread of the parent may have had."""
        if os.getpid() != self._pid:
            raise errors.FailedPrecondition(
                f"this loader belongs to process {self._pid}: a forked child makes its own "
                "feedwater.Loader"
            )

    def _check_place(self, may_move: bool = True) -> None:
        stream = self._feed.stream
        try:
            self._feed.check_place(may_move)
        finally:
            if self._feed.stream is not stream:  # it has moved
                self._take_over()
                self._end_iteration()

    def _show(self, batch: Union[Batch, BegunBatch]) -> Any:
        return self._feed.show(batch)

    def _end_iteration(self) -> None:
        self._failure = None
        self._iteration += 1
