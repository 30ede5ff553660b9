"""A user's own code, as a process runs it: a dataset that is looked at, one record, one call."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from .payload import FixedLayout
from .sample_values import DTYPES, SampleError, tensor_of
from .samples import Check, FieldNames, Plan, plan_of, reader_of
from .seeding import Draws, Seeding
from .wire import MAX_TENSORS

MAX_TEXT = 8192

# The layout if all have one, the types and the tensors.
Made = tuple[Optional[FixedLayout], Sequence[int], Sequence[Any]]


class Described(NamedTuple):
    """What a dataset has."""

    records: int
    plan: Plan
    classes: list[str]
    warning: str = ""


def failure_text(error: BaseException) -> str:
    """Return what went wrong and where, without frames of this package."""
    if isinstance(error, SampleError):
        return str(error)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next
    kind = type(error)
    head = traceback.format_exception_only(kind, error)[-1].strip()
    text = f"{head}\n{''.join(traceback.format_exception(kind, error, frames))}"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_TEXT:
        half = MAX_TEXT // 2 - 8
        data = data[:half] + b"\n[...]\n" + data[-half:]
    return data.decode("utf-8", "ignore")


def describe(
    dataset: Any, names: Optional[FieldNames], begin: Callable[[str], object]
) -> Described:
    """Look at a dataset's length and at its first, middle and last record.

    Parameters
    ----------
    begin : callable
        Gets what is made next, before each step that may take its time.

    Raises
    ------
    SampleError
        It is no dataset, or has samples that cannot be made into fields.
    """
    begin("its length")
    try:
        records = len(dataset)
    except BaseException as error:
        raise SampleError(f"the dataset has no length: {failure_text(error)}") from None
    if records <= 0:
        raise SampleError("the dataset has no records")
    samples, seeding = [], Seeding()
    for record in sorted({0, records // 2, records - 1}):
        seeding.seed(0, record)
        begin(f"record {record} of {records}")
        try:
            samples.append((record, dataset[record]))
        except BaseException as error:
            raise SampleError(f"record {record} of {records}: {failure_text(error)}") from None
    return Described(records, plan_of(samples, names), classes_of(dataset))


def classes_of(dataset: Any) -> list[str]:
    """Return the names of its classes, where it has some."""
    classes = getattr(dataset, "classes", None)
    if not isinstance(classes, (list, tuple)) or not all(isinstance(one, str) for one in classes):
        return []
    return list(classes)


# --- what makes one entry -------------------------------------------------------------------------


class Makes:
    """Makes samples into tensors."""

    def __init__(self, plan: Plan) -> None:
        self._read = reader_of(plan.skeleton)
        self._checks = [Check(field) for field in plan.fields]
        self._takes = [check.take for check in self._checks]
        self._codes = [check.code for check in self._checks]
        self._layout = None
        if all(field.is_fixed for field in plan.fields):
            self._layout = FixedLayout(self._codes, [field.shape for field in plan.fields])

    def of(self, sample: Any) -> Made:
        """Return a sample's tensors."""
        values = self._read(sample)
        return self._layout, self._codes, [take(value) for take, value in zip(self._takes, values)]


class Source:
    """Makes records."""

    def __init__(self, dataset: Any, plan: Plan) -> None:
        self._dataset = dataset
        self._of = Makes(plan).of

    def make(self, record: int, first: int, second: int, inputs: Any) -> Made:
        """Return a record's tensors."""
        return self._of(self._dataset[record])


class Op:
    """Runs an op."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._draws = Draws()
        self._rng = rng_of(function)
        self._name = getattr(function, "__name__", type(function).__qualname__)

    def make(self, record: int, first: int, second: int, inputs: list[np.ndarray]) -> Made:
        """Return what the function makes of its inputs."""
        if self._rng is not None and second & 1:  # the graph says `random: true`
            made = self._function(*inputs, rng=self._draws.of(first, second))
        elif self._rng is not None and self._rng.default is self._rng.empty:
            raise SampleError(
                f"the function {self._name} has the argument rng, and the op gives none: say "
                "'random: true' in the graph, or give rng a default"
            )
        else:
            made = self._function(*inputs)
        if made is None:
            raise SampleError(
                f"the function {self._name} returned None: it returns the array of `out`, or a "
                "tuple of them. Is a `return` missing?"
            )
        row = made if isinstance(made, (tuple, list)) else (made,)
        if len(row) > MAX_TENSORS:
            raise SampleError(f"the function returned {len(row)} values")
        tensors = [tensor_of(value, f"value {number}") for number, value in enumerate(row)]
        return None, [DTYPES[dtype] for _, dtype in tensors], [made for made, _ in tensors]


def rng_of(function: Callable[..., Any]) -> Optional[inspect.Parameter]:
    """Return a function's argument ``rng``, also as one of ``**others``; None: it takes none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # built in
        return None
    if "rng" in parameters:
        return parameters["rng"]
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return inspect.Parameter("rng", inspect.Parameter.KEYWORD_ONLY, default=None)
    return None
