"""tf.data with TensorFlow's own image ops."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow as tf
from common import BATCH, arguments, files, measure
from tf_images import augmented, on_cores

folder, workers = arguments()
tf.config.threading.set_intra_op_parallelism_threads(workers)
tf.config.threading.set_inter_op_parallelism_threads(workers)
paths = files(folder)
classes = sorted({os.path.dirname(path) for path in paths})
labels = [classes.index(os.path.dirname(path)) for path in paths]


def load(path, label):
    """Read and augment one image."""
    return augmented(tf.io.read_file(path)), label


data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
data = data.map(load, num_parallel_calls=workers).batch(BATCH, drop_remainder=True).prefetch(2)
data = on_cores(data, workers)
measure(lambda: (len(label) for _, label in data))
