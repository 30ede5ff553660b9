"""Training on Parquet files that hold images, as hubs of datasets give them.

A row has an image (a struct of `bytes` and `path`, or its bytes alone) and a label, a number or a
text. The pipeline is written in Python: `image.bytes` is decoded like any image file, and texts
become classes. The first opening unpacks the rows, once, below the daemon's state_dir; batches come
meanwhile. The model is a softmax over the pixels, so that no framework is needed:

    python train_parquet.py --root data --path beans --image image.bytes --label labels

The daemon's feedwater.yaml declares the root: `roots: {data: /data}`. Parquet needs a build with
pyarrow: `scripts/setup --parquet`.
"""

from __future__ import annotations

import argparse

import numpy as np

import feedwater
from feedwater import Pipeline, ops


def make_pipeline(args: argparse.Namespace) -> Pipeline:
    label = {"from": args.label, **({"classes": "auto"} if args.text_labels else {})}
    return Pipeline(
        dataset={
            "format": "parquet",
            "root": args.root,
            "path": args.path,
            "fields": {"data": args.image, "label": label},
        },
        sampler={"shuffle": "full", "seed": 42, "last": "partial"},
        graph=[
            ops.decode(),
            ops.random_resized_crop(args.size, scale=[0.5, 1.0]),
            ops.random_horizontal_flip(),
            ops.normalize([127.0] * 3, [64.0] * 3),
        ],
        batch=args.batch_size,
        outputs=["image", "label"],
        name="parquet",
    )


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, help="a root of the daemon's configuration")
    parser.add_argument("--path", default="", help="the folder, or file, below it")
    parser.add_argument("--image", default="image.bytes", help="column; default: %(default)s")
    parser.add_argument("--label", default="label", help="column; default: %(default)s")
    parser.add_argument("--text-labels", action="store_true", help="labels are texts, not numbers")
    parser.add_argument("--classes", type=int, help="of labels that are numbers; default: by file")
    parser.add_argument("--size", type=int, default=32, help="of images; default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.01, help="default: %(default)s")
    args = parser.parse_args()

    with feedwater.Loader(make_pipeline(args), output="numpy") as loader:
        classes = len(loader.classes) or args.classes
        if not classes:
            parser.error("the files do not say how many classes there are: give --classes")
        weights = np.zeros((3 * args.size**2 + 1, classes))
        for epoch in range(args.epochs):
            right = seen = 0
            loss = 0.0
            for image, label in loader:
                inputs = np.c_[image.reshape(len(label), -1), np.ones(len(label))]
                scores = inputs @ weights
                scores -= scores.max(axis=1, keepdims=True)
                log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
                gradient = inputs.T @ (np.exp(log_p) - np.eye(classes)[label])
                weights -= args.lr * gradient / len(label)
                loss -= log_p[np.arange(len(label)), label].sum()
                right += int((scores.argmax(axis=1) == label).sum())
                seen += len(label)
            print(f"epoch {epoch}: loss {loss / seen:.4f}, accuracy {right / seen:.3f} over "
                  f"{seen} rows", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
