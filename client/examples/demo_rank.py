"""One rank of scripts/demo in Python: the twin of demo_rank.cc.

Takes every batch of some epochs and prints, as a JSON line each, which samples it held.

    python demo_rank.py PIPELINE --rank 1 --world-size 4 --epochs 2 --job demo
"""

from __future__ import annotations

import argparse
import json

import feedwater


def main() -> None:
    parser = argparse.ArgumentParser(description="One rank of the demonstration, in Python")
    parser.add_argument("pipeline")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    with feedwater.Loader(
        args.pipeline,
        rank=args.rank,
        world_size=args.world_size,
        job=args.job,
        output="numpy",
        as_dict=True,
    ) as loader:
        for epoch in range(args.epochs):
            for step, batch in enumerate(loader):
                line = {
                    "epoch": epoch,
                    "step": step,
                    "sample_id": batch["sample_id"].tolist(),
                    "position": batch["position"].tolist(),
                }
                print(json.dumps(line), flush=True)
        handover = loader.stats()
        print(json.dumps({"stats": handover}), flush=True)


if __name__ == "__main__":
    main()
