"""MindSpore's ImageFolderDataset with its C++ transforms."""

import mindspore.dataset as ds
import mindspore.dataset.vision as vision
from common import BATCH, MEAN, STD, arguments, measure

folder, workers = arguments()
ds.config.set_prefetch_size(4)
data = ds.ImageFolderDataset(str(folder), num_parallel_workers=workers, shuffle=True)
data = data.map(
    [vision.RandomCropDecodeResize(224), vision.RandomHorizontalFlip(), vision.Normalize(MEAN, STD),
     vision.HWC2CHW()],
    input_columns="image", num_parallel_workers=workers,
)  # fmt: skip
data = data.batch(BATCH, drop_remainder=True, num_parallel_workers=1)
batches = data.create_tuple_iterator(num_epochs=-1, output_numpy=True)
measure(lambda: (len(batch[1]) for batch in batches))
