"""Dropout that draws fewer random bits."""

import keras
from keras import ops

from zoo.layers.core.kernels import RANDOM_BITS, has_random_bits, random_bits


class Dropout(keras.layers.Dropout):
    """Keras' dropout, with masks at half the cost on TensorFlow.

    Each element is zeroed with probability `rate`, and the others are divided by `1 − rate`. Keras on TensorFlow turns
    32 random bits for each element into a float and compares it with the rate; here 16 bits are compared, which rounds
    the rate to a multiple of 2⁻¹⁶.

    Reference:
        Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", section 4,
        https://jmlr.org/papers/v15/srivastava14a.html
    """

    def call(self, inputs, training=False):
        threshold = round(self.rate * 2**RANDOM_BITS)
        if not training or not has_random_bits() or self.noise_shape or not 0 < threshold < 2**RANDOM_BITS:
            return super().call(inputs, training=training)
        mask = random_bits(ops.shape(inputs), self.seed_generator.next()) >= threshold
        return inputs * (ops.cast(mask, inputs.dtype) * (2**RANDOM_BITS / (2**RANDOM_BITS - threshold)))
