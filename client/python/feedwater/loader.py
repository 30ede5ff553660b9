"""`Loader`: what stands in a training program where a DataLoader would."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Optional, Union

from . import errors, trainers
from .address import APPEARS_S
from .arguments import integer, protects_memory, refuse_arguments
from .dataset import Dataset, RecordLister
from .epoch import Epoch
from .feed import Feed
from .habits import DataLoaderHabits, Sampler
from .loader_position import LoaderPosition
from .ordinals import Ordinal
from .outputs import Converter, choose
from .own_dataset import explained, in_its_words, of_late_group, pipeline_of, serve_for_loader
from .pickled_loader import Pickles
from .pipeline import GraphEntry, Pipeline
from .pipeline_file import read_pipeline
from .placement import is_apart, placement
from .samples import FieldNames
from .served import Served
from .statistics import BatchInfo
from .stream import Failure, StreamOptions, check_timeout
from .version import __version__
from .which_daemon import choose_daemon

_log = logging.getLogger("feedwater")


class Loader(LoaderPosition, DataLoaderHabits, Pickles):
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
        two fifths of the memory; less of both beside other private daemons. The loader that starts
        it decides; a warning says what comes too late.
    output : {"auto", "torch", "numpy", "jax"}
        ``auto`` is torch where it is installed, else NumPy. JAX arrays are copies.
    as_dict : bool
        Batches are dicts by output name instead of tuples.
    device : optional
        torch only: copy each batch to that device. With CUDA the next batch is copied from pinned
        memory, on a stream of its own, while the present one is used. ``"cuda"`` is the device that
        is current when the loader is made, or when it takes its place in a group made later.
    writable : bool, optional
        NumPy arrays are read-only unless this is true; then, and always with torch on the CPU, the
        memory is mapped copy on write: the program's changes stay its own.
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
    NotServed
        No process serves a source or an op of one's own that the pipeline names.

    Notes
    -----
    Use a loader from one thread at a time (batches may be used and dropped anywhere), in the
    process that made it: not in a forked child. One that is pickled is another loader where it
    comes out: of the same arguments, with the rank that the process has when it is first used, at
    the same position.
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
        given = dict(locals())
        refuse_arguments(unnamed, others, set(type(self).__init__.__kwdefaults__ or ()))
        numbers = {"batch_size": batch_size, "rank": rank, "world_size": world_size, "seed": seed}
        batch_size, rank, world_size, seed, slots = (
            integer(name, value) for name, value in {**numbers, "slots": slots}.items()
        )
        place = placement(rank, world_size)
        source = name, text, file_name = read_pipeline(pipeline)
        named = Loader.__init__.__kwdefaults__ or {}
        self._made_with = source, {name: given[name] for name in named}
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
        job_suffix, ordinal = None, None  # of a default name
        if job is None:
            # Those of a place of their own count apart, since other ranks need not make them.
            apart = is_apart(rank is not None, place)
            ordinal = Ordinal.take("job", name, apart)
            job_suffix = f"/{name}#{'apart' if apart else ''}{ordinal.number}"
        form = self.output
        try:
            feed = Feed(
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
                ordinal=ordinal,
                place_is_settled=rank is not None,
                converter=lambda places: Converter(form, places, as_dict, device),
            )
        except BaseException:
            if ordinal is not None:
                ordinal.give_back()
            self._let_daemon_go()
            raise
        super().__init__(feed)
        self._served: Optional[Served] = None  # the dataset, where this loader serves it
        self._served_as: Optional[Ordinal] = None
        try:
            self._take_over()
        except BaseException:
            feed.withdraw()
            self.close()
            raise

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        batch_size: int = 64,
        *,
        workers: int = 4,
        shuffle: Optional[bool] = None,
        graph: Optional[Sequence[GraphEntry]] = None,
        outputs: Optional[Sequence[Union[str, Mapping[str, Any]]]] = None,
        drop_last: bool = False,
        on_bad_sample: Optional[str] = None,
        max_bad_fraction: Optional[float] = None,
        fields: Optional[FieldNames] = None,
        timeout: float = 60.0,
        version: str = "",
        seeded: bool = True,
        length: Optional[int] = None,
        **options: Any,
    ) -> Loader:
        """Return a loader over a dataset of one's own, which processes of this program serve.

        >>> loader = feedwater.Loader.from_dataset(dataset, batch_size=64, workers=4)
        >>> for image, label in loader:
        ...     ...

        Order, ranks, resume, bad samples and batches are the daemon's; it asks the processes for
        single records. They end with the loader. A batch is a flat tuple of the sample's values in
        their order, inner ones too. Each rank of a job makes its loader so, of the same dataset:
        the processes of all ranks on a host serve together.

        Parameters
        ----------
        dataset : object
            With ``__len__`` and ``__getitem__``: any map-style torch Dataset; or an iterable one.
            As `serve_source` takes it, with ``workers``, ``fields``, ``timeout``, ``version``,
            ``seeded`` and ``length``, which is that of all ranks.
        shuffle : bool, optional
            Another order in each epoch. Default: true, unless the dataset is iterable.
        graph : sequence of Op, optional
            What the daemon does to each sample, such as ``[ops.decode(), ops.resize(256)]`` where
            the dataset returns encoded bytes as the field ``data``.
        outputs : sequence of str, optional
            The fields that a batch has. Default: all, in their order; in place of one that the
            graph reads, what it makes of it.
        drop_last : bool
            Leave out the rest of an epoch that fills no batch.
        on_bad_sample : {"fail", "substitute", "skip_with_count"}, optional
            What happens to a record for which the dataset raises an exception.
        max_bad_fraction : float, optional
            How many of a rank's samples of an epoch may be bad where others stand in for them.
            Default: 0.001, and some in any case.
        options
            As `Loader` takes them: ``seed``, ``job``, ``output``, ``as_dict``, ``daemon``, ...

        Raises
        ------
        InvalidArgument
            The dataset cannot be served; the text names the attribute, or the place in a sample.
        """
        served, served_as, options = serve_for_loader(
            dataset,
            options,
            set(cls.from_dataset.__kwdefaults__ or ()) | set(Loader.__init__.__kwdefaults__ or ()),
            workers=workers,
            fields=fields,
            timeout=timeout,
            version=version,
            seeded=seeded,
            length=length,
            shuffle=shuffle,
        )
        try:
            pipeline = pipeline_of(
                dataset,
                served,
                shuffle=shuffle,
                drop_last=drop_last,
                graph=graph,
                outputs=outputs,
                on_bad_sample=on_bad_sample,
                max_bad_fraction=max_bad_fraction,
            )
            try:
                loader = cls(pipeline, batch_size=batch_size, **options)
            except errors.InvalidArgument as error:
                if not str(error).startswith(f"<{pipeline.name}>"):
                    raise
                raise explained(error, served) from None
        except BaseException:
            try:
                served.close()
            finally:
                served_as.give_back()
            raise
        loader._served, loader._served_as = served, served_as
        # One that is pickled goes to this daemon, which has the dataset.
        source, arguments = loader._made_with
        there = {"address": loader.address, "daemon": "auto", "cpus": None, "memory": None}
        loader._made_with = source, {**arguments, **there}
        return loader

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

    def _check_place(self, may_move: bool = True) -> None:
        try:
            super()._check_place(may_move)
        except errors.FailedPrecondition as error:
            if self._served is not None:
                error.args = (of_late_group(error),)
            raise

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
                raise self._error_of(self._failure)
            self._check_place(may_move=False)
            if self._feed.position.at_epoch_end or not self._feed.steps:
                self._end_epoch()
            try:
                got = self._feed.receive()
                if got is None:
                    self._end_epoch()
                if isinstance(got, Failure):
                    self._failure = got
                    raise self._error_of(got)
                outputs = self._show(got)
                self._feed.look_ahead()
                self._feed.took(got)
                return outputs
            except errors.DaemonLost:
                if self._served is not None:
                    self._served.check()
                raise
            except (errors.Error, StopIteration):
                raise
            except BaseException:
                # Interrupted: a batch may have been received and dropped. The next call goes back
                # to the cursor.
                self._feed.forget()
                raise

    def _error_of(self, failure: Failure) -> errors.Error:
        if self._served is not None:
            self._served.check()
        error = errors.of_failed(failure.failed)
        if self._served is not None and isinstance(error, errors.BadSample):
            error.args = (in_its_words(error),)
        if isinstance(error, errors.DaemonLost):  # of a program's own code nothing is left
            error.state = self._feed.state()
            refusal = None if self._served is None else self._served.refusal
            why = "" if refusal is None else f" (the daemon refused a process: {refusal})"
            error.args = (
                f"{error}{why}. Then loader.load_state_dict(loader.state_dict()) and another `for` "
                "go on with this batch",
            )
        return error

    def _end_epoch(self) -> NoReturn:
        # First: interrupted between the two, the iteration must not run into the next epoch.
        self._end_iteration()
        self._feed.position.begin_epoch(self._feed.position.consumed.epoch + 1)
        self._feed.rest()
        raise StopIteration

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
        """End the stream, and the processes of `from_dataset`. Batches that the program still has
        stay valid. May be called again.
        """
        try:
            self._feed.close()
        finally:
            try:
                if self._served is not None:
                    self._served.close()
            finally:
                if self._served_as is not None and self._feed.is_withdrawn:
                    self._served_as.give_back()
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
