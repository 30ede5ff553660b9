"""A user's own dataset and own ops: `serve_source` and `serve_op`."""

from __future__ import annotations

import atexit
import inspect
import math
import re
import weakref
from collections.abc import Callable
from typing import Any, Optional

from . import errors
from .address import APPEARS_S
from .arguments import integer
from .descriptors import close
from .fork_server import check_guarded
from .offer import Offer
from .own_stream import is_iterable
from .pickled import pickled
from .placement import placement
from .private import PrivateDaemon
from .provider import Supervisor
from .samples import FieldNames, SampleField
from .which_daemon import choose_daemon

_MOST_WORKERS = 64

# What this process serves: by address, and by kind and name.
_here: weakref.WeakValueDictionary[tuple[str, str], Served] = weakref.WeakValueDictionary()
_open: weakref.WeakSet[Served] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for served in list(_open):
        served.close()


class Served:
    """What this program provides, until `close`: a context manager.

    Attributes
    ----------
    name : str
        That pipelines give.
    address : str
        The daemon's runtime directory.
    records : int
        Of a source.
    fields : tuple of SampleField
        Of a source: what each of its samples has.
    is_iterable : bool
        A source whose samples are made one after the other.
    """

    def __init__(
        self, supervisor: Supervisor, own: Any, daemon: Optional[PrivateDaemon] = None
    ) -> None:
        self._supervisor = supervisor
        self._own = _reference(own)
        self._daemon = daemon
        self.name = supervisor.offer.name
        self.address = supervisor.address
        # Whoever forgets to close it does so by dropping it, or with the program's end.
        self._dropped = weakref.finalize(self, supervisor.end_soon)
        self._dropped.atexit = False
        _open.add(self)
        described = supervisor.described
        self.fields: tuple[SampleField, ...] = () if described is None else described.plan.fields
        self.records = 0 if described is None else described.records
        self.is_iterable = supervisor.offer.length is not None

    @property
    def is_open(self) -> bool:
        """It is provided: neither closed nor given up."""
        return self._dropped.alive and self._supervisor.error is None

    def is_of(self, own: Any) -> bool:
        """Tell whether it serves this very dataset or function."""
        return self._own() is own

    def check(self) -> None:
        """Raise the error for which it is provided no longer, if there is one."""
        if self._supervisor.error is not None:
            raise self._supervisor.error

    @property
    def refusal(self) -> Optional[str]:
        """Why the daemon did not let a process serve just now; None: it did."""
        return self._supervisor.refusal

    def close(self) -> None:
        """End the processes. Returns when they are gone. May be called again."""
        self._dropped.detach()
        self._supervisor.close()
        if self._daemon is not None:
            self._daemon.release()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return f"<feedwater {self._supervisor.offer.what} at {self.address}{state}>"


