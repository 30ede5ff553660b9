"""torchvision's ImageFolder in a DataLoader."""

from torch_loader import epochs_of
from torchvision_cpu import TRAIN, datasets


def epochs(folder, workers):
    return epochs_of(datasets.ImageFolder(folder, TRAIN), workers, shuffle=True)
