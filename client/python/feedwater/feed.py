"""`Feed`: a loader's stream, kept where the program is, and its batches in the program's form."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import errors
from .agreement import Agreement
from .crc32c import crc32c
from .fields import Field, Place
from .layout import epoch_positions, outputs
from .ordinals import Ordinal
from .outputs import Begun, Converter
from .placement import RankPlacement, is_apart, placement, process_group, process_key
from .position import EpochShape, Position
from .ragged import arrays
from .spill import Spill, lendable
from .statistics import Replaced, Statistics
from .stream import Batch, Failure, Stream, StreamOptions
from .wire import HAS_CRC, Ready

_log = logging.getLogger("feedwater")


class BegunBatch(NamedTuple):
    """A batch that is on its way to the device before the program has asked for it."""

    ready: Ready
    begun: Begun


Got = Union[Batch, BegunBatch, Failure]


class _Pending(NamedTuple):
    """What was received ahead, and the epoch and position where it stands."""

    at: tuple[int, int]
    got: Got


class Feed:
    """The stream of one rank, behind the rules of position.

    It stands below `Loader`, which has the lock, the process that it belongs to, and the iteration.
    An interrupt (Ctrl-C) may come between any two steps: the position counts what the program was
    given, and what was received beyond that is forgotten and comes again.

    Parameters
    ----------
    options : StreamOptions
        Without what follows from the place.
    place : RankPlacement
    job_suffix : str, optional
        Of a default job name, which depends on the place.
    ordinal : Ordinal, optional
        That this name has. Once there is a feed, it gives it back itself.
    place_is_settled : bool
        The program gave rank and world size. Else each process group that is initialised later has
        a say.
    converter : callable
        Makes the `Converter` of the stream's outputs.
    """

    def __init__(
        self,
        options: StreamOptions,
        place: RankPlacement,
        *,
        job_suffix: Optional[str],
        ordinal: Optional[Ordinal],
        place_is_settled: bool,
        converter: Callable[[Sequence[Place]], Converter],
    ) -> None:
        self.place_is_settled = place_is_settled
        self.statistics = Statistics()
        self._replaced = Replaced()
        self.touched = False  # something was taken or left out
        self._job_suffix = job_suffix
        self._ordinal = ordinal
        self._converter = converter
        self._spill = Spill()
        self._pending: Optional[_Pending] = None
        self._agreement = Agreement(is_apart(place_is_settled, place), place.world_size)
        try:
            self._open(options, place)
        except BaseException:
            self._agreement.withdraw()
            raise
        facts = self.stream.facts
        self.position = Position(self._epoch_shape(), facts.epoch, facts.position)

    # --- its place --------------------------------------------------------------------------------

    def _open(self, options: StreamOptions, place: RankPlacement) -> None:
        """Open the stream of a rank."""
        job = options.job
        if self._job_suffix is not None:
            job = (place.job or process_key()) + self._job_suffix
        try:
            self.stream = Stream(
                replace(options, job=job, rank=place.rank, world_size=place.world_size)
            )
        except errors.AlreadyExists as error:
            nobody_said = place.source is None and not self.place_is_settled
            if self._job_suffix is None or not nobody_said or place.job is None:
                raise
            raise errors.AlreadyExists(
                f"{error}. It is another child of this process's parent, and the two do "
                "not know of one another: initialise the process group before the loader is made, "
                "or give both rank and world_size; or a job of its own to each, where they do not "
                "belong together"
            ) from None
        self._finalizer = weakref.finalize(self, Stream.close, self.stream, False)
        try:
            described = list(outputs(self.stream.facts))
            self.fields: dict[str, Field] = {place.name: field for field, place in described}
            self._places = tuple(place for _, place in described)
            self.place = place
            self._convert = self._converter(self._places)
            self._agreement.check(place, self.stream.facts)
        except BaseException:
            self._end_stream()
            raise

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._finalizer.alive

    @property
    def is_withdrawn(self) -> bool:
        """The loader could not be made, or was refused."""
        return self._agreement.is_withdrawn

    def withdraw(self) -> None:
        """Forget a loader that could not be made. After `close` the next one has its numbers."""
        self._agreement.withdraw()

    def check_open(self) -> None:
        """Raise FailedPrecondition after `close`."""
        if not self.is_open:
            raise errors.FailedPrecondition("the loader is closed")

    def close(self) -> None:
        """End the stream. May be called again."""
        try:
            if self._finalizer.alive:
                self._pending = None
                self._convert.close()
        finally:  # a device that has failed says so at every call
            self._end_stream()
            if self.is_withdrawn and self._ordinal is not None:
                self._ordinal.give_back()

    def _end_stream(self) -> None:
        if self._finalizer.detach() is not None:
            self.stream.close()

    @property
    def batch_size(self) -> int:
        """Samples a batch on this rank."""
        return int(self.stream.facts.batch_size)

    @property
    def steps(self) -> int:
        """Steps of a whole epoch on this rank."""
        return int(self.stream.facts.steps_per_epoch)

    @property
    def next_step(self) -> int:
        """The step of the epoch where the position stands."""
        return self.position.step(self.position.wanted[1])

    @property
    def global_batch(self) -> int:
        """Samples of a step on all ranks."""
        return self.place.world_size * self.batch_size

    def _epoch_shape(self) -> EpochShape:
        facts = self.stream.facts
        positions = epoch_positions(facts)
        return EpochShape(positions, self.steps, self.global_batch, facts.last == "drop")

    def check_place(self, may_move: bool = True) -> None:
        """Compare the rank with what a process group says that was initialised since.

        A stream of which nothing has been taken moves to the place that it has there: it is
        another one then.
        """
        if may_move and self.is_open:
            self._agreement.check(self.place, self.stream.facts)
        if self.place_is_settled:
            return
        group = process_group()
        old = self.place
        if group is None or (group.rank, group.world_size) == (old.rank, old.world_size):
            return
        made = f"made as rank {old.rank} of {old.world_size}"
        if not may_move or self.touched:
            raise errors.FailedPrecondition(
                f"this loader was {made}, before the process group was initialised; now "
                f"{group}. It has been used, so it stays what it is: make the loader after the "
                "group, or give both rank and world_size"
            )
        self.check_open()
        place = placement()
        at = self.stream.cursor(*self.position.consumed)
        self._drop_pending()
        self.close()
        try:
            self._open(self.stream.options, place)
        except BaseException:
            self.withdraw()
            self.close()
            raise
        facts = self.stream.facts
        at.check_same_source(facts.dataset_digest, facts.pipeline_digest, facts.seed)
        self.position.reshape(self._epoch_shape())
        _log.warning(
            "a loader of %s was %s, before the process group was initialised: it is rank "
            "%d of %d now, with %d steps an epoch. Make it after the group to be rid of this.",
            facts.pipeline,
            made,
            place.rank,
            place.world_size,
            self.steps,
        )

    # --- what comes next --------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the stream go on where the program does, behind what is left out."""
        if not self.steps:
            return
        epoch, position = self.position.wanted
        pending = self._pending
        if pending is not None:
            if pending.at == (epoch, position):
                return
            self._drop_pending()
        self.stream.seek(epoch, position)

    def leave_end(self) -> None:
        """Begin the next epoch where a state was loaded behind which nothing of its own is left."""
        at = self.position
        if at.resumed and not at.has_rest:
            at.begin_epoch(at.epoch)

    def receive(self) -> Optional[Got]:
        """Receive what is next in the epoch; None where it has nothing left."""
        while True:
            got = self._receive()
            epoch = (got.failed if isinstance(got, Failure) else got.ready).epoch
            if epoch <= self.position.consumed.epoch:
                return got
            self._pending = _Pending((epoch, 0), got)
            del got
            if not self.position.resumed:
                return None
            self.position.begin_epoch(epoch)  # the state was of the epoch's end

    def receive_step(self, epoch: int, step: int) -> Union[Batch, Failure]:
        """Receive a step of any epoch. The position does not change."""
        position = self.position.begin_of(epoch, step)
        self._drop_pending()
        self._let_go()
        self.stream.seek(epoch, position)
        got = self._await()
        if isinstance(got, Batch) and got.ready.epoch != epoch:
            raise errors.InvalidArgument(
                f"epoch {epoch} has no step {step} behind the place where it was resumed"
            )
        return got

    def look_ahead(self) -> None:
        """Begin the copy of the next batch to the device, if it is there already and there is one.

        Nothing is taken by that: a batch that the program then does not ask for is forgotten.
        """
        at = self.stream.next_at
        if not self._convert.copies_ahead or self._pending is not None or at is None:
            return
        if self.stream.held() >= lendable(self.stream.slots):
            return
        got = self.stream.receive_ready()
        if isinstance(got, Batch):
            try:
                self._pending = _Pending(at, BegunBatch(got.ready, self._begin(got)))
            except errors.Error:
                pass  # it comes again, in its turn
            except RuntimeError:  # the device's, whose memory is full, say: begun in its turn
                self._pending = _Pending(at, got)
        elif got is not None:
            self._pending = _Pending(at, got)

    def took(self, batch: Union[Batch, BegunBatch]) -> None:
        """Count a batch that the program gets."""
        ready = batch.ready
        self.touched = True
        self.statistics.delivered(ready)
        self._replaced.took(ready, self.stream.facts.pipeline, self.stream.options.address)
        self.position.take(ready.epoch, ready.next_position, ready.last_in_epoch, ready.substituted)

    def forget(self) -> None:
        """Forget what was received and not taken: it comes again."""
        self._pending = None
        self.stream.forget_place()

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self.forget()

    def rest(self) -> None:
        """Give back what copies to the device have read: no batch is asked for in a while."""
        self._convert.let_go()

    def _let_go(self) -> None:
        self._convert.let_go(wait=self.stream.held() >= lendable(self.stream.slots))

    def _receive(self) -> Got:
        self._let_go()
        self.settle()
        pending, self._pending = self._pending, None
        return self._await() if pending is None else pending.got

    def _await(self) -> Union[Batch, Failure]:
        """Wait for what the stream has next."""
        try:
            got = self.stream.receive()
        except errors.DaemonLost as error:
            error.state = self.state()
            raise
        self.statistics.received(got, self.stream.waited_ns)
        return got

    def state(self) -> dict[str, Any]:
        """Return the position, as `Loader.state_dict` gives it."""
        return self.stream.cursor(*self.position.consumed).to_state()

    # --- what the program gets --------------------------------------------------------------------

    def show(self, batch: Union[Batch, BegunBatch]) -> Any:
        """Return the outputs of a batch, without counting it."""
        return self._convert.finish(
            batch.begun if isinstance(batch, BegunBatch) else self._begin(batch)
        )

    def _begin(self, batch: Batch) -> Begun:
        ready = batch.ready
        if ready.samples > self.batch_size:
            raise errors.Error(
                f"the daemon lent {ready.samples} samples in a slot for {self.batch_size}"
            )
        if self.stream.options.verify:
            self._check_sum(batch)
        if self._must_spill(batch):
            copy = self._spill.copy(batch.lease, self._places, ready.samples)
            return self._convert.begin(copy, ready.samples)
        return self._convert.begin(batch.lease, ready.samples)

    def _must_spill(self, batch: Batch) -> bool:
        """Tell whether the batch that was just received is to be copied: it has the last slot."""
        lent = lendable(self.stream.slots)
        if self.stream.held() <= lent:
            return False
        self._spill.look_for_cycles()
        size = sum(
            array.nbytes
            for place in self._places
            for array in arrays(batch.lease, place, batch.ready.samples)
        )
        return self.stream.held() > lent and self._spill.has_room(size)

    def _check_sum(self, batch: Batch) -> None:
        ready = batch.ready
        if not ready.flags & HAS_CRC:
            raise errors.Error("verify=True, but the daemon sent no checksum")
        value = 0
        for place in self._places:
            for array in arrays(batch.lease, place, ready.samples):
                value = crc32c(array.reshape(-1).view(np.uint8).data, value)
        if value != ready.crc32c:
            self.stream.forget_place()
            raise errors.ChecksumMismatch(
                f"the batch of epoch {ready.epoch}, step {ready.step} does not fit its checksum: "
                f"{value:#010x} instead of {ready.crc32c:#010x}"
            )

    def report(self) -> dict[str, Any]:
        """Return what `Loader.stats` does."""
        return {
            **self.statistics.report(),
            "held": self.stream.held(),
            "slots": self.stream.slots,
            "spilled": self._spill.batches,
            "reconnects": self.stream.reconnects,
        }
