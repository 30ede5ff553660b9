"""tf.data over TFRecord files, with TensorFlow's own image ops."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow as tf
from common import BATCH
from labelled import photos_of
from tf_images import augmented, on_cores

SHARDS = 8
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def write(photos, folder):
    found = photos_of(photos)
    for shard in range(SHARDS):
        name = folder / f"train-{shard:05}-of-{SHARDS:05}.tfrecord"
        with tf.io.TFRecordWriter(str(name)) as writer:
            for path, label in found[shard::SHARDS]:
                encoded = tf.train.Feature(bytes_list=tf.train.BytesList(value=[path.read_bytes()]))
                number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                features = tf.train.Features(feature=dict(zip(FEATURES, (encoded, number))))
                writer.write(tf.train.Example(features=features).SerializeToString())


def parsed(record):
    """Return one image and its label."""
    example = tf.io.parse_single_example(record, FEATURES)
    return augmented(example["image/encoded"]), example["image/class/label"]


def epochs(folder, workers):
    tf.config.threading.set_intra_op_parallelism_threads(workers)
    tf.config.threading.set_inter_op_parallelism_threads(workers)
    files = sorted(map(str, folder.glob("*.tfrecord")))
    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
    data = data.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=workers)
    data = data.shuffle(1000).map(parsed, num_parallel_calls=workers)
    data = on_cores(data.batch(BATCH, drop_remainder=True).prefetch(2), workers)
    return lambda: (len(label) for _, label in data)
