"""Hugging Face Accelerate: prepare, gather_for_metrics, save_state and load_state.

    accelerate launch train_accelerate.py shapes
    torchrun --nproc-per-node 2 train_accelerate.py shapes

The pipeline delivers `image` (floating point, CHW) and `label`. Run it again with more --epochs: it
goes on from the folder of --state, with the very next batch.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

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
    parser.add_argument("--state", type=Path, default=Path("state"), help="default: %(default)s")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    args = parser.parse_args()

    torch.manual_seed(0)
    # Without `cpu`, several ranks on a machine without a GPU would train apart.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    loader = feedwater.Loader(args.pipeline, as_dict=True, device=accelerator.device)
    model = classifier(loader)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # the loader as it is
    accelerator.register_for_checkpointing(loader)
    if args.state.exists():
        accelerator.load_state(str(args.state))

    while loader.epoch < args.epochs:
        epoch, losses = loader.epoch, []
        for step, batch in enumerate(loader, 1):
            with accelerator.accumulate(model):
                scores = model(batch["image"])
                loss = nn.functional.cross_entropy(scores, batch["label"], reduction="none")
                accelerator.backward(loss.mean())
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach()))
            if step % args.save_every == 0:
                accelerator.save_state(str(args.state))
        of_epoch = torch.cat(losses)
        accelerator.print(
            f"epoch {epoch}: loss {of_epoch.mean():.4f} over {len(of_epoch)} samples", flush=True
        )
        accelerator.save_state(str(args.state))
    loader.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
