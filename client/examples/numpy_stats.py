"""Mean and standard deviation of each channel of a dataset: the values that `normalize` wants.

The pipeline delivers `image` without `normalize`: for instance decode, resize and center_crop, with
`sampler: {shuffle: none, last: partial}`, so that each image counts once. With `is_real` among its
outputs, padding does not count. Every pixel weighs the same. No torch is needed:

    python numpy_stats.py raw-pixels.yaml
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from tqdm import tqdm

import feedwater


class Moments:
    """Mean and deviation of values that come in parts. Those of uint8 are exact: they are counted,
    not added up.
    """

    def __init__(self, channels: int) -> None:
        self._counts = np.zeros((channels, 256), np.int64)  # of uint8
        self._sums = np.zeros((channels, 2))  # of floats: values, squares
        self._number = 0

    def add(self, values: np.ndarray) -> None:
        """Take one more part: the channels as last axis."""
        rows = values.reshape(-1, values.shape[-1])
        self._number += len(rows)
        for channel, column in enumerate(rows.T):
            if values.dtype == np.uint8:
                self._counts[channel] += np.bincount(column, minlength=256)
            else:
                column = column.astype(np.float64)
                self._sums[channel] += column.sum(), column @ column

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of each channel."""
        levels = np.arange(256, dtype=np.int64)
        total = self._counts @ levels + self._sums[:, 0]
        squares = self._counts @ levels**2 + self._sums[:, 1]
        mean = total / self._number
        return mean, np.sqrt(np.maximum(squares / self._number - mean**2, 0))


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    args = parser.parse_args()

    with feedwater.Loader(
        args.pipeline, address=args.address, output="numpy", as_dict=True
    ) as loader:
        field = loader.fields.get("image")
        if field is None or field.layout not in ("HWC", "CHW"):
            raise SystemExit("the pipeline has no output `image` with channels")
        channels = field.shape[0 if field.layout == "CHW" else -1]
        moments, images, lowest, highest = Moments(channels), 0, 0.0, 0.0
        for batch in tqdm(loader, unit="batch", disable=None):
            image = batch["image"]
            if "is_real" in batch:
                image = image[batch["is_real"]]
            if field.layout == "CHW":
                image = np.moveaxis(image, 1, -1)
            moments.add(image)
            images += len(image)
            lowest = min(lowest, float(image.min(initial=0)))
            highest = max(highest, float(image.max(initial=0)))
        records = len(loader.dataset)
    if images == 0:
        raise SystemExit("no images: the dataset is smaller than a batch, and `last` is drop")
    mean, std = moments.result()
    if images != records:
        print(
            f"note: {images} images of {records}; `last: partial` takes each once", file=sys.stderr
        )
    values = f"mean: {listed(mean)}, std: {listed(std)}"
    if field.dtype != np.uint8 and (lowest < 0 or highest <= 1):
        print(
            f"note: values from {lowest:.3f} to {highest:.3f} are no pixels of 0 to 255: for the "
            "line that a pipeline wants, take `normalize` out of this one",
            file=sys.stderr,
        )
        print(values)
    elif not std.all():
        print(
            "note: a channel is the same everywhere: `normalize` cannot divide by 0",
            file=sys.stderr,
        )
        print(values)
    else:
        print(f"- normalize: {{in: image, {values}}}")


def listed(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.3f}" for value in values) + "]"


if __name__ == "__main__":
    main()
