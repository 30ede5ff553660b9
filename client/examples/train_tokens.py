"""Next-token training on token files: a bigram model in NumPy.

The pipeline delivers windows of a flat file of token numbers, and the same windows one token later:

    dataset: {format: tokens, root: data, path: train.bin, length: 256, targets: true}
    sampler: {shuffle: full, seed: 1}
    batch: {size: 16}
    outputs: [tokens, targets]

Such a file is what `numpy.ndarray.tofile` writes, with any tokenizer; with the bytes of a text as
its tokens:

    numpy.fromfile("book.txt", numpy.uint8).astype("<u2").tofile("train.bin")

The model is a table of scores: one row for each token, one column for the token behind it. It
learns how often which follows which, and no framework is needed; a larger model takes the same two
outputs:

    python train_tokens.py book --vocabulary 256
"""

from __future__ import annotations

import argparse

import numpy as np

import feedwater


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--vocabulary", type=int, default=256, help="tokens; default: %(default)s")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    args = parser.parse_args()
    size = args.vocabulary

    with feedwater.Loader(
        args.pipeline, address=args.address, output="numpy", as_dict=True
    ) as loader:
        if "targets" not in loader.fields:
            raise SystemExit("the pipeline has no output `targets`: say `targets: true` in dataset")
        scores = np.zeros((size, size))
        for epoch in range(args.epochs):
            losses = []
            for batch in loader:
                tokens = batch["tokens"].astype(np.int64)
                if tokens.max() >= size or batch["targets"].max() >= size:
                    raise SystemExit(f"there are tokens beyond --vocabulary {size}")
                # How often which token followed which is all that a bigram model needs to know.
                pairs = np.bincount((tokens * size + batch["targets"]).ravel(), minlength=size**2)
                pairs = pairs.reshape(size, size)
                log_p = scores - scores.max(axis=1, keepdims=True)
                log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
                losses.append(-(pairs * log_p).sum() / tokens.size)
                # Each token's row moves by the mean over its own places, however rare it is.
                places = pairs.sum(axis=1, keepdims=True)
                error = np.exp(log_p) * (places > 0) - pairs / np.maximum(places, 1)
                scores -= args.lr * error
            print(
                f"epoch {epoch}: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last, over "
                f"{tokens.size * len(losses)} tokens"
            )


if __name__ == "__main__":
    main()
