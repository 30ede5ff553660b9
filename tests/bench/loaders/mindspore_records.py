"""MindSpore's MindDataset over MindRecord files, with its C++ transforms."""

import mindspore.dataset as ds
import mindspore.dataset.vision as vision
from common import BATCH, MEAN, STD
from labelled import photos_of
from mindspore.mindrecord import FileWriter

SHARDS = 4


def write(photos, folder):
    writer = FileWriter(str(folder / "photos.mindrecord"), shard_num=SHARDS)
    writer.add_schema({"data": {"type": "bytes"}, "label": {"type": "int64"}})
    rows = [{"data": path.read_bytes(), "label": label} for path, label in photos_of(photos)]
    for begin in range(0, len(rows), 100):
        writer.write_raw_data(rows[begin : begin + 100])
    writer.commit()


def epochs(folder, workers):
    ds.config.set_prefetch_size(4)
    files = sorted(str(path) for path in folder.iterdir() if path.suffix != ".db")
    data = ds.MindDataset(
        files, columns_list=["data", "label"], num_parallel_workers=workers, shuffle=True
    )
    data = data.map(
        [vision.RandomCropDecodeResize(224), vision.RandomHorizontalFlip(),
         vision.Normalize(MEAN, STD), vision.HWC2CHW()],
        input_columns="data", num_parallel_workers=workers,
    )  # fmt: skip
    data = data.batch(BATCH, drop_remainder=True, num_parallel_workers=1)
    batches = data.create_tuple_iterator(num_epochs=-1, output_numpy=True)
    return lambda: (len(label) for _, label in batches)
