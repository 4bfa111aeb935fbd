"""Attention layers whose cost does not grow with T · S, in small sizes."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import (
    gradients,
    randomize,
    to_numpy,
)

from zoo import layers

B, N, D = 2, 3, 11

H, V = 5, 7


def make_window(**options):
    return layers.SlidingWindowAttention(N, H, window=3, value_dim=V, **options)


def make_block(**options):
    return layers.BlockLocalAttention(N, H, block_size=5, value_dim=V, **options)


def make_linear(**options):
    return layers.LinearAttention(N, H, value_dim=V, **options)


def make_performer(**options):
    return layers.PerformerAttention(N, H, num_features=13, value_dim=V, seed=5, **options)


blocked_kinds = pytest.mark.parametrize("make", [make_window, make_block])

linear_kinds = pytest.mark.parametrize("make", [make_linear, make_performer])

every_kind = pytest.mark.parametrize("make", [make_window, make_block, make_linear, make_performer])


def build_layer(layer, dim=D):
    layer.build((B, 19, dim), (B, 19, dim))
    return randomize(layer)


def near_pairs(layer, queries, keys, start=None):
    """Returns which query sees which key by the definition of the layer, [T, S]."""
    start = keys - queries if start is None else start
    allowed = np.ones((queries, keys), bool)
    for t, s in np.ndindex(queries, keys):
        if isinstance(layer, layers.SlidingWindowAttention):
            allowed[t, s] = abs(start + t - s) <= layer.window
        elif isinstance(layer, layers.BlockLocalAttention):
            allowed[t, s] = math.floor((start + t) / layer.block_size) == s // layer.block_size
    return allowed


def identity_layer(layer):
    """Makes one head of size 1 that sees its only feature as it is."""
    layer.build((1, 4, 1), (1, 4, 1))
    layer.set_weights([np.reshape(value, (1, 1) if i % 2 == 0 else 1) for i, value in enumerate([1.0, 0.0] * 4)])
    return layer


def results_and_gradients(layer, query, value, bias, scores=True, **options):
    """Returns output, weights, and the gradients of both for the inputs, the bias and all weights."""
    inputs = [keras.Variable(each) for each in (query, value, bias)]

    def run():
        query, value, bias = (ops.convert_to_tensor(each) for each in inputs)
        return layer(query, value, attention_bias=bias, return_attention_scores=True, **options)

    def loss():
        return sum(ops.sum(ops.sin(7 * result)) for result in run())

    return [to_numpy(result) for result in run()] + gradients(loss, inputs + layer.trainable_variables)
