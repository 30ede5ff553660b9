"""Plain torch: DistributedDataParallel on any number of ranks.

    torchrun --nproc-per-node 2 train_ddp.py shapes

The pipeline delivers `image` (floating point, CHW) and `label`. train_classifier.py is the same
with checkpoints.
"""

from __future__ import annotations

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import feedwater


def classifier(loader: feedwater.Loader) -> nn.Module:
    pixels, classes = math.prod(loader.fields["image"].shape), len(loader.classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes))


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)

    # Made after the process group: rank and world size are the group's.
    with feedwater.Loader(args.pipeline, as_dict=True, device=device) as loader:
        model = DistributedDataParallel(classifier(loader).to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for epoch in range(args.epochs):
            sums = torch.zeros(2, device=device)
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                samples = len(batch["label"])
                sums += torch.tensor([loss.item() * samples, samples], device=device)
            dist.all_reduce(sums)
            if loader.rank == 0:
                print(
                    f"epoch {epoch}: loss {sums[0] / sums[1]:.4f} over {sums[1]:.0f} samples",
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
