"""Train a small image classifier from a feedwaterd, on one rank or many. Stop it at any moment: the
next start goes on with the very next sample.

One process, or two:

    python train_classifier.py shapes --epochs 5
    torchrun --nproc-per-node 2 train_classifier.py shapes --epochs 5

The pipeline delivers `image` (floating point, CHW) and `label`. Every --save-every steps, and after
every epoch, the model, the optimizer and the loader's position go into one file, in one step: a
kill -9 leaves the checkpoint before or the one after, never half of one. The same command continues
from there, also with another number of ranks: the position is that of all ranks together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import feedwater


def parse_arguments() -> argparse.Namespace:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, help="samples per rank; default: the pipeline's")
    parser.add_argument("--lr", type=float, default=0.01, help="of Adam; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the weights; default: %(default)s")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    parser.add_argument(
        "--checkpoint", type=Path, default=Path("checkpoint.pt"), help="default: %(default)s"
    )
    parser.add_argument(
        "--save-every", type=int, default=100, metavar="STEPS", help="default: %(default)s"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FOLDER",
        help="write rank0.jsonl, rank1.jsonl, ... there: a digest of each step's batch",
    )
    args = parser.parse_args()
    if args.save_every < 1:
        parser.error("--save-every is at least 1")
    return args


class Classifier(nn.Module):
    """Two convolutions and a linear layer: enough for small pictures, of any size."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        )  # fmt: skip
        self.head = nn.Linear(32 * 4 * 4, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).flatten(1))


class Journal:
    """A JSON line for each step of this rank; nothing without a folder."""

    def __init__(self, folder: Optional[Path], rank: int) -> None:
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"rank{rank}.jsonl").open("a", buffering=1, encoding="utf-8")
            self._write({"pid": os.getpid()})

    def step(self, epoch: int, step: int, batch: dict[str, torch.Tensor], loss: float) -> None:
        if self._file is not None:
            digest = hashlib.sha256()
            for tensor in batch.values():
                digest.update(tensor.cpu().numpy().tobytes())
            self._write(
                {"epoch": epoch, "step": step, "batch": digest.hexdigest(), "loss": loss.hex()}
            )

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write the file beside its place, then put it there in one step."""
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb") as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())  # without it, a power cut may leave an empty file in its place
    os.replace(beside, path)


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: feedwater.Loader,
    device: torch.device,
    journal: Journal,
    args: argparse.Namespace,
) -> torch.Tensor:
    """Run the rest of the epoch; return this rank's sums of loss, right answers and samples."""
    epoch = loader.epoch
    first = loader.state_dict()["position"] // (loader.batch_size * loader.world_size)
    sums = torch.zeros(3, dtype=torch.float64)
    bar = tqdm(
        loader, f"epoch {epoch}", len(loader), initial=first, unit="step",
        disable=None if loader.rank == 0 else True,  # None: only on a terminal
    )  # fmt: skip
    for step, batch in enumerate(bar, first):
        label = batch["label"]
        scores = model(batch["image"])
        # A sum and a division, not a mean: with `last: partial` a rank's last batch may be empty,
        # and it still has to take part in the step.
        loss = F.cross_entropy(scores, label, reduction="sum") / max(len(label), 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        value, samples = loss.item(), len(label)
        right = (scores.argmax(1) == label).sum().item()
        sums += torch.tensor([value * samples, right, samples])
        bar.set_postfix(
            loss=f"{value:.3f}", accuracy=f"{right / max(samples, 1):.2f}", refresh=False
        )
        journal.step(epoch, step, batch, value)
        if loader.rank == 0 and (step + 1) % args.save_every == 0:
            checkpoint(model, optimizer, loader, args)
    return sums.to(device)


def checkpoint(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: feedwater.Loader,
    args: argparse.Namespace,
) -> None:
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    save(
        args.checkpoint,
        {
            "model": bare.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
        },
    )


def main() -> None:
    args = parse_arguments()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:  # torchrun
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    with feedwater.Loader(
        args.pipeline,
        batch_size=args.batch_size,
        address=args.address,
        output="torch",
        as_dict=True,
        device=device,
    ) as loader:
        train(loader, device, args)
    if dist.is_initialized():
        dist.destroy_process_group()


def train(loader: feedwater.Loader, device: torch.device, args: argparse.Namespace) -> None:
    missing = {"image", "label"} - set(loader.fields)
    if missing:
        raise SystemExit(f"the pipeline's outputs have no {' and no '.join(sorted(missing))}")
    if len(loader) == 0:
        raise SystemExit(
            f"{len(loader.dataset)} samples are less than one step of {loader.world_size} x "
            f"{loader.batch_size}: choose a smaller --batch-size"
        )
    torch.manual_seed(args.seed)
    model: nn.Module = Classifier(loader.fields["image"].shape[0], len(loader.classes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        if loader.rank == 0:
            print(f"continuing {args.checkpoint} in epoch {loader.epoch}", flush=True)
    if dist.is_initialized():
        model = DistributedDataParallel(model)

    journal = Journal(args.journal, loader.rank)
    while loader.epoch < args.epochs:
        epoch = loader.epoch
        sums = train_epoch(model, optimizer, loader, device, journal, args)
        if dist.is_initialized():
            dist.all_reduce(sums)
        loss, right, samples = sums.tolist()
        if loader.rank == 0:
            checkpoint(model, optimizer, loader, args)
            if samples:  # none when the checkpoint stood at the end of an epoch
                print(
                    f"epoch {epoch}: loss {loss / samples:.4f}, accuracy {right / samples:.3f} "
                    f"over {samples:.0f} samples",
                    flush=True,
                )


if __name__ == "__main__":
    main()
