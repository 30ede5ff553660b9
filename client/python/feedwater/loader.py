"""`Loader`: what stands in a training program where a DataLoader would."""

from __future__ import annotations

import logging
import operator
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Optional, Union

import numpy as np

from . import errors, trainers
from .address import APPEARS_S, find
from .crc32c import crc32c
from .cursor import Cursor
from .dataset import Dataset, RecordLister
from .fields import Field, Place
from .habits import BatchSampler, DataLoaderHabits, Sampler, refuse_arguments
from .layout import outputs
from .outputs import Converter, choose
from .pipeline_file import read_pipeline
from .placement import Placement, placement, process_group
from .position import Consumed, EpochShape, Position
from .spill import Spill, lendable
from .statistics import BatchInfo, Statistics
from .stream import Batch, Failure, Stream, StreamOptions, check_timeout
from .version import __version__
from .wire import HAS_CRC

_BAD_SAMPLE_CURE = (
    ". Mend or remove it, or let the pipeline say 'on_bad_sample: substitute' or 'skip_with_count'"
)

_log = logging.getLogger("feedwater")

_opened: dict[
    str, Iterator[int]
] = {}  # per pipeline: the number of the next loader in this process


class Loader(DataLoaderHabits):
    """Batches of a pipeline that a feedwaterd runs, in this rank's order, over shared memory.

    ``for image, label in loader`` runs one epoch, the next ``for`` the next epoch. A ``break`` ends
    the epoch: the next ``for`` begins the next one, as a new iteration of a DataLoader would. Each
    batch is a tuple of tensors in the order of the pipeline's ``outputs``, each with the batch as
    its first axis; it stays valid as long as any tensor or view of it lives. Small outputs (up to
    16 KiB a batch: labels, ids) are copies, so that keeping them keeps no shared memory.

    Parameters
    ----------
    pipeline : str or path
        A name known to the daemon, or the path of a .yaml file, whose text is sent to it (its roots
        still hold).
    batch_size : int, optional
        Samples per rank and batch; overrides the file's.
    rank, world_size : int, optional
        Both or neither. Default: those of a process group that is initialised
        (``torch.distributed``, ``jax.distributed``, Horovod, ``mpi4py``); else the launcher's
        environment (torchrun, Horovod, Open MPI, MVAPICH, PMI, Slurm); else 0 of 1.
    seed : int, optional
        Overrides the file's.
    job : str, optional
        Ranks of one job give the same name. Default: from the launcher, else this process's own. A
        program that gives its own rank and world size under a launcher also gets a job of its own,
        unless it names one.
    address : str, optional
        The daemon's runtime directory. Default: ``$FEEDWATER_ADDRESS``, else the instance of this
        process's NUMA node.
    output : {"auto", "torch", "numpy", "jax"}
        ``auto`` is torch where it is installed, else NumPy. JAX arrays are copies.
    as_dict : bool
        Batches are dicts by output name instead of tuples.
    device : optional
        torch only: copy each batch to that device.
    writable : bool, optional
        NumPy arrays are read-only unless this is true; then, and always with torch, the memory is
        mapped copy on write: the program's changes stay its own.
    verify : bool
        Let the daemon send a checksum with each batch, and check it: `ChecksumMismatch` where they
        differ. Install the package ``crc32c`` to make that quick.
    slots : int, optional
        Batches in shared memory. A program that holds n batches while it asks for the next one
        needs at least n + 2: it is never lent the last slot, and gets copies in ordinary memory
        instead. Those may take 2 GiB for each loader, or an eighth of the memory where that is
        less (``$FEEDWATER_SPILL_BYTES``); then it is `Stalled`. With 1 or 2 slots nothing is
        copied, and a program that holds them all is `Stalled`. Default: the daemon chooses.
    reconnect_timeout : float
        Seconds to wait for a daemon that went away; 0 gives up at once. One that is not there at
        all when the loader is made may just be starting: it has 3 seconds of these.
    debug_protect : bool, optional
        Debugging: the memory of a batch can be touched only while the batch lives, so that a
        pointer kept for too long (by C code, ``ctypes``, a view without its base) is a SIGSEGV at
        its user instead of another batch's bytes. Costs two system calls a batch. Default: whether
        ``$FEEDWATER_DEBUG_PROTECT`` is set and not 0.

    Attributes
    ----------
    fields : dict of str to Field
        For each output its ``dtype`` and ``shape``, the latter without the batch axis.
    classes : list of str
    dataset : Dataset
        With a length.
    sampler : Sampler
        With a length and ``set_epoch``.
    batch_size, rank, world_size, local_rank, epoch : int
    seed : int
    job, pipeline, address, output : str

    Raises
    ------
    InvalidArgument
        The pipeline or an argument can never work, or half of a launcher's environment is there.
    NotFound
        Unknown pipeline, root or file.
    FailedPrecondition
        The ranks of the job disagree, or process group and launcher do.
    AlreadyExists
        Another process has this rank.
    ResourceExhausted
        A quota or the memory budget.
    PermissionDenied
        This user may not use the daemon.
    DaemonLost
        There is no daemon.

    Notes
    -----
    Use a loader from one thread at a time (batches may be used and dropped anywhere), in the
    process that made it: not in a forked child.
    """

    def __init__(
        self,
        pipeline: Union[str, os.PathLike],
        *unnamed: Any,
        batch_size: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        seed: Optional[int] = None,
        job: Optional[str] = None,
        address: Optional[str] = None,
        output: str = "auto",
        as_dict: bool = False,
        device: Any = None,
        writable: Optional[bool] = None,
        verify: bool = False,
        slots: Optional[int] = None,
        reconnect_timeout: float = 60.0,
        debug_protect: Optional[bool] = None,
        **others: Any,
    ) -> None:
        refuse_arguments(unnamed, others, set(type(self).__init__.__kwdefaults__))
        numbers = {"batch_size": batch_size, "rank": rank, "world_size": world_size, "seed": seed}
        batch_size, rank, world_size, seed, slots = (
            _integer(name, value) for name, value in {**numbers, "slots": slots}.items()
        )
        # Where rank and world size are not the program's own, each process group that is
        # initialised later has a say: see _check_place.
        self._place_is_settled = rank is not None
        place = placement(rank, world_size)
        name, text, file_name = read_pipeline(pipeline)
        self.output, private = choose(output, device, writable)
        reconnect_timeout = check_timeout(reconnect_timeout)
        self.address = find(address, min(APPEARS_S, reconnect_timeout))
        self._job_suffix = None  # of a default name
        if job is None:
            self._job_suffix = f"/{name}#{next(_opened.setdefault(name, count(1)))}"
        self._as_dict, self._device = as_dict, device
        self._verify = bool(verify)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open(
            StreamOptions(
                address=self.address,
                client=f"python {__version__}",
                pipeline_name=name,
                pipeline_text=text,
                file_name=file_name,
                job=job or "",
                rank=place.rank,
                world_size=place.world_size,
                batch_size=batch_size,
                seed=seed,
                slots=slots,
                verify=self._verify,
                writable=private,
                reconnect_timeout=reconnect_timeout,
                debug_protect=_protects() if debug_protect is None else bool(debug_protect),
            ),
            place,
        )
        facts = self._stream.facts
        self._position = Position(self._epoch_shape(), facts.epoch, facts.position)
        self._touched = False  # nothing was ever taken or left out
        self._pending: Union[Batch, Failure, None] = (
            None  # of a later epoch, found when the end was looked for
        )
        self._failure: Optional[Failure] = None  # what the present iteration ended with
        self._iteration = 0
        self._statistics = Statistics()
        self._spill = Spill()

    def _open(self, options: StreamOptions, place: Placement) -> None:
        """Open the stream of a rank."""
        job = options.job
        if self._job_suffix is not None:
            job = (place.job or f"pid-{os.getpid()}") + self._job_suffix
        try:
            self._stream = Stream(
                replace(options, job=job, rank=place.rank, world_size=place.world_size)
            )
        except errors.AlreadyExists as error:
            nobody_said = place.source is None and not self._place_is_settled
            if self._job_suffix is None or not nobody_said or place.job is None:
                raise
            raise errors.AlreadyExists(
                f"{error}. It is another child of this process's parent, and nobody has told the "
                "two of one another: initialise the process group before the loader is made, or "
                "give both rank and world_size; or a job of its own to each, where they do not "
                "belong together"
            ) from None
        self._finalizer = weakref.finalize(self, Stream.close, self._stream, False)
        try:
            self._take_over()
        except BaseException:
            self.close()
            raise
        self.rank, self.world_size, self.local_rank = place.rank, place.world_size, place.local_rank

    def _epoch_shape(self) -> EpochShape:
        facts = self._stream.facts
        return EpochShape(
            int(facts.records), self._steps, self.world_size * self.batch_size, self.drop_last
        )

    def _check_place(self, may_move: bool = True) -> None:
        """Compare the rank with what a process group says that was initialised since.

        A loader of which nothing has been taken moves to the place that it has there.
        """
        if self._place_is_settled:
            return
        group = process_group()
        if group is None:
            return
        if (group.rank, group.world_size) != (self.rank, self.world_size):
            made = f"made as rank {self.rank} of {self.world_size}"
            if not may_move or self._touched:
                raise errors.FailedPrecondition(
                    f"this loader was {made}, before the process group was initialised; now "
                    f"{group}. It has been used, so it stays what it is: make the loader after the "
                    "group, or give both rank and world_size"
                )
            self._check_usable()
            place = placement()
            at = self._stream.cursor(*self._position.consumed)
            self._drop_pending()
            self.close()
            self._open(self._stream.options, place)
            facts = self._stream.facts
            at.check_same_source(facts.dataset_digest, facts.pipeline_digest, facts.seed)
            self._position.reshape(self._epoch_shape())
            self._end_iteration()
            _log.warning(
                "a loader of %s was %s, before the process group was initialised: it is rank "
                "%d of %d now, with %d steps an epoch. Make it after the group to be rid of this.",
                self.pipeline,
                made,
                self.rank,
                self.world_size,
                self._steps,
            )

    def _take_over(self) -> None:
        facts = self._stream.facts
        if facts.warning:
            _log.warning("%s", facts.warning)
        self.fields: dict[str, Field] = {}
        places: list[Place] = []
        for field, place in outputs(facts):
            self.fields[place.name] = field
            places.append(place)
        self._places = tuple(places)
        self._convert = Converter(self.output, places, self._as_dict, self._device)
        self.classes = list(facts.classes)
        self.seed = int(facts.seed)
        self.job = facts.job or self._stream.options.job
        self.pipeline = facts.pipeline
        self.dataset = Dataset(
            int(facts.records),
            self.classes,
            facts.dataset_digest,
            RecordLister(self.address, self.job, self.pipeline),
        )
        self.sampler = Sampler(self, int(facts.samples_per_epoch))
        self.batch_sampler = BatchSampler(
            self.sampler, int(facts.batch_size), int(facts.steps_per_epoch), facts.last == "drop"
        )

    # --- iteration --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the steps of a whole epoch on this rank."""
        # Asked in another thread while a batch is waited for, it must not wait, too.
        if not self._place_is_settled and self._lock.acquire(blocking=False):
            try:
                if self.is_open and os.getpid() == self._pid:
                    self._check_place()
            finally:
                self._lock.release()
        return self._steps

    @property
    def has_uneven_batches(self) -> bool:
        """Whether an epoch's last batches have other sizes on other ranks."""
        facts = self._stream.facts
        return (
            facts.last == "partial"
            and self.world_size > 1
            and int(facts.records) % (self.world_size * self.batch_size) % self.world_size != 0
        )

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the epoch's last batch was the last one returned, for Accelerate."""
        at = self._position
        return at.at_epoch_end or not (at.fresh or at.has_rest)

    @property
    def remainder(self) -> int:
        """How many samples of the epoch's last global batch, the last one returned, are no
        padding, as Accelerate counts them: 0 where it is full, -1 where padding, if any, is not at
        the end of all ranks' batches.
        """
        facts = self._stream.facts
        if facts.last != "pad" or facts.shard != "batch":
            return -1
        if not self._position.at_epoch_end:
            return 0
        return self._position.last_samples % (self.world_size * self.batch_size)

    @property
    def _steps(self) -> int:
        return int(self._stream.facts.steps_per_epoch)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch: the one where the loader stands, or the next one if some of its batches
        were taken.
        """
        self._check_process()
        with self._lock:
            self._check_usable()
            self._check_place()
            self._end_iteration()
            if not self._position.fresh:
                self._position.begin_epoch(self._position.consumed.epoch + 1)
            self._settle()
            trainers.begin(self)
            return _Epoch(self, self._iteration)

    def _end_iteration(self) -> None:
        self._failure = None
        self._iteration += 1

    def _settle(self) -> None:
        """Let the stream go on where the program does, behind what is left out."""
        if not self._steps:
            return
        epoch, position = self._position.wanted
        if self._pending is not None:
            got = self._pending.ready if isinstance(self._pending, Batch) else self._pending.failed
            if (got.epoch, 0) == (epoch, position):
                return
            self._drop_pending()
        self._stream.seek(epoch, position)

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._stream.forget_place()

    def _next(self, iteration: int) -> Any:
        self._check_process()
        with self._lock:
            self._check_usable()
            if iteration != self._iteration:
                raise errors.FailedPrecondition(
                    "this iteration is over: another one was begun, or set_epoch() or "
                    "load_state_dict() was called"
                )
            if self._failure is not None:
                raise _error_of(self._failure)
            self._check_place(may_move=False)
            if self._position.at_epoch_end or not self._steps:
                self._end_epoch()
            try:
                got = self._receive_in_epoch()
                if isinstance(got, Failure):
                    self._failure = got
                    raise _error_of(got)
                return self._deliver(got)
            except (errors.Error, StopIteration):
                raise
            except BaseException:
                # Interrupted: a batch may have been received and dropped. The next call goes back
                # to the cursor.
                self._pending = None
                self._stream.forget_place()
                raise

    def _receive_in_epoch(self) -> Union[Batch, Failure]:
        """Receive what is next, or end the epoch where it has nothing left."""
        while True:
            got = self._receive()
            epoch = (got.ready if isinstance(got, Batch) else got.failed).epoch
            if epoch <= self._position.consumed.epoch:
                return got
            self._pending = got
            del got
            if not self._position.resumed:
                self._end_epoch()
            self._position.begin_epoch(epoch)  # the state was of the epoch's end

    def _receive(self) -> Union[Batch, Failure]:
        self._convert.let_go(wait=self._stream.held() >= lendable(self._stream.slots))
        self._settle()
        if self._pending is not None:
            got, self._pending = self._pending, None
            return got
        return self._await()

    def _await(self) -> Union[Batch, Failure]:
        """Wait for what the stream has next."""
        try:
            got = self._stream.receive()
        except errors.DaemonLost as error:
            error.state = self.state_dict()
            raise
        self._statistics.received(got, self._stream.waited_ns)
        return got

    def _end_epoch(self) -> None:
        # First: interrupted between the two, the iteration must not run into the next epoch.
        self._end_iteration()
        self._position.begin_epoch(self._position.consumed.epoch + 1)
        raise StopIteration

    def _deliver(self, batch: Batch) -> Any:
        ready = batch.ready
        outputs = self._show(batch)
        self._touched = True
        self._statistics.delivered(ready)
        self._position.take(
            ready.epoch, ready.next_position, ready.last_in_epoch, ready.substituted
        )
        return outputs

    def _show(self, batch: Batch) -> Any:
        """Return the outputs of a batch, without counting it."""
        ready = batch.ready
        if ready.samples > self.batch_size:
            raise errors.Error(
                f"the daemon lent {ready.samples} samples in a slot for {self.batch_size}"
            )
        if self._verify:
            self._check_sum(batch)
        if self._must_spill(ready.samples):
            copy = self._spill.copy(batch.lease, self._places, ready.samples)
            return self._convert(copy, ready.samples)
        return self._convert(batch.lease, ready.samples)

    def _must_spill(self, samples: int) -> bool:
        """Tell whether the batch that was just received is to be copied: it has the last slot."""
        lent = lendable(self._stream.slots)
        if self._stream.held() <= lent:
            return False
        self._spill.look_for_cycles()
        size = samples * sum(place.sample_bytes for place in self._places)
        return self._stream.held() > lent and self._spill.has_room(size)

    def _check_sum(self, batch: Batch) -> None:
        ready = batch.ready
        if not ready.flags & HAS_CRC:
            raise errors.Error("verify=True, but the daemon sent no checksum")
        value = 0
        for place in self._places:
            array = batch.lease.array(place, ready.samples)
            value = crc32c(memoryview(array.reshape(-1).view(np.uint8)), value)
        if value != ready.crc32c:
            self._stream.forget_place()
            raise errors.ChecksumMismatch(
                f"the batch of epoch {ready.epoch}, step {ready.step} does not fit its checksum: "
                f"{value:#010x} instead of {ready.crc32c:#010x}"
            )

    # --- position ---------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, or of the last one when its iteration has not ended."""
        return self._position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for``, from its beginning.

        Nothing happens when the loader stands in that epoch and nothing has been taken since it was
        opened, loaded with a state, or finished the epoch before: so a program may call this before
        every epoch, after resuming inside one too. An iteration of which nothing has been taken
        goes on in that epoch, as with a DataLoader's sampler; any other one ends.
        """
        epoch = _epoch_number(epoch)
        self._check_process()
        with self._lock:
            self._check_usable()
            begun = not self._position.fresh
            if not self._position.choose_epoch(epoch):
                return
            if begun:
                self._end_iteration()
            self._failure = None
            self._settle()

    def state_dict(self) -> dict[str, Any]:
        """Return the position: it counts the batches that were returned, no more, no less.

        Returns
        -------
        dict
            JSON-serialisable, at most 1 KiB. It fits a loader with any rank, world size and batch
            size of the same dataset, pipeline and seed. What `skip` leaves out further on is part
            of it.
        """
        return self._stream.cursor(*self._position.consumed).to_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken: the next ``for`` runs the rest of its epoch, or the
        next epoch where none of it is left. Where `set_epoch` then says the state's epoch, its rest
        is what the ``for`` runs, even an empty one.

        Raises
        ------
        InvalidArgument
            It is no state, or damaged.
        FailedPrecondition
            It belongs to another dataset, pipeline or seed; the text names which.
        """
        cursor = Cursor.from_state(state)
        self._check_process()
        with self._lock:
            self._check_usable()
            facts = self._stream.facts
            cursor.check_same_source(facts.dataset_digest, facts.pipeline_digest, facts.seed)
            self._position.load(
                Consumed(cursor.epoch, cursor.position, cursor.substituted, cursor.skip)
            )
            self._end_iteration()
            self._settle()

    def skip(self, first: int, last: int, *, epoch: Optional[int] = None) -> None:
        """Leave out steps `first` to `last`, both included: those of a loss spike, say.

        Every rank must do so. It may be done before an iteration or in the midst of one, and holds
        for what is still to come: a range that has been passed is forgotten. Until then it is part
        of `state_dict`. With another world size or batch size the same samples are left out, and
        the rest of a batch that would reach into them.

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
        first, last = _integer("first", first), _integer("last", last)
        self._check_process()
        with self._lock:
            self._check_usable()
            self._check_place()
            self._touched = True  # steps count as world size and batch size make them
            at = self._position
            at.skip(first, last, at.next_epoch if epoch is None else _epoch_number(epoch))

    def replay(self, step: int, *, epoch: Optional[int] = None) -> Any:
        """Return a batch once more, or ahead of its time: this rank's part of a step.

        It is the same bytes as in the iteration. The position does not change, and a running
        iteration goes on where it was; the daemon begins anew there, which costs about as many
        batches as there are slots.

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
        step = _integer("step", step)
        self._check_process()
        with self._lock:
            self._check_usable()
            self._check_place()
            self._touched = True
            of_epoch = self.epoch if epoch is None else _epoch_number(epoch)
            position = self._position.begin_of(of_epoch, step)
            self._drop_pending()
            try:
                self._convert.let_go(wait=self._stream.held() >= lendable(self._stream.slots))
                self._stream.seek(of_epoch, position)
                got = self._await()
                if isinstance(got, Failure):
                    raise _error_of(got)
                if got.ready.epoch != of_epoch:
                    raise errors.InvalidArgument(
                        f"epoch {of_epoch} has no step {step} behind the place where it was resumed"
                    )
                return self._show(got)
            except errors.Error:
                raise
            except BaseException:  # interrupted: what comes next is not known
                self._stream.forget_place()
                raise

    # --- the rest ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return counts and times since the loader was made.

        Returns
        -------
        dict
            ``batches``, ``samples``, ``real_samples`` (without padding and skipped ones),
            ``substituted`` (places whose own record was bad) and ``skipped`` (of those the ones
            that are not real: ``on_bad_sample: skip_with_count``);
            ``wait_s``, the time in which the program waited for batches, and ``waits``, how often
            it did; ``handover_us_p50`` and ``handover_us_p99``, from the moment the daemon
            published a batch until a waiting program had it (None without a wait); ``held``,
            batches not given back, ``slots``, ``spilled``, batches that were copied because the
            program held nearly all slots, and ``reconnects``.
        """
        return {
            **self._statistics.report(),
            "held": self._stream.held(),
            "slots": self._stream.slots,
            "spilled": self._spill.batches,
            "reconnects": self._stream.reconnects,
        }

    @property
    def batch_info(self) -> Optional[BatchInfo]:
        """What is known of the batch that was returned last; None before the first."""
        return self._statistics.last

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._finalizer.alive

    def close(self) -> None:
        """End the stream. Batches that the program still has stay valid. May be called again."""
        if self._finalizer.detach() is not None:
            self._stream.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return (
            f"<feedwater.Loader {self.pipeline!r}, job {self.job!r}, rank {self.rank} of "
            f"{self.world_size}, "
            f"batch size {self.batch_size}, epoch {self.epoch}{state}>"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a feedwater.Loader cannot be pickled or copied: make one in the process that uses it, "
            "and pass its state_dict()"
        )

    def _check_process(self) -> None:
        """Refuse a forked child: before the lock, which a thread of the parent may have had."""
        if os.getpid() != self._pid:
            raise errors.FailedPrecondition(
                f"this loader belongs to process {self._pid}: a forked child makes its own "
                "feedwater.Loader"
            )

    def _check_usable(self) -> None:
        if not self.is_open:
            raise errors.FailedPrecondition("the loader is closed")


class _Epoch(Iterator):
    """One run through an epoch."""

    __slots__ = ("_iteration", "_loader", "_over")

    def __init__(self, loader: Loader, iteration: int) -> None:
        self._loader = loader
        self._iteration = iteration
        self._over = False

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            return self._loader._next(self._iteration)
        except StopIteration:
            self._over = True
            trainers.end(self._loader)
            raise

    def __del__(self) -> None:
        if not self._over and self._loader._iteration == self._iteration:
            trainers.end(self._loader)  # left by `break`


def _integer(name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise errors.InvalidArgument(f"{name} is {value!r}: it is an integer") from None


def _epoch_number(value: Any) -> int:
    epoch = _integer("epoch", value)
    if not 0 <= epoch < 1 << 63:
        raise errors.InvalidArgument(f"epoch is {epoch}: it is 0 or more")
    return epoch


def _error_of(failure: Failure) -> errors.Error:
    f = failure.failed
    code = errors.code_name(f.code)
    if f.record < 0:
        return errors.from_code(code, f.message)
    return errors.BadSample(
        f"record {f.record} ({f.path}) at epoch {f.epoch}, step {f.step}: {f.message}"
        + ("" if "max_bad_fraction" in f.message else _BAD_SAMPLE_CURE),
        code=code,
        record=f.record,
        path=f.path,
        reason=f.message,
    )


def _protects() -> bool:
    return os.environ.get("FEEDWATER_DEBUG_PROTECT", "0") not in ("", "0")
