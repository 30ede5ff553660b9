"""Hugging Face datasets, with torchvision's transforms in a DataLoader."""

import os

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

import datasets
from labelled import photos_of
from torch_loader import epochs_of
from torchvision_cpu import TRAIN


def table_of(photos) -> datasets.Dataset:
    """Return the photos' files and labels as `datasets` keeps them."""
    found = photos_of(photos)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {
        "image": [{"bytes": path.read_bytes(), "path": path.name} for path, _ in found],
        "label": [label for _, label in found],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def transformed(rows: dict) -> dict:
    return {
        "image": [TRAIN(image.convert("RGB")) for image in rows["image"]], "label": rows["label"]
    }  # fmt: skip


def both(samples: list[dict]):
    """Collate samples as (images, labels)."""
    from torch.utils.data import default_collate

    return default_collate([(sample["image"], sample["label"]) for sample in samples])


def epochs_over(table: datasets.Dataset, workers: int):
    return epochs_of(table.with_transform(transformed), workers, shuffle=True, collate_fn=both)
