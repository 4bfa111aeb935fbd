"""Sinusoidal position encodings."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="attention_zoo")
class SinusoidalPositions(keras.layers.Layer):
    """Adds sinusoidal positions: `PE[p, 2i] = sin(p / w^(2i/D))`, `PE[p, 2i+1] = cos(p / w^(2i/D))`.

    Args:
        max_wavelength: w, a positive number.

    Call arguments:
        inputs: [B, T, D], D even.
        start_index: Position of the first row, an integer or a scalar tensor.

    Returns:
        [B, T, D].

    Raises:
        ValueError: If D is odd.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SinusoidalPositions
        >>> print(np.round(SinusoidalPositions()(np.zeros((1, 1, 4), "float32"), start_index=0), 3))
        [[[0. 1. 0. 1.]]]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, max_wavelength=10000.0, **kwargs):
        super().__init__(**kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}.")
        self.supports_masking = True
        self.max_wavelength = max_wavelength

    def build(self, input_shape):
        if input_shape[-1] % 2:
            raise ValueError(f"The last axis must be even. Received: input_shape={tuple(input_shape)}.")

    def call(self, inputs, start_index=0):
        size = inputs.shape[-1]
        # float32 throughout: bfloat16 cannot tell position 257 from 258.
        rates = ops.exp(ops.arange(0, size, 2, dtype="float32") * (-math.log(self.max_wavelength) / size))
        positions = ops.cast(ops.arange(ops.shape(inputs)[1]) + start_index, "float32")
        angles = ops.expand_dims(positions, 1) * rates  # [T, D/2]
        table = ops.reshape(ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1), (-1, size))
        return inputs + ops.cast(table, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "max_wavelength": self.max_wavelength}
