"""Hugging Face datasets over a Parquet file, which `load_dataset` unpacks into its cache."""

import tempfile

import datasets
from huggingface import epochs_over, table_of


def write(photos, folder):
    table_of(photos).to_parquet(str(folder / "photos.parquet"), batch_size=100)


def epochs(folder, workers):
    cache = tempfile.mkdtemp(prefix="cache-", dir=folder.parent)
    files = str(folder / "photos.parquet")
    table = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    return epochs_over(table, workers)
