"""Feedwater's Python client: training batches in order, through shared memory.

>>> import feedwater
>>> loader = feedwater.Loader("imagenet-train", batch_size=256)
>>> for image, label in loader:
...     ...

See `Loader`.
"""

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
    PermissionDenied,
    ResourceExhausted,
    Stalled,
)
from .fields import Field
from .habits import Sampler
from .loader import BatchInfo, Loader
from .ragged import Ragged
from .version import __version__

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
    "PermissionDenied",
    "Ragged",
    "ResourceExhausted",
    "Sampler",
    "Stalled",
    "__version__",
]
