"""`Loader`: what stands in a training program where a DataLoader would."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NoReturn, Optional, Union

from . import errors, trainers
from .address import APPEARS_S
from .arguments import epoch_number, integer, protects_memory, refuse_arguments
from .cursor import Cursor
from .dataset import Dataset, RecordLister
from .epoch import Epoch
from .feed import Feed
from .habits import BatchSampler, DataLoaderHabits, Sampler
from .outputs import Converter, choose
from .pipeline import Pipeline
from .pipeline_file import read_pipeline
from .placement import placement
from .position import Consumed
from .statistics import BatchInfo
from .stream import Batch, Failure, StreamOptions, check_timeout
from .version import __version__
from .which_daemon import choose_daemon

_log = logging.getLogger("feedwater")

_opened: dict[
    str, Iterator[int]
] = {}  # per pipeline: the number of the next loader in this process


class Loader(DataLoaderHabits):
    """Batches of a pipeline that a feedwaterd runs, in this rank's order, over shared memory.

    ``for image, label in loader`` runs one epoch, the next ``for`` the next epoch. A ``break`` ends
    the epoch: the next ``for`` begins the next one, as a new iteration of a DataLoader would. Each
    batch is a tuple of tensors in the order of the pipeline's ``outputs``, each with the batch as
    its first axis, or a `Ragged` where the number of rows differs from sample to sample; it stays
    valid as long as any tensor or view of it lives. Small outputs (up to 16 KiB a batch: labels,
    ids) are copies, so that keeping them keeps no shared memory.

    Parameters
    ----------
    pipeline : str, path or Pipeline
        A name known to the daemon, or the path of a .yaml file, whose text is sent to it (its roots
        still hold), or a `Pipeline`, likewise.
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
    daemon : {"auto", "shared", "private"}
        ``shared``: the daemon that ``address``, ``$FEEDWATER_ADDRESS`` or the host has.
        ``private``: one for this job, which is started where it is not there yet: the job's ranks
        on this host share it, it reads with this user's rights, so that the ``root`` of a dataset
        may be an absolute path, and it ends with its last loader, however that ends. ``auto``:
        shared where one was named or answers, else private.
    cpus, memory : int or str, optional
        Of a private daemon: as those of feedwater.yaml (``6``, ``"0-3,8"``; ``"16GiB"``). Default:
        the CPUs that this process may use less one for each local rank, but at least half of them;
        two fifths of the memory; less of both beside other private daemons.
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
        For each output its ``dtype`` and ``shape``, the latter without the batch axis;
        ``(None, 4)`` where the number of rows differs from sample to sample.
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
        There is no daemon, and none can be started.

    Notes
    -----
    Use a loader from one thread at a time (batches may be used and dropped anywhere), in the
    process that made it: not in a forked child.
    """

    def __init__(
        self,
        pipeline: Union[str, os.PathLike[str], Pipeline],
        *unnamed: Any,
        batch_size: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        seed: Optional[int] = None,
        job: Optional[str] = None,
        address: Optional[str] = None,
        daemon: str = "auto",
        cpus: Union[int, str, None] = None,
        memory: Union[int, str, None] = None,
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
        refuse_arguments(unnamed, others, set(type(self).__init__.__kwdefaults__ or ()))
        numbers = {"batch_size": batch_size, "rank": rank, "world_size": world_size, "seed": seed}
        batch_size, rank, world_size, seed, slots = (
            integer(name, value) for name, value in {**numbers, "slots": slots}.items()
        )
        place = placement(rank, world_size)
        name, text, file_name = read_pipeline(pipeline)
        self.output, private = choose(output, device, writable)
        reconnect_timeout = check_timeout(reconnect_timeout)
        self.address, self._daemon = choose_daemon(
            address,
            daemon,
            cpus,
            memory,
            place,
            job,
            is_name=text is None,
            patience=min(APPEARS_S, reconnect_timeout),
        )
        job_suffix = None  # of a default name
        if job is None:
            job_suffix = f"/{name}#{next(_opened.setdefault(name, count(1)))}"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        form = self.output
        try:
            self._feed = Feed(
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
                    verify=bool(verify),
                    writable=private,
                    reconnect_timeout=reconnect_timeout,
                    debug_protect=protects_memory()
                    if debug_protect is None
                    else bool(debug_protect),
                    ensure=None if self._daemon is None else self._daemon.ensure,
                ),
                place,
                job_suffix=job_suffix,
                place_is_settled=rank is not None,
                converter=lambda places: Converter(form, places, as_dict, device),
            )
        except BaseException:
            self._let_daemon_go()
            raise
        try:
            self._take_over()
        except BaseException:
            self.close()
            raise
        self._failure: Optional[Failure] = None  # what the present iteration ended with
        self._iteration = 0

    def _take_over(self) -> None:
        """Take what the stream's daemon says, and the place."""
        facts, place = self._feed.stream.facts, self._feed.place
        if facts.warning:
            _log.warning("%s", facts.warning)
        self.rank, self.world_size, self.local_rank = place.rank, place.world_size, place.local_rank
        self.fields = self._feed.fields
        self.classes = list(facts.classes)
        self.seed = int(facts.seed)
        self.job = facts.job or self._feed.stream.options.job
        self.pipeline = facts.pipeline
        self.dataset = Dataset(
            int(facts.records),
            self.classes,
            facts.dataset_digest,
            RecordLister(self.address, self.job, self.pipeline),
        )
        self.sampler = Sampler(self, int(facts.samples_per_epoch))
        self.batch_sampler = BatchSampler(
            self.sampler, int(facts.batch_size), self._feed.steps, facts.last == "drop"
        )

    def _check_place(self, may_move: bool = True) -> None:
        stream = self._feed.stream
        try:
            self._feed.check_place(may_move)
        finally:
            if self._feed.stream is not stream:  # it has moved
                self._take_over()
                self._end_iteration()

    # --- iteration --------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the steps of a whole epoch on this rank."""
        # Asked in another thread while a batch is waited for, it must not wait, too.
        if not self._feed.place_is_settled and self._lock.acquire(blocking=False):
            try:
                if self.is_open and os.getpid() == self._pid:
                    self._check_place()
            finally:
                self._lock.release()
        return self._feed.steps

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch: the one where the loader stands, or the next one if some of its batches
        were taken.
        """
        self._check_process()
        with self._lock:
            self._feed.check_open()
            self._check_place()
            self._end_iteration()
            if self._daemon is not None:
                self._daemon.look_around()
            if not self._feed.position.fresh:
                self._feed.position.begin_epoch(self._feed.position.consumed.epoch + 1)
            self._feed.settle()
            trainers.begin(self)
            return Epoch(self, self._iteration)

    def _end_iteration(self) -> None:
        self._failure = None
        self._iteration += 1

    def _next(self, iteration: int) -> Any:
        self._check_process()
        with self._lock:
            self._feed.check_open()
            if iteration != self._iteration:
                raise errors.FailedPrecondition(
                    "this iteration is over: another one was begun, or set_epoch() or "
                    "load_state_dict() was called"
                )
            if self._failure is not None:
                raise errors.of_failed(self._failure.failed)
            self._check_place(may_move=False)
            if self._feed.position.at_epoch_end or not self._feed.steps:
                self._end_epoch()
            try:
                got = self._feed.receive()
                if got is None:
                    self._end_epoch()
                if isinstance(got, Failure):
                    self._failure = got
                    raise errors.of_failed(got.failed)
                outputs = self._show(got)
                self._feed.took(got)
                return outputs
            except (errors.Error, StopIteration):
                raise
            except BaseException:
                # Interrupted: a batch may have been received and dropped. The next call goes back
                # to the cursor.
                self._feed.forget()
                raise

    def _end_epoch(self) -> NoReturn:
        # First: interrupted between the two, the iteration must not run into the next epoch.
        self._end_iteration()
        self._feed.position.begin_epoch(self._feed.position.consumed.epoch + 1)
        raise StopIteration

    def _show(self, batch: Batch) -> Any:
        return self._feed.show(batch)

    # --- position ---------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, or of the last one when its iteration has not ended."""
        return self._feed.position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for``, from its beginning.

        Nothing happens when the loader stands in that epoch and nothing has been taken since it was
        opened, loaded with a state, or finished the epoch before: so a program may call this before
        every epoch, after resuming inside one too. An iteration of which nothing has been taken
        goes on in that epoch, as with a DataLoader's sampler; any other one ends.
        """
        epoch = epoch_number(epoch)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            begun = not self._feed.position.fresh
            if not self._feed.position.choose_epoch(epoch):
                return
            if begun:
                self._end_iteration()
            self._failure = None
            self._feed.settle()

    def state_dict(self) -> dict[str, Any]:
        """Return the position: it counts the batches that were returned, no more, no less.

        Returns
        -------
        dict
            JSON-serialisable, at most 1 KiB. It fits a loader with any rank, world size and batch
            size of the same dataset, pipeline and seed. What `skip` leaves out further on is part
            of it.
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
            It belongs to another dataset, pipeline or seed; the text names which.
        """
        cursor = Cursor.from_state(state)
        self._check_process()
        with self._lock:
            self._feed.check_open()
            facts = self._feed.stream.facts
            cursor.check_same_source(facts.dataset_digest, facts.pipeline_digest, facts.seed)
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
                    raise errors.of_failed(got.failed)
                return self._show(got)
            except errors.Error:
                raise
            except BaseException:  # interrupted: what comes next is not known
                self._feed.forget()
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
        return self._feed.report()

    @property
    def batch_info(self) -> Optional[BatchInfo]:
        """What is known of the batch that was returned last; None before the first."""
        return self._feed.statistics.last

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._feed.is_open

    def close(self) -> None:
        """End the stream. Batches that the program still has stay valid. May be called again."""
        self._feed.close()
        self._let_daemon_go()

    def _let_daemon_go(self) -> None:
        if self._daemon is not None:
            self._daemon.release()

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
