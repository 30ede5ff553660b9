"""A small network in plain JAX, trained from a feedwaterd: one jitted step, a few epochs.

The pipeline delivers `image` (floating point, CHW) and `label`, with `last: drop`, so that all
batches have one shape and the step is compiled once.

    python train_jax.py shapes --epochs 5
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
from tqdm import tqdm

import feedwater


def initial(key: jax.Array, sizes: list[int]) -> list[tuple[jax.Array, jax.Array]]:
    """Return weights and biases of the layers."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(key, (inside, outside)) * (2 / inside) ** 0.5, jnp.zeros(outside))
        for key, inside, outside in zip(keys, sizes, sizes[1:])
    ]


def scores(parameters: list, image: jax.Array) -> jax.Array:
    x = image.reshape(len(image), -1)
    for weight, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    return x @ weight + bias


def loss_of(parameters: list, image: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_p = jax.nn.log_softmax(scores(parameters, image))
    right = (log_p.argmax(1) == label).mean()
    return -jnp.take_along_axis(log_p, label[:, None], 1).mean(), right


@jax.jit
def step(parameters: list, image: jax.Array, label: jax.Array, lr: float) -> tuple:
    (loss, right), gradient = jax.value_and_grad(loss_of, has_aux=True)(parameters, image, label)
    parameters = jax.tree.map(lambda p, g: p - lr * g, parameters, gradient)
    return parameters, loss, right


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, help="default: the pipeline's")
    parser.add_argument("--lr", type=float, default=0.05, help="default: %(default)s")
    parser.add_argument("--address", help="the daemon's runtime_dir; default: $FEEDWATER_ADDRESS")
    args = parser.parse_args()

    with feedwater.Loader(
        args.pipeline,
        batch_size=args.batch_size,
        address=args.address,
        output="jax",  # copies: they may be kept as long as you like
        as_dict=True,
    ) as loader:
        if len(loader) == 0:
            raise SystemExit("the dataset is smaller than a batch: choose a smaller --batch-size")
        channels, height, width = loader.fields["image"].shape
        sizes = [channels * height * width, 128, len(loader.classes)]
        parameters = initial(jax.random.key(0), sizes)
        for epoch in range(args.epochs):
            losses, rights = [], []
            for batch in tqdm(loader, f"epoch {epoch}", unit="step", disable=None):
                parameters, loss, right = step(parameters, batch["image"], batch["label"], args.lr)
                losses.append(loss)
                rights.append(right)
            print(
                f"epoch {epoch}: loss {jnp.stack(losses).mean():.4f}, "
                f"accuracy {jnp.stack(rights).mean():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
