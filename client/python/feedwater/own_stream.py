"""An iterable dataset of a user's own, as one worker makes its records: one after the other.

Record ``n`` is what worker ``n % workers`` gives at place ``n // workers``. Whoever is asked for a
place ahead makes all samples before it, and keeps them until they are asked for; whoever is asked
for one before that is not kept begins anew. So each epoch begins with a fresh copy of the dataset,
which makes the same samples again.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import numpy as np

from .own_code import Described, Made, Makes, classes_of, failure_text
from .sample_values import SampleError
from .samples import FieldNames, Plan, plan_of
from .seeding import captured, importing, restore, seed_all

_EPOCHS = 2  # of which samples are asked for at once: the end of one, and the next one's beginning
_KEPT, _KEPT_BYTES = 1024, 64 << 20  # samples that were given, and may be asked for once more
# Those that were skipped over, and may be asked for late: each of the daemon's workers asks for up
# to 32 at once, and what waits there together is put in order.
_LATE, _LATE_BYTES = 4096, 256 << 20
_LOOKED_AT = 3  # samples of which a dataset's fields are found
_64_BITS = (1 << 64) - 1
NOT_WANTED = "nobody waits for it any more"  # of a record that was not made for that reason

_Key = tuple[tuple[int, int], int]  # seed and number of the epoch, and the place in it
_Result = Union[Made, SampleError]


@dataclass(frozen=True)
class Share:
    """Which part of an iterable dataset a process makes.

    Attributes
    ----------
    worker, workers : int
        This one's number, and how many there are on all ranks.
    records : int
        Samples of an epoch, of all workers.
    """

    worker: int
    workers: int
    records: int

    @property
    def places(self) -> int:
        """Samples of an epoch that this worker makes."""
        return -(-(self.records - self.worker) // self.workers)


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info` says.

    Attributes
    ----------
    id, num_workers : int
        The number of this worker, and how many there are: of all ranks together.
    seed : int
    dataset : object
        This worker's copy.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: Optional[WorkerInfo] = None


def get_worker_info() -> Optional[WorkerInfo]:
    """Return which worker iterates over a dataset in this process; None in any other process.

    It is what ``torch.utils.data.get_worker_info()`` returns there, too.
    """
    return _info


def _announce(info: WorkerInfo) -> None:
    global _info
    _info = info

    def tell(torch: Any) -> None:
        torch._worker_info = torch.WorkerInfo(**vars(info))

    importing.call("torch.utils.data._utils.worker", tell)


def is_iterable(dataset: Any) -> bool:
    """Tell whether a dataset's records can only be made one after the other."""
    torch = sys.modules.get("torch.utils.data")  # whose iterable datasets inherit a __getitem__
    if torch is not None and isinstance(dataset, torch.IterableDataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


class _Epoch:
    """One epoch of one worker."""

    def __init__(
        self,
        fresh: Callable[[], Any],
        share: Share,
        seeds: tuple[int, int],
        is_seeded: bool,
    ) -> None:
        self._fresh, self._share, self._seeds = fresh, share, seeds
        self._seed = (seeds[0] ^ (share.worker + 1) * 0x9E3779B97F4A7C15) & _64_BITS
        self._is_seeded = is_seeded
        self._samples: Optional[Iterator[Any]] = None
        self._info: Optional[WorkerInfo] = None
        self._generators: Any = None  # while another epoch runs
        self._failed: Optional[str] = None  # the last sample that could not be made
        self._has_ended = False
        self.place = 0  # of the sample that comes next

    def begin(self) -> None:
        """Begin, or begin anew."""
        share, epoch = self._share, self._seeds[1]
        self.place, self._samples, self._failed, self._has_ended = 0, None, None, False
        if self._is_seeded:
            seed_all(self._seed)
        dataset = self._fresh()
        self._info = WorkerInfo(share.worker, share.workers, self._seed >> 1, dataset)
        _announce(self._info)
        if callable(getattr(dataset, "set_epoch", None)):
            dataset.set_epoch(epoch)
        self._samples = iter(dataset)

    def pause(self) -> None:
        """Let another epoch run."""
        if self._is_seeded:
            self._generators = captured()

    def go_on(self) -> None:
        """Run again."""
        if self._is_seeded:
            restore(self._generators, self._seed)
        if self._info is not None:
            _announce(self._info)

    @property
    def has_begun(self) -> bool:
        return self._samples is not None

    def next(self) -> Any:
        """Return the next sample.

        Raises
        ------
        SampleError
            There is none.
        BaseException
            The dataset's own: the next sample may be there nevertheless.
        """
        assert self._samples is not None
        try:
            if self._has_ended:
                raise StopIteration
            sample = next(self._samples)
        except StopIteration:
            self._has_ended = True
            self.forget()
            raise SampleError(self._too_short()) from None
        except BaseException as error:
            self._failed = f"{type(error).__name__} at its sample {self.place}"
            self.place += 1
            raise
        self.place += 1
        return sample

    def forget(self) -> None:
        """Let the iterator and its copy of the dataset go: nothing comes any more."""
        self._samples = iter(())
        info = self._info
        if info is not None:
            self._info = replace(info, dataset=None)
            if get_worker_info() is info:
                _announce(self._info)

    def _too_short(self) -> str:
        share = self._share
        text = (
            f"the dataset ended in worker {share.worker} of {share.workers} after {self.place} "
            f"samples; by length={share.records} this worker has {share.places}"
        )
        if self._failed is not None:
            return f"{text}. It had raised {self._failed}, which ends a generator"
        fitting = self.place * share.workers + share.worker  # up to this worker's first that lacks
        if not self.place:
            return (
                f"{text}. Cure: give each worker a part (get_worker_info), or take fewer workers="
            )
        return (
            f"{text}. Cure: length={fitting}, the most with which this worker has enough, or parts "
            "of the same size for all workers (get_worker_info)"
        )


class Stream:
    """Makes the records of one worker.

    Parameters
    ----------
    fresh : callable
        Returns another copy of the dataset, as it was when it was served.
    watch : callable
        Called before each sample, which may take its time.
    tell : callable
        Gets a text that the user should see.
    is_wanted : callable
        Tells whether somebody waits for the record that is asked for still.
    """

    def __init__(
        self,
        fresh: Callable[[], Any],
        plan: Plan,
        share: Share,
        is_seeded: bool,
        watch: Callable[[], object],
        tell: Callable[[str], object],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._fresh, self._share, self._is_seeded = fresh, share, is_seeded
        self._watch, self._tell, self._is_told = watch, tell, False
        self._is_wanted = is_wanted
        self._makes = Makes(plan)
        self._epochs: dict[tuple[int, int], _Epoch] = {}  # the last one runs
        self._forgotten: dict[tuple[int, int], int] = {}  # where the last one stood that was left
        self._given = _Kept(_KEPT, _KEPT_BYTES)
        self._skipped = _Kept(_LATE, _LATE_BYTES)

    def make(self, record: int, first: int, second: int, inputs: Any) -> Made:
        """Return a record's tensors."""
        seeds, place = (first, second), record // self._share.workers
        key = seeds, place
        made = self._skipped.pop(key) or self._given.pop(key)
        if made is None:
            made = self._reach(seeds, place)
        else:
            self._given.put(key, made)
        if isinstance(made, SampleError):
            # A new one: what is kept, or a variable of this frame, would keep the frames above.
            raise SampleError(*made.args)
        return made

    def _reach(self, seeds: tuple[int, int], place: int) -> _Result:
        epoch = self._epoch(seeds)
        was_left = not epoch.has_begun and seeds in self._forgotten
        if was_left or (epoch.has_begun and place < epoch.place):
            at = self._forgotten.pop(seeds) if was_left else epoch.place
            self._say_anew(seeds[1], place, at)
        if not epoch.has_begun or place < epoch.place:
            self._watch()
            epoch.begin()
        self._skipped.drop(seeds, place - _LATE)
        while True:
            at = epoch.place
            if at < place and not self._is_wanted():
                return SampleError(NOT_WANTED)
            is_near = place - at < _LATE
            self._watch()
            made: Optional[_Result] = None
            try:
                sample = epoch.next()
                if is_near:
                    layout, codes, values = self._makes.of(sample)
                    # The dataset may use its memory again.
                    made = layout, codes, [np.array(value) for value in values]
            except BaseException as error:
                made = SampleError(failure_text(error))  # without what its frames hold
                if epoch.place == at:  # it has ended
                    return made
            if at == place:
                assert made is not None
                self._given.put((seeds, at), made)
                return made
            if made is not None and is_near:
                self._skipped.put((seeds, at), made)

    def _say_anew(self, epoch: int, place: int, at: int) -> None:
        if self._is_told:
            return
        self._is_told = True
        share = self._share
        self._tell(
            f"worker {share.worker} of {share.workers} begins epoch {epoch} anew for its sample "
            f"{place}, having stood at {at}: all samples up to there are made "
            "once more. A replay, or another reader of the same source, asks for that; a dataset "
            "that does not make the same samples again goes on with others"
        )

    def _epoch(self, seeds: tuple[int, int]) -> _Epoch:
        running = next(reversed(self._epochs.values()), None)
        epoch = self._epochs.pop(seeds, None)
        if epoch is None:
            epoch = _Epoch(self._fresh, self._share, seeds, self._is_seeded)
            if running is not None:
                running.pause()
        elif epoch is not running:
            assert running is not None
            running.pause()
            epoch.go_on()
        self._epochs[seeds] = epoch
        while len(self._epochs) > _EPOCHS:
            oldest = next(iter(self._epochs))
            self._forgotten = {oldest: self._epochs.pop(oldest).place}
            self._skipped.drop(oldest, _64_BITS)
        return epoch


class _Kept:
    """The last samples of so many, and of so many bytes together."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._made: OrderedDict[_Key, _Result] = OrderedDict()
        self._bytes = 0

    def pop(self, key: _Key) -> Optional[_Result]:
        made = self._made.pop(key, None)
        self._bytes -= _size(made)
        return made

    def put(self, key: _Key, made: _Result) -> None:
        self.pop(key)
        self._made[key] = made
        self._bytes += _size(made)
        while len(self._made) > 1 and (
            len(self._made) > self._most or self._bytes > self._most_bytes
        ):
            self.pop(next(iter(self._made)))

    def drop(self, seeds: tuple[int, int], before: int) -> None:
        """Let the oldest ones go, as far as they come before a place of that epoch."""
        while self._made:
            oldest = next(iter(self._made))
            if oldest[0] != seeds or oldest[1] >= before:
                return
            self.pop(oldest)


def _size(made: Optional[_Result]) -> int:
    return 0 if made is None or isinstance(made, SampleError) else sum(v.nbytes for v in made[2])


def describe_stream(
    fresh: Callable[[], Any],
    names: Optional[FieldNames],
    share: Share,
    begin: Callable[[str], object],
) -> Described:
    """Look at an iterable dataset's first samples.

    Parameters
    ----------
    begin : callable
        Gets what is made next, before each step that may take its time.

    Raises
    ------
    SampleError
        It gives none, or samples that cannot be made into fields.
    """
    samples = _first_samples(fresh, share, begin)
    plan = plan_of(list(enumerate(samples)), names)
    return Described(
        share.records, plan, classes_of(fresh()), _trouble(fresh, share, samples, plan, begin)
    )


def _trouble(
    fresh: Callable[[], Any],
    share: Share,
    samples: list[Any],
    plan: Plan,
    begin: Callable[[str], object],
) -> str:
    """Return how workers' parts look wrong; "": they do not.

    Only what two workers begin with is compared, so a part that begins elsewhere is believed: also
    all of the dataset in an order of the worker's own.
    """
    if share.workers == 1:
        return ""
    makes = Makes(plan)
    ours = _bytes(makes, samples)
    other = Share((share.worker + 1) % share.workers, share.workers, share.records)
    try:
        theirs = _first_samples(fresh, other, begin)
    except SampleError:  # only that worker, perhaps on another host, can make them
        return ""
    if not ours or ours != _bytes(makes, theirs):
        return ""
    return (
        f"workers {share.worker} and {other.worker} of the iterable dataset begin with the same "
        "samples, so each sample may come several times. Cure: let __iter__ give what "
        "get_worker_info() says is this worker's, or workers=1"
    )


def _first_samples(
    fresh: Callable[[], Any],
    share: Share,
    begin: Callable[[str], object],
) -> list[Any]:
    samples: list[Any] = []
    where = f"sample 0 of worker {share.worker}"
    try:
        begin(where)
        epoch = _Epoch(fresh, share, (0, 0), is_seeded=True)
        epoch.begin()
        while len(samples) < min(_LOOKED_AT, share.places):
            where = f"sample {len(samples)} of worker {share.worker}"
            begin(where)
            samples.append(epoch.next())
    except BaseException as error:
        raise SampleError(f"{where}: {failure_text(error)}") from None
    return samples


def _bytes(makes: Makes, samples: list[Any]) -> list[bytes]:
    try:
        return [
            b"".join(np.asarray(value).tobytes() for value in makes.of(sample)[2])
            for sample in samples
        ]
    except SampleError:
        return []
