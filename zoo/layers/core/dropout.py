"""Dropout that draws fewer random bits, and dropout of attention weights that are computed part by part."""

import keras
from keras import ops

from zoo.layers.core.kernels import RANDOM_BITS, has_random_bits, random_bits


class Dropout(keras.layers.Dropout):
    """Keras' dropout, with masks at half the cost on TensorFlow and JAX.

    Each element is zeroed with probability `rate`, and the others are divided by `1 − rate`. Keras converts 32 random
    bits for each element into a float and compares it with the rate; this layer compares 16 bits, which rounds the rate
    to a multiple of 2⁻¹⁶. On JAX it does so if the last axis is even.

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
    """A seed generator that returns the same seed every time, so that recomputed dropout draws the same mask."""

    def __init__(self, seed):
        self.seed = seed
        self._initial_seed = 0  # without one, Keras draws differently on PyTorch

    def next(self, ordered=True):
        return self.seed


def seeds_of_parts(seed, parts):
    """Returns a seed for each part, [..., 2], from the seed of the call [2] and the numbers of the parts [...]."""
    return seed + ops.cast(ops.stack([parts * 40503, ops.zeros_like(parts)], axis=-1), seed.dtype)


def drop_weights(weights, rate, seed):
    """Returns attention weights [..., T, S] after dropout, or as they are if the seed is `None`."""
    return weights if seed is None else keras.random.dropout(weights, rate, seed=FixedSeed(seed))
