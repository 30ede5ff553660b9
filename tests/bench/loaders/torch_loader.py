"""What loaders on PyTorch's DataLoader share."""

from collections.abc import Callable, Iterable

import torch
from common import BATCH


def epochs_of(data, workers: int, **options) -> Callable[[], Iterable[int]]:
    """Return epochs of a DataLoader whose batches are (samples, labels)."""
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        data, batch_size=BATCH, drop_last=True, num_workers=workers, persistent_workers=True,
        **options,
    )  # fmt: skip
    return lambda: (len(label) for _, label in loader)
