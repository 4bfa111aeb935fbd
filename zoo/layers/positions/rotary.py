"""Rotary positions."""

import keras
from keras import backend, ops

from zoo.layers.positions.base import Positions, angles, consecutive


@keras.saving.register_keras_serializable(package="attention_zoo")
class RotaryPositions(Positions):
    """Rotates each pair of features by an angle that grows with the position: `(x₂ᵢ, x₂ᵢ₊₁) · R(p / w^(2i/R))`.

    Queries and keys are rotated alike, so that their dot product depends on their distance alone. Of a head of H
    features the first R are rotated, where R is the largest even number up to `fraction` · H.

    Args:
        max_wavelength: w, a positive number.
        fraction: Part of each head that is rotated, 0 < fraction ≤ 1.

    Call arguments:
        heads: Projected queries or keys [B, N, T, H].
        start_index: Position of the first row, an integer or a scalar tensor.

    Returns:
        [B, N, T, H].

    Raises:
        ValueError: If fewer than two features of a head are rotated.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import RotaryPositions
        >>> print(np.round(RotaryPositions()(np.ones((1, 1, 2, 2), "float32")), 3))
        [[[[ 1.     1.   ]
           [-0.301  1.382]]]]

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2, equations 14-15,
        and section 3.4.2, equation 34, https://arxiv.org/abs/2104.09864
    """

    saved_options = ("max_wavelength", "fraction")
    needs_equal_sizes = True

    def __init__(self, max_wavelength=10000.0, fraction=1.0, **kwargs):
        super().__init__(**kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}.")
        if not 0 < fraction <= 1:
            raise ValueError(f"`fraction` must be in (0, 1]. Received: fraction={fraction}.")
        self.max_wavelength = max_wavelength
        self.fraction = fraction

    def build(self, input_shape):
        self._rotated_size(input_shape[-1])

    def _rotated_size(self, size):
        rotated = 2 * int(self.fraction * size / 2)
        if not rotated:
            raise ValueError(
                f"At least two features of a head must be rotated. "
                f"Received: fraction={self.fraction}, heads of size {size}."
            )
        return rotated

    def rotate(self, heads, start_index=0):
        shape, size = ops.shape(heads), self._rotated_size(heads.shape[-1])
        turns = angles(consecutive(start_index, shape[-2]), size, self.max_wavelength)  # [T, size/2]
        dtype = backend.standardize_dtype(heads.dtype)
        wide = backend.result_type(dtype, "float32")
        cos, sin = ops.cast(ops.cos(turns), wide), ops.cast(ops.sin(turns), wide)
        rotated = ops.cast(heads[..., :size], wide)
        even, odd = rotated[..., 0::2], rotated[..., 1::2]  # [..., T, size/2]
        rotated = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        rotated = ops.cast(ops.reshape(rotated, (*shape[:-1], size)), dtype)
        return rotated if size == heads.shape[-1] else ops.concatenate([rotated, heads[..., size:]], axis=-1)

    def call(self, heads, start_index=0):
        return self.rotate(heads, start_index)

    def compute_output_shape(self, input_shape):
        return input_shape
