"""A weighted mix: what each of its sources gives, batch by batch.

The pipeline's dataset is a mix, and `dataset_id` is one of its outputs. For example

    dataset:
      mix:
        - {format: webdataset, root: data, path: clean, weight: 3}
        - {format: webdataset, root: data, path: web, weight: 1}

gives three samples of `clean` for each one of `web`, at any moment of an epoch. The number tells
the samples apart, so that a loss, an accuracy or, as here, the mean of a field can be had for each
source. A source goes on in the next epoch where it ended in this one. No torch is needed:

    python mix_shares.py mix.yaml --field image
"""

from __future__ import annotations

import argparse

import numpy as np

import feedwater


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--field", help="an output whose mean is printed for each source")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    args = parser.parse_args()

    with feedwater.Loader(
        args.pipeline, address=args.address, output="numpy", as_dict=True
    ) as loader:
        for name in filter(None, ("dataset_id", args.field)):
            if name not in loader.fields:
                raise SystemExit(f"the pipeline has no output `{name}`")
        for epoch in range(args.epochs):
            samples = np.zeros(0, np.int64)  # by source
            sums = np.zeros(0)
            for batch in loader:
                source = batch["dataset_id"]
                if "is_real" in batch:
                    source = source[batch["is_real"]]
                samples = added(samples, np.bincount(source))
                if args.field:
                    values = batch[args.field].reshape(len(batch["dataset_id"]), -1).mean(axis=1)
                    if "is_real" in batch:
                        values = values[batch["is_real"]]
                    sums = added(sums, np.bincount(source, weights=values))
            for number, count in enumerate(samples.tolist()):
                mean = f", mean {sums[number] / max(count, 1):.3f}" if args.field else ""
                share = count / max(samples.sum(), 1)
                print(f"epoch {epoch}, source {number}: {count} samples, {share:.1%}{mean}")


def added(sums: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return the sum of two arrays, the shorter one filled up with zeros."""
    result = np.zeros(max(len(sums), len(more)), sums.dtype)
    result[: len(sums)] += sums
    result[: len(more)] += more.astype(sums.dtype)
    return result


if __name__ == "__main__":
    main()
