"""MosaicML Streaming over MDS shards, with torchvision's transforms in a DataLoader."""

from torchvision_cpu import TRAIN  # isort: skip; before streaming, which imports torchvision

import streaming
from common import BATCH
from labelled import photos_of
from PIL import Image
from torch_loader import epochs_of


def write(photos, folder):
    columns = {"image": "jpeg", "label": "int"}
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit="32mb") as writer:
        for path, label in photos_of(photos):
            with Image.open(path) as image:  # whose file MDSWriter takes as it is
                writer.write({"image": image, "label": label})


class Photos(streaming.StreamingDataset):
    """The shards' samples, transformed."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return TRAIN(sample["image"].convert("RGB")), sample["label"]


def epochs(folder, workers):
    streaming.base.util.clean_stale_shared_memory()
    return epochs_of(Photos(local=str(folder), shuffle=True, batch_size=BATCH), workers)