def serve_source(
    name: str,
    dataset: Any,
    *,
    workers: int = 4,
    version: str = "",
    fields: Optional[FieldNames] = None,
    timeout: float = 60.0,
    address: Optional[str] = None,
    daemon: str = "auto",
    seeded: bool = True,
    length: Optional[int] = None,
) -> Served:
    """Serve a dataset of one's own to pipelines that say ``dataset: {format: python, name: NAME}``.

    Processes of this program make the records, when the daemon asks for them; order, ranks, resume
    and bad samples are the daemon's. Returns when the first process serves; of an
    iterable dataset, when each one does.

    Parameters
    ----------
    name : str
        1 to 64 letters, digits and ``. _ -``. Programs of one user that give the same name serve
        together: of datasets with the same pickle and the same files of code, or with the same
        `version`.
    dataset : object
        With ``__len__`` and ``__getitem__``: any map-style torch Dataset; or with ``__iter__``,
        whose parts the processes make as `get_worker_info` says. It is pickled now; the
        processes have it as it is at this moment. ``dataset.classes`` become the loader's.
    workers : int
        Processes.
    version : str
        Of what the dataset gives: another version is another dataset, to which no saved state fits.
        Datasets of one version, length and fields are taken for the same, whatever their pickles
        are: give a training and a validation set different ones. Letters, digits and ``. _ -``.
    fields : list of str, or map of str to shape, optional
        Names of the values in a sample, in their order. A shape has None for an axis that differs
        from record to record; a map has the sample's own names, in any order, where it has some,
        and may leave out those of which there is nothing to say.
        Default: keys and attributes have their names, positions are ``field0``, ``field1``, ...;
        inner ones are joined with ``_``. Types and shapes are those of the first, the middle and
        the last record.
    timeout : float
        Seconds that one record may take. A process that takes longer is replaced, and the record
        tried once more; then it is a bad sample. Before anything is served, it holds for each
        record that is looked at. To import and to unpickle the dataset has 300 seconds. At most
        86400.
    address, daemon : str, optional
        As `Loader`'s. A private daemon is this program's: its loaders, earlier and later ones, use
        the same.
    seeded : bool
        Seed the common generators of `random`, NumPy and torch before each record, with what
        depends on the pipeline's seed, the epoch and the record alone. The first record for which a
        process draws from one is made twice. Of an iterable dataset they are seeded where an
        epoch begins, by the pipeline's seed, the epoch and the worker's number. False: each process
        seeds NumPy's and torch's once, at random, before it serves, over what the dataset's modules
        have set.
    length : int, optional
        Of an iterable dataset: samples of an epoch, of all processes. Default: ``__len__``. Its
        pipelines say ``sampler: {shuffle: none}``.

    Raises
    ------
    InvalidArgument
        The dataset cannot be served; the text names the attribute, or the place in a sample.
    AlreadyExists
        Others serve something else under that name, or this program another object.
    DaemonLost
        There is no daemon.
    """
    offer = offer_of(name, version, False, workers, timeout)
    offer.length = length_of(dataset, length)
    offer.seeded, offer.fields = bool(seeded), fields
    return _serve_at(address, daemon, offer, dataset)


def serve_op(
    name: str,
    fn: Callable[..., Any],
    *,
    workers: int = 4,
    version: str = "",
    timeout: float = 60.0,
    address: Optional[str] = None,
    daemon: str = "auto",
) -> Served:
    """Serve an op of one's own to graphs that say ``- python: {name: NAME, in: image, out: image,
    dtype: uint8, shape: [224, 224, 3]}``.

    Parameters
    ----------
    name : str
        1 to 64 letters, digits and ``. _ -``.
    fn : callable
        ``fn(image, ..., rng=None)``: gets the arrays of `in`, of one sample, or of a batch with
        ``batch: true``, and returns those of `out`: an array, or a tuple. They are valid until it
        returns. If it has the argument ``rng``, that is a `numpy.random.Generator` which depends on
        the pipeline's seed, the epoch, the record and the op alone; the common generators of
        `random`, NumPy and torch are seeded likewise. The graph says ``random: true`` then.
    workers : int
        Processes.
    version : str
        Of what the function does: another version is another pipeline, to which no saved state
        fits.
    timeout : float
        Seconds that one call may take: at most 600, since a worker of the daemon waits for it.
    address, daemon : str, optional
        As `Loader`'s. A private daemon is this program's: its loaders, earlier and later ones, use
        the same.

    Raises
    ------
    InvalidArgument
        The function cannot be given to other processes; the text says why.
    AlreadyExists
        Others serve something else under that name, or this program another function.
    DaemonLost
        There is no daemon.
    """
    if not callable(fn):
        raise errors.InvalidArgument(f"fn is {fn!r}: it is a function")
    return _serve_at(address, daemon, offer_of(name, version, True, workers, timeout), fn)


