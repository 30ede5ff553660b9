"""Learn from boxes which parts of a picture show which class: a training loop over COCO
annotations, whose number of boxes differs from picture to picture.

The pipeline delivers `image` (uint8, HWC, of one size), `boxes` (ragged, left, top, right and
bottom edge in the picture's own pixels), `labels` (ragged), and the picture's own `width` and
`height`:

    dataset:
      format: coco
      root: coco
      path: train2017
      annotations: annotations/instances_train2017.json
      fields: {data: data, boxes: boxes, labels: labels, width: width, height: height}
    graph: [decode: {}, resize: {size: [64, 64]}]
    outputs: [image, {boxes: {max_rows: 100}}, {labels: {max_rows: 100}}, width, height]

The model is a softmax over the mean colour of each cell of 8x8 pixels, so that no framework is
needed; what is done with the boxes is the same for any model:

    python detect_numpy.py coco-train --epochs 3
"""

from __future__ import annotations

import argparse

import numpy as np

import feedwater

CELL = 8  # pixels


def targets(
    boxes: feedwater.Ragged,
    labels: feedwater.Ragged,
    scale: np.ndarray,
    cells: tuple[int, int],
    background: int,
) -> np.ndarray:
    """Return the class of each cell of each picture: that of the last box over its middle."""
    # All boxes of the batch at once; `lengths` says how many belong to each picture.
    scaled = boxes.values * np.repeat(np.tile(scale, 2), boxes.lengths, axis=0)
    scaled = feedwater.Ragged(scaled, boxes.offsets)
    rows, columns = np.indices(cells) * CELL + CELL / 2
    wanted = np.full((len(boxes), *cells), background)
    for picture, own, names in zip(wanted, scaled, labels):
        for (left, top, right, bottom), name in zip(own, names):
            inside = (left <= columns) & (columns < right) & (top <= rows) & (rows < bottom)
            picture[inside] = name
    return wanted


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=2.0, help="default: %(default)s")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    args = parser.parse_args()

    with feedwater.Loader(
        args.pipeline, address=args.address, output="numpy", as_dict=True
    ) as loader:
        for name in ("boxes", "labels"):
            if loader.fields[name].shape[:1] != (None,):
                raise SystemExit(f"the pipeline's output `{name}` is not ragged")
        height, width, channels = loader.fields["image"].shape
        cells = (height // CELL, width // CELL)
        background = len(loader.classes)
        weights = np.zeros((channels + 1, background + 1))
        for epoch in range(args.epochs):
            right = seen = found = 0
            for batch in loader:
                pixels = batch["image"][:, : cells[0] * CELL, : cells[1] * CELL] / 255.0
                colours = pixels.reshape(-1, cells[0], CELL, cells[1], CELL, channels).mean((2, 4))
                inputs = np.concatenate([colours, np.ones((*colours.shape[:3], 1))], axis=-1)
                size = np.stack([batch["width"], batch["height"]], axis=1)
                wanted = targets(
                    batch["boxes"], batch["labels"], [width, height] / size, cells, background
                )
                scores = inputs @ weights
                chances = np.exp(scores - scores.max(-1, keepdims=True))
                chances /= chances.sum(-1, keepdims=True)
                right += int((scores.argmax(-1) == wanted).sum())
                seen += wanted.size
                found += len(batch["boxes"].values)
                error = chances - np.eye(background + 1)[wanted]
                gradient = np.tensordot(inputs, error, axes=([0, 1, 2],) * 2)
                weights -= args.lr * gradient / wanted.size
            print(
                f"epoch {epoch}: {found} boxes, {100 * right / max(seen, 1):.1f} % of cells right"
            )


if __name__ == "__main__":
    main()
