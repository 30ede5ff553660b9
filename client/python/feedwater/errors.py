"""The errors that a training program can meet.

Every error is a `feedwater.Error` and has ``code``, the name of its gRPC status code, which says
what to do next; the text names the thing, the place and the likely cure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .wire import BAD_RECORD, NOT_SERVED

if TYPE_CHECKING:
    from .wire import Failed

# As in client/cpp/errors.cc.
BAD_SAMPLE_CURE = (
    ". Mend or remove it, or let the pipeline say 'on_bad_sample: substitute' or 'skip_with_count'"
)

_CODE_NAMES = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]


class Error(RuntimeError):
    """Base of all errors of this package.

    Attributes
    ----------
    code : str
        Name of the gRPC status code, such as ``"NOT_FOUND"``.
    """

    code: str = "INTERNAL"

    def __init__(self, message: str = "", *, code: Optional[str] = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidArgument(Error, ValueError):
    """A request, pipeline or state that can never work."""

    code = "INVALID_ARGUMENT"


class NotFound(Error):
    """An unknown pipeline, root or file."""

    code = "NOT_FOUND"


class PermissionDenied(Error):
    """The user may not use the daemon, or a path leads outside its root."""

    code = "PERMISSION_DENIED"
    # The sockets are closed to this user, as those of a daemon that is starting are to all others.
    may_pass = False


class FailedPrecondition(Error):
    """The ranks of a job disagree, a state belongs to something else, or the loader cannot be used
    here.
    """

    code = "FAILED_PRECONDITION"


class AlreadyExists(Error):
    """Another process has this rank of the job."""

    code = "ALREADY_EXISTS"


class ResourceExhausted(Error):
    """A quota or the daemon's memory budget; the text has the sum."""

    code = "RESOURCE_EXHAUSTED"


class Stalled(Error):
    """The program keeps so many batches that no slot is left to fill, and the copies that it gets
    instead of slots are at their limit.
    """

    code = "DEADLINE_EXCEEDED"


class BadSample(Error):
    """A record could not be made into a sample, and the pipeline says ``on_bad_sample: fail``.

    Attributes
    ----------
    record : int
        The record's number in the dataset.
    path : str
        The file or the place in a shard.
    reason : str
        What is wrong with it.
    """

    code = "DATA_LOSS"

    def __init__(
        self,
        message: str = "",
        *,
        code: Optional[str] = None,
        record: int = -1,
        path: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message, code=code)
        self.record = record
        self.path = path
        self.reason = reason


class ChecksumMismatch(Error):
    """With ``verify=True``: a batch is not what the daemon wrote. The next one asked for is this
    batch once more.
    """

    code = "DATA_LOSS"


class DaemonLost(Error, ConnectionError):
    """The daemon cannot be reached, or it went away and did not come back in time.

    Attributes
    ----------
    state : dict or None
        What `Loader.state_dict` would have given: load it to continue. None when no loader was
        opened.
    """

    code = "UNAVAILABLE"

    def __init__(
        self,
        message: str = "",
        *,
        code: Optional[str] = None,
        state: Optional[dict[str, Any]] = None,
    ) -> None:
        super().__init__(message, code=code)
        self.state = state
        self.greeted = False  # a daemon is there, but did not serve


class NotServed(DaemonLost):
    """No process serves a source or an op of one's own that the pipeline names, or none does any
    more. The daemon is there. As any `DaemonLost` it may pass, and has the state to continue with.
    """


_BY_CODE = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        NotFound,
        PermissionDenied,
        FailedPrecondition,
        AlreadyExists,
        ResourceExhausted,
        DaemonLost,
    )
}


def code_name(number: int) -> str:
    """Name of a numeric gRPC status code."""
    return _CODE_NAMES[number] if 0 <= number < len(_CODE_NAMES) else "UNKNOWN"


def from_code(code: str, message: str) -> Error:
    """Make the error that stands for a status which the daemon gave."""
    cls = _BY_CODE.get(code)
    return Error(message, code=code) if cls is None else cls(message)


def of_failed(failed: Failed) -> Error:
    """Make the error of a batch that could not be made."""
    code = code_name(failed.code)
    text = failed.message.rstrip()  # a traceback ends its line
    if failed.reason == NOT_SERVED:
        return NotServed(text)
    if failed.record < 0:
        return from_code(code, text)
    where = f" ({failed.path})" if failed.path else ""  # records of programs have no file
    return BadSample(
        f"record {failed.record}{where} at epoch {failed.epoch}, step {failed.step}: "
        + text
        + (BAD_SAMPLE_CURE if failed.reason == BAD_RECORD else ""),
        code=code,
        record=failed.record,
        path=failed.path,
        reason=failed.message,
    )
