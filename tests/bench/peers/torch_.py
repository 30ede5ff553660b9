"""PyTorch's DataLoader with torchvision's transforms over an ImageFolder."""

import torch
import torch.library
from common import BATCH, arguments, measure

# torchvision has no wheel for the CPU build of torch: its Python transforms work, its compiled
# operators stay away. Registering their fakes would fail, so that is left out.
_register_fake = torch.library.register_fake


def _skip_torchvision(name, *args, **kwargs):
    if isinstance(name, str) and name.startswith("torchvision::"):
        return lambda function: function
    return _register_fake(name, *args, **kwargs)


torch.library.register_fake = _skip_torchvision
_library = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("roi_align", "roi_pool", "nms", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
    for _op in (_name, f"_{_name}_backward"):
        _library.define(f"{_op}(Tensor a) -> Tensor")

from torchvision import datasets, transforms  # noqa: E402

folder, workers = arguments()
torch.set_num_threads(1)
transform = transforms.Compose([
    transforms.RandomResizedCrop(224),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])  # fmt: skip
loader = torch.utils.data.DataLoader(
    datasets.ImageFolder(folder, transform), batch_size=BATCH, shuffle=True, drop_last=True,
    num_workers=workers, persistent_workers=workers > 0,
)  # fmt: skip
measure(lambda: (len(label) for _, label in loader))
