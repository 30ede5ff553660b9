"""PyTorch's DataLoader with torchvision's transforms over an ImageFolder."""

import torch
from common import BATCH, arguments, measure
from torchvision_cpu import TRAIN, datasets

folder, workers = arguments()
torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(
    datasets.ImageFolder(folder, TRAIN), batch_size=BATCH, shuffle=True, drop_last=True,
    num_workers=workers, persistent_workers=workers > 0,
)  # fmt: skip
measure(lambda: (len(label) for _, label in loader))
