"""Feedwater's Python client: training batches in order, through shared memory.

>>> import feedwater
>>> loader = feedwater.Loader("imagenet-train", batch_size=256)
>>> for image, label in loader:
...     ...

See `Loader`; `Pipeline` and `ops` write a pipeline in Python, `from_torchvision` makes one of
transforms.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ops
    from .dataset import Dataset
    from .errors import (
        AlreadyExists,
        BadSample,
        ChecksumMismatch,
        DaemonLost,
        Error,
        FailedPrecondition,
        InvalidArgument,
        NotFound,
        NotServed,
        PermissionDenied,
        ResourceExhausted,
        Stalled,
    )
    from .fields import Field
    from .habits import Sampler
    from .loader import BatchInfo, Loader
    from .own_stream import WorkerInfo, get_worker_info
    from .pipeline import Op, Pipeline
    from .ragged import Ragged
    from .served import Served, serve_op, serve_source
    from .torchvision_pipeline import from_torchvision
    from .version import __version__

# A module is imported when a name of it is first asked for: the processes of a dataset of one's own
# need few of them.
_NAMES = {
    "dataset": "Dataset",
    "errors": "AlreadyExists BadSample ChecksumMismatch DaemonLost Error FailedPrecondition "
    "InvalidArgument NotFound NotServed PermissionDenied ResourceExhausted Stalled",
    "fields": "Field",
    "habits": "Sampler",
    "loader": "BatchInfo Loader",
    "own_stream": "WorkerInfo get_worker_info",
    "pipeline": "Op Pipeline",
    "ragged": "Ragged",
    "served": "Served serve_op serve_source",
    "torchvision_pipeline": "from_torchvision",
    "version": "__version__",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "AlreadyExists",
    "BadSample",
    "BatchInfo",
    "ChecksumMismatch",
    "DaemonLost",
    "Dataset",
    "Error",
    "FailedPrecondition",
    "Field",
    "InvalidArgument",
    "Loader",
    "NotFound",
    "NotServed",
    "Op",
    "PermissionDenied",
    "Pipeline",
    "Ragged",
    "ResourceExhausted",
    "Sampler",
    "Served",
    "Stalled",
    "WorkerInfo",
    "__version__",
    "from_torchvision",
    "get_worker_info",
    "ops",
    "serve_op",
    "serve_source",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
        globals()[name] = found
        return found
    if not name.startswith("_"):
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
