"""JAX on several devices: each batch is one global array, of which each device has a part.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python train_jax_sharded.py shapes

The pipeline delivers `image` (floating point, CHW) and `label`, with `last: drop`. In a program of
several processes (jax.distributed) the loader is made after `jax.distributed.initialize()`; each
process then gives the part of its own devices, and nothing else changes.
"""

from __future__ import annotations

import argparse
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import feedwater


def loss_of(parameters: list[jax.Array], image: jax.Array, label: jax.Array) -> jax.Array:
    first, second = parameters
    scores = jax.nn.relu(image.reshape(len(image), -1) @ first) @ second
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), label[:, None], 1).mean()


@jax.jit
def step(parameters: list[jax.Array], image: jax.Array, label: jax.Array) -> tuple:
    loss, gradient = jax.value_and_grad(loss_of)(parameters, image, label)
    return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradient), loss


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()

    mesh = Mesh(jax.devices(), ("batch",))
    by_sample = NamedSharding(mesh, PartitionSpec("batch"))
    everywhere = NamedSharding(mesh, PartitionSpec())

    with feedwater.Loader(args.pipeline, output="numpy") as loader:
        names = list(loader.fields)
        pixels = math.prod(loader.fields["image"].shape)
        sizes = (pixels, 64), (64, len(loader.classes))
        keys = jax.random.split(jax.random.key(0), 2)
        parameters = [jax.random.normal(k, s) * s[0] ** -0.5 for k, s in zip(keys, sizes)]
        parameters = jax.device_put(parameters, everywhere)
        for epoch in range(args.epochs):
            losses = []
            for arrays in loader:
                batch = {
                    name: jax.make_array_from_process_local_data(by_sample, array)
                    for name, array in zip(names, arrays)
                }
                parameters, loss = step(parameters, batch["image"], batch["label"])
                losses.append(loss)
            shards = len(batch["image"].addressable_shards)
            print(
                f"epoch {epoch}: loss {jnp.stack(losses).mean():.4f} over "
                f"{len(losses) * len(batch['image'])} samples, each batch on {shards} devices",
                flush=True,
            )


if __name__ == "__main__":
    main()
