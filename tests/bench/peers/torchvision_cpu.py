"""Makes torchvision's import pass beside the CPU build of torch, for which it has no wheel: its
Python transforms work, its compiled operators stay away.
"""

import torch.library

_register_fake = torch.library.register_fake


def _skip_torchvision(name, *args, **kwargs):
    """Leave out the fakes of operators that are not there."""
    if isinstance(name, str) and name.startswith("torchvision::"):
        return lambda function: function
    return _register_fake(name, *args, **kwargs)


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
