"""tf.data with TensorFlow's own image ops."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow as tf
from common import BATCH, MEAN, STD, arguments, files, measure

folder, workers = arguments()
tf.config.threading.set_intra_op_parallelism_threads(workers)
tf.config.threading.set_inter_op_parallelism_threads(workers)
paths = files(folder)
classes = sorted({os.path.dirname(path) for path in paths})
labels = [classes.index(os.path.dirname(path)) for path in paths]


def load(path, label):
    """Decode a random crop, resize, mirror, normalise."""
    encoded = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded), tf.zeros([1, 0, 4]), area_range=(0.08, 1.0),
        aspect_ratio_range=(0.75, 1.333), use_image_if_no_bounding_boxes=True,
        min_object_covered=0.0,
    )  # fmt: skip
    y, x, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    image = tf.image.decode_and_crop_jpeg(encoded, tf.stack([y, x, height, width]), channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, [224, 224]))
    return tf.transpose((image - MEAN) / STD, [2, 0, 1]), label


data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
data = data.map(load, num_parallel_calls=workers).batch(BATCH, drop_remainder=True).prefetch(2)
options = tf.data.Options()
options.threading.private_threadpool_size = workers
options.threading.max_intra_op_parallelism = 1
data = data.with_options(options)
measure(lambda: (len(label) for _, label in data))
