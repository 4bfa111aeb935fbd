"""Dropout that draws fewer random bits, and dropout of attention weights that are computed in parts."""

import keras
from keras import ops

from zoo.layers.core.kernels import RANDOM_BITS, has_random_bits, random_bits


class Dropout(keras.layers.Dropout):
    """Keras' dropout, with masks at half the cost on TensorFlow and JAX.

    Each element is zeroed with probability `rate`, and the others are divided by `1 − rate`. Keras turns 32 random bits
    for each element into a float and compares it with the rate; here 16 bits are compared, which rounds the rate to a
    multiple of 2⁻¹⁶. On JAX that is for tensors whose last axis is even.

    Reference:
        Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 4,
        https://jmlr.org/papers/v15/srivastava14a.html
    """

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        threshold = round(self.rate * 2**RANDOM_BITS)
        if self.noise_shape or not 0 < threshold < 2**RANDOM_BITS or not has_random_bits(inputs.shape):
            return super().call(inputs, training=training)
        mask = random_bits(inputs, self.seed_generator.next()) >= threshold
        return inputs * (ops.cast(mask, inputs.dtype) * (2**RANDOM_BITS / (2**RANDOM_BITS - threshold)))


class FixedSeed(keras.random.SeedGenerator):
    """A seed that is known already: what is computed twice draws the same random numbers both times."""

    def __init__(self, seed):
        self.seed = seed
        self._initial_seed = 0  # without one, Keras draws differently on PyTorch

    def next(self, ordered=True):
        return self.seed


def seeds_of_parts(seed, parts):
    """Returns a seed for each of the parts of these numbers [...], [..., 2], from that of the whole call [2]."""
    return seed + ops.cast(ops.stack([parts * 40503, ops.zeros_like(parts)], axis=-1), seed.dtype)


def drop_weights(weights, rate, seed):
    """Returns attention weights [..., T, S] after dropout; without a seed, `None`, it is not active."""
    return weights if seed is None else keras.random.dropout(weights, rate, seed=FixedSeed(seed))
