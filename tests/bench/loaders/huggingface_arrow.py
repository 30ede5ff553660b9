"""Hugging Face datasets over the Arrow files of `save_to_disk`, which it maps."""

import datasets
from huggingface import epochs_over, table_of


def write(photos, folder):
    table_of(photos).save_to_disk(str(folder))


def epochs(folder, workers):
    return epochs_over(datasets.load_from_disk(str(folder)), workers)
