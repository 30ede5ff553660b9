"""NVIDIA DALI on the CPU: fused random crop decoding."""

import numpy as np
from common import BATCH, MEAN, STD, arguments, files, measure
from nvidia.dali import fn, pipeline_def, types

folder, workers = arguments()


@pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None, seed=1)
def train():
    """Read, decode the random crop, resize, mirror, normalise."""
    encoded, label = fn.readers.file(file_root=str(folder), random_shuffle=True)
    image = fn.decoders.image_random_crop(
        encoded, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0]
    )
    image = fn.resize(
        image, device="cpu", size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True
    )
    image = fn.crop_mirror_normalize(
        image, mirror=fn.random.coin_flip(), mean=MEAN, std=STD, dtype=types.FLOAT,
        output_layout="CHW",
    )  # fmt: skip
    return image, label


pipeline = train()
pipeline.build()
steps = len(files(folder)) // BATCH


def epoch():
    """Give each batch as an array, as a trainer would take it."""
    for _ in range(steps):
        image, _ = pipeline.run()
        yield len(np.asarray(image.as_array()))


measure(epoch)
