"""webdataset over tar shards, with torchvision's transforms in its workers."""

import torch
import webdataset
from common import BATCH
from labelled import photos_of
from torchvision_cpu import TRAIN

SHARDS = 8


def write(photos, folder):
    found = photos_of(photos)
    pattern, count = str(folder / "photos-%06d.tar"), -(-len(found) // SHARDS)
    with webdataset.ShardWriter(pattern, maxcount=count, verbose=0) as writer:
        for i, (path, label) in enumerate(found):
            writer.write({"__key__": f"{i:06}", "jpg": path.read_bytes(), "cls": label})


def epochs(folder, workers):
    torch.set_num_threads(1)
    shards = sorted(map(str, folder.glob("*.tar")))
    data = (
        webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(TRAIN, lambda label: label)
        .batched(BATCH, partial=False)
    )
    loader = webdataset.WebLoader(
        data, batch_size=None, num_workers=workers, persistent_workers=True
    )
    return lambda: (len(label) for _, label in loader)
