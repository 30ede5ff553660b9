"""Hugging Face Trainer (transformers) over batches of a feedwaterd.

    python train_transformers.py shapes
    torchrun --nproc-per-node 2 train_transformers.py shapes --resume

The pipeline delivers `image` (floating point, CHW) and `label`. --resume goes on from the Trainer's
last checkpoint, at the very next batch.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import feedwater


class Classifier(nn.Module):
    """The names of its arguments are those of the pipeline's outputs."""

    def __init__(self, pixels: int, classes: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes)
        )

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.network(image)
        return {"loss": nn.functional.cross_entropy(scores, label), "logits": scores}


class FeedwaterTrainer(Trainer):
    """A Trainer whose batches are made already, and shared among the ranks."""

    def __init__(self, loader: feedwater.Loader, **options: object) -> None:
        super().__init__(train_dataset=loader.dataset, **options)
        self.loader = loader

    def get_train_dataloader(self) -> feedwater.Loader:
        return self.loader


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    arguments = TrainingArguments(
        "trainer",
        num_train_epochs=args.epochs,
        learning_rate=0.01,
        save_steps=args.save_every,
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        seed=0,
        use_cpu=not torch.cuda.is_available(),  # else several ranks without a GPU train apart
    )
    # Made after the arguments, which initialise the process group.
    with feedwater.Loader(args.pipeline, as_dict=True, device=arguments.device) as loader:
        torch.manual_seed(0)
        model = Classifier(math.prod(loader.fields["image"].shape), len(loader.classes))
        FeedwaterTrainer(loader, model=model, args=arguments).train(
            resume_from_checkpoint=args.resume
        )


if __name__ == "__main__":
    main()
