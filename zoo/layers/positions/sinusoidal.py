"""Sinusoidal position encodings."""

import keras
from keras import ops

from zoo.layers.positions.absolute import AbsolutePositions
from zoo.layers.positions.base import angles, rates


@keras.saving.register_keras_serializable(package="attention_zoo")
class SinusoidalPositions(AbsolutePositions):
    """Adds or concatenates sinusoids: `PE[p, 2i] = sin(p / w^(2i/D))`, `PE[p, 2i+1] = cos(p / w^(2i/D))`.

    Args:
        max_wavelength: w, a positive number.
        concatenate: Whether the encodings are concatenated with the features instead of added.
        size: Size of concatenated encodings, even. Default: as many as there are features.

    Call arguments:
        inputs: [B, T, D]; D even if it is the size of the encodings.
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of the rows in its place, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Raises:
        ValueError: If the size of the encodings is odd.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SinusoidalPositions
        >>> print(np.round(SinusoidalPositions()(np.zeros((1, 1, 4), "float32"), start_index=0), 3))
        [[[0. 1. 0. 1.]]]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5, https://arxiv.org/abs/1706.03762
    """

    saved_options = ("max_wavelength",)

    def __init__(self, max_wavelength=10000.0, concatenate=False, size=None, **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}.")
        if size is not None and size % 2:
            raise ValueError(f"`size` must be even. Received: size={size}.")
        self.max_wavelength = max_wavelength

    def create_weights(self, query_dim, memory_dim):
        for features in (query_dim, memory_dim):
            if self.size is None and features % 2:
                raise ValueError(
                    "The last axis must be even; otherwise give an even `size` with `concatenate=True`. "
                    f"Received: a last axis of {features}."
                )

    def encodings(self, positions, size):
        phases = angles(positions, rates(size, self.max_wavelength))  # [T, size/2]
        return ops.reshape(ops.stack([ops.sin(phases), ops.cos(phases)], axis=-1), (-1, size))
