"""FFCV: its own packed format, photos re-encoded at quality 90 as its recipes do."""

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import BATCH, MEAN, STD, arguments, files, measure
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

folder, workers = arguments()
torch.set_num_threads(1)
if not hasattr(np, "product"):  # which FFCV still calls
    np.product = np.prod


class Photos:
    """The images as arrays, for the writer."""

    def __init__(self) -> None:
        self.paths = files(folder)
        self.classes = sorted({os.path.dirname(path) for path in self.paths})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int):
        path = self.paths[index]
        label = self.classes.index(os.path.dirname(path))
        return np.array(Image.open(path).convert("RGB")), label


name = hashlib.sha256("\n".join(files(folder)).encode()).hexdigest()[:16]
packed = Path(tempfile.gettempdir()) / f"feedwater-bench-{os.getuid()}-{name}.beton"
if not packed.exists() or packed.stat().st_mtime < folder.stat().st_mtime:
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(str(packed), fields, num_workers=2).from_indexed_dataset(Photos())
loader = Loader(
    str(packed), batch_size=BATCH, num_workers=workers, order=OrderOption.RANDOM, drop_last=True,
    os_cache=True,
    pipelines={
        "image": [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(),
                  NormalizeImage(np.array(MEAN), np.array(STD), np.float32), ToTensor(),
                  ToTorchImage()],
        "label": [IntDecoder(), ToTensor()],
    },
)  # fmt: skip
measure(lambda: (len(label) for _, label in loader))
