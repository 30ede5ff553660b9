"""Several augmented views of each image, for contrastive learning, with the pipeline in Python.

The graph is made by a loop, so that the number of views is an argument: each image is decoded once
and cropped as often as there are views. `--print` shows the pipeline file that the daemon gets.

    python views_in_python.py --root photos --views 4
    python views_in_python.py --root photos --views 4 --print > views.yaml

The daemon's feedwater.yaml declares the root: `roots: {photos: /data/photos}`, a folder of class
folders.
"""

from __future__ import annotations

import argparse

import feedwater
from feedwater import Op, Pipeline, ops

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def view(name: str, size: int) -> list[Op]:
    """The ops of one view: a crop of the decoded image into a field of its own, and its colours."""
    return [
        ops.random_resized_crop(size, scale=[0.2, 1.0], in_="image", out=name),
        ops.random_horizontal_flip(in_=name),
        ops.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, in_=name),
        ops.normalize(MEAN, STD, in_=name),
    ]


def make_pipeline(root: str, path: str, views: int, size: int, batch_size: int) -> Pipeline:
    names = [f"view_{number}" for number in range(views)]
    return Pipeline(
        dataset={"format": "image_folder", "root": root, **({"path": path} if path else {})},
        sampler={"shuffle": "full", "seed": 42, "last": "drop"},
        graph=[ops.decode(), *(op for name in names for op in view(name, size))],
        batch=batch_size,
        outputs=[*names, "label"],
        on_bad_sample="substitute",
        name="views",
    )


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", required=True, help="a root of the daemon's configuration")
    parser.add_argument("--path", default="", help="the folder below it")
    parser.add_argument("--views", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--size", type=int, default=224, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--print", action="store_true", help="print the pipeline file and end")
    args = parser.parse_args()

    pipeline = make_pipeline(args.root, args.path, args.views, args.size, args.batch_size)
    if args.print:
        print(pipeline.to_yaml(), end="")
        return
    with feedwater.Loader(pipeline, output="numpy") as loader:
        for step, (*views, label) in enumerate(loader):
            spread = [float((one - views[0]).std()) for one in views]
            print(f"step {step}: {len(label)} images, views {views[0].shape[1:]}, "
                  f"deviation from the first {', '.join(f'{s:.2f}' for s in spread)}")  # fmt: skip


if __name__ == "__main__":
    main()
