"""SPDL: FFmpeg's decoders in threads."""

import math
import random

import numpy as np
import spdl.io
from common import BATCH, MEAN, STD, arguments, files, measure
from spdl.pipeline import PipelineBuilder

folder, workers = arguments()
paths = files(folder)


def crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Return torchvision's random resized crop as x, y, width, height."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def decode(path: str):
    """Decode, crop, scale and mirror by FFmpeg's filters."""
    packets = spdl.io.demux_image(path)
    x, y, w, h = crop(packets.codec.width, packets.codec.height)
    flip = "hflip," if random.random() < 0.5 else ""
    filters = f"crop={w}:{h}:{x}:{y},scale=224:224,{flip}format=pix_fmts=rgb24"
    return spdl.io.decode_packets(packets, filter_desc=filters)


def collate(frames):
    """Normalise a batch to float32 CHW."""
    if not frames:
        return np.zeros((0, 3, 224, 224), np.float32)
    batch = spdl.io.to_numpy(spdl.io.convert_frames(frames)).astype(np.float32)
    batch = (batch - np.float32(MEAN)) / np.float32(STD)
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


def epoch():
    """Give each batch."""
    random.shuffle(paths)
    pipeline = (
        PipelineBuilder().add_source(paths).pipe(decode, concurrency=workers).aggregate(BATCH)
        .pipe(collate).add_sink(2).build(num_threads=workers)
    )  # fmt: skip
    with pipeline.auto_stop():
        for batch in pipeline:
            yield len(batch)


measure(epoch)
