"""Feedwater's Python client: training batches in order, through shared memory.

>>> import feedwater
>>> loader = feedwater.Loader("imagenet-train", batch_size=256)
>>> for image, label in loader:
...     ...

See `Loader`; `Pipeline` and `ops` write a pipeline in Python, `from_torchvision` makes one of
transforms.
"""

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
    PermissionDenied,
    ResourceExhausted,
    Stalled,
)
from .fields import Field
from .habits import Sampler
from .loader import BatchInfo, Loader
from .pipeline import Op, Pipeline
from .ragged import Ragged
from .torchvision_pipeline import from_torchvision
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
    "Op",
    "PermissionDenied",
    "Pipeline",
    "Ragged",
    "ResourceExhausted",
    "Sampler",
    "Stalled",
    "__version__",
    "from_torchvision",
    "ops",
]
