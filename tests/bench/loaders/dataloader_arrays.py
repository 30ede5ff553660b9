"""PyTorch's DataLoader over np.load(mmap_mode="r")."""

import numpy as np
import torch
from torch_loader import epochs_of


class Arrays(torch.utils.data.Dataset):
    """Record i of both arrays."""

    def __init__(self, folder) -> None:
        self.images = np.load(folder / "images.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return torch.from_numpy(np.array(self.images[index])), int(self.labels[index])


def epochs(folder, workers):
    return epochs_of(Arrays(folder), workers, shuffle=True)
