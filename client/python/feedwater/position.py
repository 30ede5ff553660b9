"""The rules of position: epochs, cursors, skipped steps. No input or output.

How steps count: G samples make a step on all ranks. The step of a batch that begins at a position
is ``position // G``. Step s of an epoch begins at ``A % G + s * G``, where A is the place that the
epoch's steps count from: its beginning, or the position of the state that was loaded inside it; and
from step ``E // G`` on A is the end E of a range that is left out, because behind it the iteration
goes on at E (where E is the epoch's end, nothing comes behind). These ranges are those of the state
that was loaded. What `skip` leaves out later begins and ends with steps, so it moves none: every
rank counts alike before, amid and behind what it leaves out, whenever it asks. An epoch that is
begun anew counts from its beginning, so what is left out of it by then counts as a state's.

`tests/conformance/positions.json` is the table of cases that this class and the C++ client's
(client/cpp/position.h) both pass.
"""

from __future__ import annotations

from typing import NamedTuple

from .cursor import Skips, add_skip, after_skips, forget_passed
from .errors import InvalidArgument
from .units import count_of


class EpochShape(NamedTuple):
    """What an epoch is made of: records, steps, and the samples of a step on all ranks."""

    records: int
    steps: int
    global_batch: int
    drop_last: bool


class Consumed(NamedTuple):
    """What has been taken: `position` samples of the world's order of `epoch`, of which, and of all
    epochs before, `substituted` were; and what is left out further on.
    """

    epoch: int
    position: int
    substituted: int = 0
    skips: Skips = ()


class _At(NamedTuple):
    """All that a `Position` knows, replaced as a whole: an interrupt leaves the old or the new."""

    consumed: Consumed
    counted_from: int  # the place that the steps of this epoch count from
    ranges: Skips  # of the state: behind each of them steps count from its end
    last_begin: int  # the position of the last batch that was taken
    at_epoch_end: bool = False
    fresh: bool = True
    resumed: bool = False