def serve(offer: Offer, own: Any, address: str, daemon: Optional[PrivateDaemon]) -> Served:
    """Serve what was checked, at a daemon that was chosen."""
    before = _here.get((address, offer.what))
    if before is not None and before.is_open and not before.is_of(own):
        raise errors.AlreadyExists(
            f"{offer.what}: this program serves another object under that name, and both would "
            "be mixed. Cure: close() what serve_source() or serve_op() returned for it, or take "
            "another name"
        )
    made = pickled(own, "function" if offer.is_op else "dataset")
    try:
        supervisor = Supervisor(offer, made, address, bool if daemon is None else daemon.ensure)
    except BaseException:
        close(made.fd)
        raise
    supervisor.start()
    served = _here[address, offer.what] = Served(supervisor, own, daemon)
    return served


def _reference(own: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(own)
    except TypeError:  # of a type without them
        return lambda: own


def length_of(dataset: Any, length: Optional[int]) -> Optional[int]:
    """Return the samples of an epoch of an iterable dataset; None of one with numbered records.

    Raises
    ------
    InvalidArgument
        It is neither, or its length is not known.
    """
    kind = type(dataset).__qualname__
    if isinstance(dataset, type):
        raise errors.InvalidArgument(
            f"the dataset is the class {dataset.__qualname__}: give an object of it, "
            f"{dataset.__qualname__}(...)"
        )
    if inspect.isgenerator(dataset) or inspect.isgeneratorfunction(dataset):
        raise errors.InvalidArgument(
            f"the dataset is a {kind}, {dataset.__qualname__}: it gives its samples once, and no "
            "other process can have it. Cure: an object whose __iter__ begins anew, such as "
            "class Samples: with def __iter__(self): yield ..."
        )
    if not is_iterable(dataset):
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                raise errors.InvalidArgument(
                    f"the dataset, of type {kind}, has no {method}: a dataset has __len__ and "
                    "__getitem__, or __iter__"
                )
        if length is not None:
            raise errors.InvalidArgument(
                f"length={length}: {kind} says its length itself, with __len__; leave it out"
            )
        return None
    if length is None:
        try:
            length = len(dataset)
        except (TypeError, NotImplementedError):
            raise errors.InvalidArgument(
                f"{kind} is an iterable dataset without __len__: say length=, the samples of an "
                "epoch on all ranks together. With parts of several sizes, say the smallest "
                "worker's times the number of workers: what is over is left out. Where it is too "
                "large, the error at the end of the shortest part says the length that fits it"
            ) from None
    count = integer("length", length)
    if count < 1:
        raise errors.InvalidArgument(f"length is {count}: an epoch has at least one sample")
    return count


def offer_of(name: str, version: str, is_op: bool, workers: Any, timeout: float) -> Offer:
    """Check what is common to all that is served."""
    check_guarded()
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII):
        raise errors.InvalidArgument(
            f"name is {name!r}: it is 1 to 64 letters, digits, '.', '_' and '-'"
        )
    if not isinstance(version, str) or not re.fullmatch(r"[\w.-]{0,64}", version, re.ASCII):
        raise errors.InvalidArgument(
            f"version is {version!r}: it is a text of at most 64 letters, digits, '.', '_' and '-'"
        )
    count = integer("workers", workers)
    if not 1 <= count <= _MOST_WORKERS:
        raise errors.InvalidArgument(f"workers is {workers}: it is 1 to {_MOST_WORKERS}")
    if not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
        raise errors.InvalidArgument(f"timeout is {timeout!r}: it is a number of seconds")
    return Offer(name, version, is_op, count, float(timeout))


def _serve_at(address: Optional[str], which: str, offer: Offer, own: Any) -> Served:
    found, daemon = choose_daemon(
        address,
        which,
        None,
        None,
        placement(None, None),
        None,
        is_name=False,
        patience=APPEARS_S,
    )
    try:
        return serve(offer, own, found, daemon)
    except BaseException:
        if daemon is not None:
            daemon.release()
        raise
