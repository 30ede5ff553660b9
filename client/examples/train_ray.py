"""Ray Train: workers that Ray places, each a rank of the loader.

    python train_ray.py shapes --workers 2

The pipeline delivers `image` (floating point, CHW) and `label`. Each node runs a feedwaterd.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

import feedwater


def classifier(loader: feedwater.Loader) -> nn.Module:
    pixels, classes = math.prod(loader.fields["image"].shape), len(loader.classes)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes))


def train(config: dict[str, Any]) -> None:
    """Run in each worker, where Ray has initialised the process group."""
    torch.manual_seed(0)
    device = ray.train.torch.get_device()
    # Used as it is: prepare_data_loader() would divide its samples among the ranks once more.
    with feedwater.Loader(config["pipeline"], as_dict=True, device=device) as loader:
        network = classifier(loader)
        model = ray.train.torch.prepare_model(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if (checkpoint := ray.train.get_checkpoint()) is not None:  # Ray starts workers again
            with checkpoint.as_directory() as folder:
                saved = torch.load(f"{folder}/checkpoint.pt", map_location=device)
            network.load_state_dict(saved["model"])
            loader.load_state_dict(saved["loader"])
        while loader.epoch < config["epochs"]:
            epoch, sums = loader.epoch, torch.zeros(2, device=device)
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                samples = len(batch["label"])
                sums += torch.tensor([loss.item() * samples, samples], device=device)
            torch.distributed.all_reduce(sums)
            total, samples = sums.tolist()
            with tempfile.TemporaryDirectory() as folder:
                state = {"model": network.state_dict(), "loader": loader.state_dict()}
                torch.save(state, f"{folder}/checkpoint.pt")
                ray.train.report(
                    {"epoch": epoch, "loss": total / samples, "samples": samples},
                    checkpoint=Checkpoint.from_directory(folder) if loader.rank == 0 else None,
                )


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemons know")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="default: %(default)s")
    args = parser.parse_args()

    trainer = TorchTrainer(
        train,
        train_loop_config={"pipeline": args.pipeline, "epochs": args.epochs},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=torch.cuda.is_available()),
        run_config=RunConfig(storage_path=tempfile.mkdtemp(prefix="train-ray-")),
    )
    for epoch in trainer.fit().metrics_dataframe.itertuples():
        print(f"epoch {epoch.epoch}: loss {epoch.loss:.4f} over {epoch.samples:.0f} samples")


if __name__ == "__main__":
    main()
