"""The training transform with TensorFlow's own image ops."""

import tensorflow as tf
from common import MEAN, STD


def augmented(encoded):
    """Decode a random crop, resize, mirror, normalise."""
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded), tf.zeros([1, 0, 4]), area_range=(0.08, 1.0),
        aspect_ratio_range=(0.75, 1.333), use_image_if_no_bounding_boxes=True,
        min_object_covered=0.0,
    )  # fmt: skip
    y, x, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    image = tf.image.decode_and_crop_jpeg(encoded, tf.stack([y, x, height, width]), channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, [224, 224]))
    return tf.transpose((image - MEAN) / STD, [2, 0, 1])


def on_cores(data, workers: int):
    """Keep a dataset's work on so many threads."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    options.threading.max_intra_op_parallelism = 1
    return data.with_options(options)
