"""PyTorch's DataLoader over np.memmap of a file of tokens."""

import numpy as np
import torch
from memmap_tokens import DTYPE, LENGTH, WINDOWS
from torch_loader import epochs_of


class Windows(torch.utils.data.Dataset):
    """Window i and the tokens that follow each of its own."""

    def __init__(self, path, dtype: str) -> None:
        self.tokens = np.memmap(path, DTYPE, "r")
        self.dtype = dtype

    def __len__(self) -> int:
        return WINDOWS

    def __getitem__(self, index: int):
        rows = self.tokens[index * LENGTH : (index + 1) * LENGTH + 1].astype(self.dtype)
        return torch.from_numpy(rows[:-1]), torch.from_numpy(rows[1:])


def epochs(folder, workers, dtype="uint16"):
    return epochs_of(Windows(folder / "train.bin", dtype), workers, shuffle=True)