class Position:
    """Where a program stands in the order of its job."""

    def __init__(self, shape: EpochShape, epoch: int, position: int) -> None:
        self._shape = shape
        self._at = _At(Consumed(epoch, position), 0, (), position)
        self.reshape(shape)

    def reshape(self, shape: EpochShape) -> None:
        """Stand at the same position of a job of another world size."""
        self._shape = shape
        self._move(self.consumed, self.consumed.skips, self.resumed)

    # --- where it is ------------------------------------------------------------------------------

    @property
    def consumed(self) -> Consumed:
        """What a saved state tells."""
        return self._at.consumed

    @property
    def at_epoch_end(self) -> bool:
        """Whether the epoch's last batch was taken."""
        return self._at.at_epoch_end

    @property
    def fresh(self) -> bool:
        """Whether nothing was taken since the position was moved."""
        return self._at.fresh

    @property
    def resumed(self) -> bool:
        """Whether a state was loaded, and since then nothing taken and no epoch chosen."""
        return self._at.resumed

    @property
    def wanted(self) -> tuple[int, int]:
        """Epoch and position where the next batch begins: behind what is left out."""
        epoch, position, _, skips = self.consumed
        if self.at_epoch_end:
            epoch, position = epoch + 1, 0
        return epoch, after_skips(skips, epoch, position, self._shape.global_batch)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, or of the last one where that ended its epoch."""
        return self.consumed.epoch + (self.resumed and not self.has_rest)

    @property
    def next_epoch(self) -> int:
        """The epoch of the next batch."""
        return self.epoch + self.at_epoch_end

    @property
    def has_rest(self) -> bool:
        """Whether a batch of this epoch is still to come."""
        epoch, position = self.wanted
        left = self._shape.records - position
        least = self._shape.global_batch if self._shape.drop_last else 1
        return epoch == self.consumed.epoch and left >= least

    @property
    def last_samples(self) -> int:
        """The samples of the last batch that was taken, on all ranks; no padding counts."""
        return min(self._shape.records - self._at.last_begin, self._shape.global_batch)

    def begin_of(self, epoch: int, step: int) -> int:
        """Return the position where a step of an epoch begins, or would if it was not left out."""
        if not 0 <= step < self._shape.steps:
            raise InvalidArgument(
                f"step {step} is not one of the {self._shape.steps} steps of an epoch, which count "
                "from 0"
            )
        return self._place_of(epoch, step)

    def step(self, position: int) -> int:
        """Return the step that begins at a position."""
        return position // self._shape.global_batch

    # --- what moves it ----------------------------------------------------------------------------

    def take(self, epoch: int, next_position: int, is_last: bool, substituted: int = 0) -> None:
        """Count a batch of an epoch, behind which the next one begins at `next_position`."""
        wanted_epoch, begin = self.wanted
        before = self.consumed
        if epoch == before.epoch:
            counted_from, ranges = self._at.counted_from, self._at.ranges
        else:
            counted_from, ranges = 0, forget_passed(self._at.ranges, epoch, 0)
        self._at = _At(
            Consumed(
                epoch,
                next_position,
                before.substituted + substituted,
                forget_passed(before.skips, epoch, next_position),
            ),
            counted_from,
            ranges,
            last_begin=begin if epoch == wanted_epoch else 0,
            at_epoch_end=is_last,
            fresh=False,
        )

    def begin_epoch(self, epoch: int) -> None:
        """Stand at the beginning of an epoch."""
        ranges = self._at.ranges
        if epoch == self.consumed.epoch:
            later = tuple(one for one in ranges if one[0] > epoch)
            ranges = tuple(one for one in self.consumed.skips if one[0] == epoch) + later
        self._move(self.consumed._replace(epoch=epoch, position=0), ranges)

    def choose_epoch(self, epoch: int) -> bool:
        """Stand at the beginning of an epoch, unless nothing of it has been taken since the
        position was moved there. Returns whether it has moved.
        """
        if self.fresh and epoch == self.consumed.epoch:
            self._at = self._at._replace(resumed=False)
            return False
        self.begin_epoch(epoch)
        return True

    def load(self, consumed: Consumed) -> None:
        """Stand where a state was saved."""
        if consumed.position > self._shape.records:
            raise InvalidArgument(
                f"the state's position {consumed.position} is outside the epoch of "
                f"{count_of(self._shape.records, 'record')}"
            )
        self._move(consumed, consumed.skips, resumed=True)

    def skip(self, first: int, last: int, epoch: int) -> None:
        """Leave out steps of an epoch, both included."""
        begin = self.begin_of(epoch, first)
        end = self.begin_of(epoch, last) + self._shape.global_batch
        end = min(end, self._place_of(epoch, last + 1), self._shape.records)
        if first > last:
            raise InvalidArgument(f"steps {first} to {last} are no range: the first comes first")
        if begin >= self._shape.records:
            raise InvalidArgument(
                f"epoch {epoch} has no step {first} behind the place where it was resumed"
            )
        at = self.consumed
        skips = add_skip(at.skips, epoch, begin, end)
        skips = forget_passed(skips, at.epoch, at.position)
        self._at = self._at._replace(consumed=at._replace(skips=skips))

    def _move(self, consumed: Consumed, ranges: Skips, resumed: bool = False) -> None:
        epoch, position = consumed.epoch, consumed.position
        self._at = _At(
            consumed._replace(skips=forget_passed(consumed.skips, epoch, position)),
            # Behind the end of an epoch no step is to come, and its place tells nothing.
            position if position < self._shape.records else 0,
            forget_passed(ranges, epoch, position),
            last_begin=position,
            resumed=resumed,
        )

    def _place_of(self, epoch: int, step: int) -> int:
        """Return where a step of an epoch begins, even one behind the epoch's end."""
        size = self._shape.global_batch
        counted_from = self._at.counted_from if epoch == self.consumed.epoch else 0
        for of_epoch, _, end in self._at.ranges:  # sorted
            if of_epoch == epoch and end < self._shape.records and end // size <= step:
                counted_from = end
        return counted_from % size + step * size
