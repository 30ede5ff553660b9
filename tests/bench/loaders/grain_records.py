"""Grain over ArrayRecord files, with Pillow and NumPy in its workers; a record is a photo."""

import io
import math

import grain.python as grain
import numpy as np
from array_record.python import array_record_module
from common import BATCH, MEAN, STD
from labelled import photos_of
from PIL import Image

SHARDS = 8


def write(photos, folder):
    found = photos_of(photos)
    for shard in range(SHARDS):
        name = folder / f"photos.array_record-{shard:05}-of-{SHARDS:05}"
        writer = array_record_module.ArrayRecordWriter(str(name), "group_size:1,uncompressed")
        for path, _ in found[shard::SHARDS]:
            writer.write(path.read_bytes())
        writer.close()


class Augment(grain.RandomMapTransform):
    """torchvision's training transform on Pillow's images."""

    def random_map(self, record: bytes, rng: np.random.Generator) -> np.ndarray:
        image = Image.open(io.BytesIO(record)).convert("RGB")
        image = image.resize((224, 224), Image.BILINEAR, self._box(*image.size, rng))
        if rng.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image, np.float32)
        return np.ascontiguousarray(((pixels - MEAN32) / STD32).transpose(2, 0, 1))

    @staticmethod
    def _box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Return a random crop's left, top, right and bottom edge."""
        for _ in range(10):
            area = width * height * rng.uniform(0.08, 1)
            ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = rng.integers(width - w + 1), rng.integers(height - h + 1)
                return left, top, left + w, top + h
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        return left, top, left + side, top + side


MEAN32, STD32 = np.float32(MEAN), np.float32(STD)


def epochs(folder, workers):
    source = grain.ArrayRecordDataSource(sorted(map(str, folder.glob("*.array_record-*"))))
    data = grain.MapDataset.source(source).seed(1).shuffle()
    data = data.random_map(Augment()).batch(BATCH, drop_remainder=True)
    options = grain.MultiprocessingOptions(num_workers=workers)
    loader = data.to_iter_dataset().mp_prefetch(options)
    return lambda: map(len, loader)
