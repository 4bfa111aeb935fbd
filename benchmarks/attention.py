"""Attention layers beside their peers: float32, forward and backward, TensorFlow graph mode and PyTorch."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks.timing import interleaved, table
from zoo import layers


class Unpacked:
    """A layer that takes a list of inputs, as one that takes them one by one."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, *inputs):
        return self.layer(list(inputs))

    @property
    def trainable_variables(self):
        return self.layer.trainable_variables


def tensorflow_step(layer, inputs):
    """Returns a function that runs a layer forward and backward once, compiled."""

    @tf.function
    def step(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(layer(*tensors))
        return tape.gradient(loss, [*tensors, *layer.trainable_variables])

    tensors = [tf.constant(array) for array in inputs]
    return lambda: [gradient.numpy() for gradient in step(*tensors)[:1]]


def torch_step(model_dim, num_heads, array):
    """Returns the same for PyTorch's multi-head attention."""
    import torch

    layer = torch.nn.MultiheadAttention(model_dim, num_heads, batch_first=True)
    inputs = torch.tensor(array, requires_grad=True)

    def step():
        layer.zero_grad()
        layer(inputs, inputs, inputs, need_weights=False)[0].sum().backward()

    return step


def multi_head() -> str:
    """Measures multi-head self-attention, B 8, T 128, D 512, 8 heads."""
    array = np.random.default_rng(0).normal(size=(8, 128, 512)).astype("float32")
    contestants = {
        "zoo.layers.MultiHeadAttention": tensorflow_step(layers.MultiHeadAttention(8, 64), [array, array]),
        "keras.layers.MultiHeadAttention": tensorflow_step(keras.layers.MultiHeadAttention(8, 64), [array, array]),
        "torch.nn.MultiheadAttention": torch_step(512, 8, array),
    }
    return table("multi-head, B8 T128 D512 h8", interleaved(contestants))


def additive() -> str:
    """Measures additive attention, B 4, T = S = 128, D 256; Keras' has no projections, ours has both."""
    array = np.random.default_rng(0).normal(size=(4, 128, 256)).astype("float32")
    contestants = {
        "zoo.layers.AdditiveAttention": tensorflow_step(layers.AdditiveAttention(256), [array, array]),
        "keras.layers.AdditiveAttention": tensorflow_step(Unpacked(keras.layers.AdditiveAttention()), [array, array]),
    }
    return table("additive, B4 T128 D256", interleaved(contestants))
