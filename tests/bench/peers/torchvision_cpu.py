"""Makes torchvision's import pass beside the CPU build of torch, for which it has no wheel: its
Python transforms work, its compiled operators stay away. A torchvision that fits is left alone.
"""

from importlib.util import find_spec
from pathlib import Path

import torch.library


def _has_operators() -> bool:
    folder = Path(find_spec("torchvision").origin).parent
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:  # of another torch
        return False
    return hasattr(torch.ops.torchvision, "nms")


_register_fake = torch.library.register_fake


def _skip_torchvision(name, *args, **kwargs):
    """Leave out the fakes of operators that are not there."""
    if isinstance(name, str) and name.startswith("torchvision::"):
        return lambda function: function
    return _register_fake(name, *args, **kwargs)


if not _has_operators():
    torch.library.register_fake = _skip_torchvision
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("roi_align", "roi_pool", "nms", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
        for _op in (_name, f"_{_name}_backward"):
            _library.define(f"{_op}(Tensor a) -> Tensor")

from torchvision import datasets, transforms  # noqa: E402

TRAIN = transforms.Compose([
    transforms.RandomResizedCrop(224),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])  # fmt: skip

__all__ = ["TRAIN", "datasets"]
