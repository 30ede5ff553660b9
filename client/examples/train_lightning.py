"""PyTorch Lightning 2: any number of devices, and checkpoints that carry the loader's position.

    python train_lightning.py shapes --devices 2
    python train_lightning.py shapes --devices 2 --epochs 6 --resume checkpoints/last.ckpt

The pipeline delivers `image` (floating point, CHW) and `label`. Lightning asks the loader for its
state_dict() when it saves, and gives it back when it resumes, within an epoch too.
"""

from __future__ import annotations

import argparse
import math

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import feedwater


def classifier(loader: feedwater.Loader) -> nn.Module:
    pixels, classes = math.prod(loader.fields["image"].shape), len(loader.classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes))


class Classifier(lightning.LightningModule):
    def __init__(self, pipeline: str) -> None:
        super().__init__()
        self.pipeline = pipeline

    def setup(self, stage: str) -> None:
        # Lightning's process group is there now, and with it rank and world size.
        self.loader = feedwater.Loader(self.pipeline, as_dict=True)
        self.network = classifier(self.loader)

    def train_dataloader(self) -> feedwater.Loader:
        return self.loader

    def training_step(self, batch: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.network(batch["image"]), batch["label"])
        samples = len(batch["label"])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=samples)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def on_train_epoch_end(self) -> None:
        loss = self.trainer.callback_metrics["loss"]  # of all ranks
        self.print(f"epoch {self.current_epoch}: loss {loss:.4f}", flush=True)


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--devices", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--save-every", type=int, default=10, metavar="STEPS", help="default: %(default)s"
    )
    parser.add_argument("--resume", metavar="CHECKPOINT")
    args = parser.parse_args()

    lightning.seed_everything(0)
    saver = ModelCheckpoint("checkpoints", every_n_train_steps=args.save_every, save_last=True)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        devices=args.devices,
        callbacks=[saver],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(args.pipeline), ckpt_path=args.resume)


if __name__ == "__main__":
    main()
