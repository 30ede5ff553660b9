"""From a folder of pictures to tar shards, and a training on several ranks over them.

First `feedwater convert` writes the pipeline's dataset as shards (what is there already stays: the
same command goes on, or has nothing to do). Then the pipeline's `dataset:` is replaced by the one
that reads them, and one process for each rank trains on it. The rest of the pipeline is as it was,
and so are its batches: only where the records lie has changed.

The pipeline delivers `image` (floating point, of one size) and `label`. The shards have to lie
below a root that the daemon declares. The model is a softmax over the pixels, so that no framework
is needed; how the ranks agree on each step is the same for any model:

    python train_shards.py photos.yaml /data/photos-shards --ranks 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import subprocess
import sys
import uuid
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import feedwater


def convert(pipeline: Path, shards: Path, feedwater_command: str) -> Path:
    """Write the shards, and the pipeline over them; return its path."""
    done = subprocess.run([feedwater_command, "convert", pipeline, shards])
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    section = (shards / "dataset.yaml").read_text()
    text, found = re.subn(
        # The section ends where the next line begins with a key.
        r"^dataset:.*\n(?:(?:[ \t#].*)?\n)*",
        lambda _: section,
        pipeline.read_text(),
        flags=re.MULTILINE,
    )
    if found != 1:
        raise SystemExit(f"{pipeline}: found {found} lines that begin with `dataset:`, not one")
    written = shards / f"{pipeline.stem}-shards.yaml"
    written.write_text(text)
    return written


def summed(mine: np.ndarray, links: list[Connection], is_first: bool) -> np.ndarray:
    """Return the sum of all ranks' values: the first rank adds them up and tells the others."""
    if not is_first:
        (link,) = links
        link.send(mine)
        return link.recv()
    total = mine.copy()
    for link in links:
        total += link.recv()
    for link in links:
        link.send(total)
    return total


def train(
    rank: int, pipeline: Path, job: str, links: list[Connection], args: argparse.Namespace
) -> None:
    """Train as one rank. All have the same weights after each step."""
    with feedwater.Loader(
        pipeline,
        batch_size=args.batch_size,
        rank=rank,
        world_size=args.ranks,
        job=job,  # what makes them ranks of one job
        address=args.address,
        output="numpy",
        as_dict=True,
    ) as loader:
        pixels = int(np.prod(loader.fields["image"].shape))
        classes = len(loader.classes)
        weights = np.zeros((pixels + 1, classes))
        for epoch in range(args.epochs):
            totals = np.zeros(3)  # loss, right ones, pictures
            for batch in loader:
                real = batch.get("is_real", np.ones(len(batch["label"]), bool))  # no padding
                label = batch["label"][real]
                inputs = batch["image"][real].reshape(len(label), pixels)
                inputs = np.concatenate([inputs, np.ones((len(label), 1))], axis=1)
                scores = inputs @ weights
                scores -= scores.max(axis=1, keepdims=True)
                log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
                gradient = inputs.T @ (np.exp(log_p) - np.eye(classes)[label])
                loss = -log_p[np.arange(len(label)), label].sum()
                figures = [loss, (scores.argmax(axis=1) == label).sum(), len(label)]
                step = summed(np.append(gradient, figures), links, rank == 0)
                weights -= args.lr * step[:-3].reshape(weights.shape) / max(step[-1], 1)
                totals += step[-3:]
            if rank == 0:
                loss, right, pictures = totals
                print(
                    f"epoch {epoch}: loss {loss / pictures:.4f}, accuracy "
                    f"{right / pictures:.3f} over {pictures:.0f} pictures in {len(loader)} steps",
                    flush=True,
                )


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", type=Path, help="a .yaml file over a folder of pictures")
    parser.add_argument("shards", type=Path, help="the folder for the shards")
    parser.add_argument("--ranks", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, help="of a rank; default: the pipeline's")
    parser.add_argument("--lr", type=float, default=0.01, help="default: %(default)s")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    parser.add_argument(
        "--feedwater", default="feedwater", help="the command; default: on the PATH"
    )
    args = parser.parse_args()

    pipeline = convert(args.pipeline, args.shards, args.feedwater)
    job = f"shards-{uuid.uuid4()}"  # of this run alone
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(args.ranks - 1)]
    links = [[first for first, _ in pairs], *([other] for _, other in pairs)]
    ranks = [
        context.Process(target=train, args=(rank, pipeline, job, links[rank], args))
        for rank in range(args.ranks)
    ]
    for process in ranks:
        process.start()
    for link in sum(pairs, ()):
        link.close()  # so that a rank sees the end of another one
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in ranks))


if __name__ == "__main__":
    main()
