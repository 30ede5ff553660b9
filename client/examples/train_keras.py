"""Keras 3, with JAX or torch as its backend: `model.fit` over batches of a feedwaterd.

    KERAS_BACKEND=jax python train_keras.py shapes
    KERAS_BACKEND=torch python train_keras.py shapes

The pipeline delivers `image` and `label`, in this order: Keras takes pairs.
"""

from __future__ import annotations

import argparse

import keras

import feedwater


def main() -> None:
    about, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pipeline", help="a name that the daemon knows, or a .yaml file")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    with feedwater.Loader(args.pipeline, output=keras.backend.backend()) as loader:
        model = keras.Sequential(
            [
                keras.Input(loader.fields["image"].shape),
                keras.layers.Flatten(),
                keras.layers.Dense(64, "relu"),
                keras.layers.Dense(len(loader.classes)),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.SGD(0.05),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        # Keras knows generators, and no other class that can be iterated but its own and torch's.
        batches = (batch for _ in range(args.epochs) for batch in loader)
        history = model.fit(
            batches, steps_per_epoch=len(loader), epochs=args.epochs, shuffle=False, verbose=0
        )
    for epoch, loss in enumerate(history.history["loss"]):
        print(f"epoch {epoch}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
