"""Extrapolatable positions: rotations, and lengths that decay with the distance."""

import keras
from keras import ops

from zoo.layers.positions.base import Positions, consecutive
from zoo.layers.positions.rotary import RotaryPositions

GAMMA = 0.4  # of the paper


@keras.saving.register_keras_serializable(package="attention_zoo")
class XPosPositions(RotaryPositions):
    """Rotary positions whose products decay with the distance: `R(p θᵢ) q · ζᵢ^(p/b)` and `R(s θᵢ) k · ζᵢ^(−s/b)`.

    Of a query q at position p and a key k at position s, pair i of R rotated features is turned by `θᵢ = w^(−2i/R)`
    for each position, and multiplied with a power of `ζᵢ = (2i/R + γ) / (1 + γ)`, γ = 0.4; b is `scale_base`. Their
    product has the factor `ζᵢ^((p − s)/b)`, at most 1 for keys before the query: fast pairs look near, slow ones far.
    Keys after the query gain by it, so that this is meant for attention with a causal mask.

    A factor stands on each side, so that caches and chunks work as with rotary positions; attention by features of
    queries and keys, such as `LinearAttention`, would not show it as a decay, and refuses it. At position p keys are up
    to 3.5^(p/b) times as long: float16 holds that up to about p = 7.5 b, bfloat16 and float32 up to 65 b. There is no
    cost besides that of the rotation, and there are no weights.

    Args:
        max_wavelength: w, a positive number.
        scale_base: b, a positive number.
        **kwargs: `fraction`, `layout` and `scaling` of `RotaryPositions`.

    Raises:
        ValueError: For a `scale_base` that is not positive; and see `RotaryPositions`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiHeadAttention, XPosPositions
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=4, positions=XPosPositions(scale_base=512))
        >>> inputs = np.ones((1, 3, 8), "float32")
        >>> layer(inputs, inputs, use_causal_mask=True).shape
        TensorShape([1, 3, 8])

    Reference:
        Sun et al. 2022, "A Length-Extrapolatable Transformer", section 3, equations 15-17,
        https://arxiv.org/abs/2212.10554
    """

    saved_options = ("scale_base",)
    needs_products = True

    def __init__(self, max_wavelength=10000.0, scale_base=512.0, **kwargs):
        super().__init__(max_wavelength, **kwargs)
        if scale_base <= 0:
            raise ValueError(f"`scale_base` must be positive. Received: scale_base={scale_base}.")
        self.scale_base = scale_base

    def _growth(self, positions, size, sign):
        """Returns `ζ^(sign · p/b)` for positions int32 [..., T], [..., T, size/2] in float32."""
        pairs = ops.arange(0, size, 2, dtype="float32") / size  # 2i/R
        logarithms = ops.log((pairs + GAMMA) / (1 + GAMMA))
        growth = ops.exp(ops.cast(positions, "float32")[..., None] * logarithms * (sign / self.scale_base))
        length = self._lengths(positions, size)
        return growth if length is None else growth * length

    def _rotate_and_scale(self, heads, start_index, sign):
        positions = consecutive(start_index, ops.shape(heads)[-2])
        return self._rotate_at(heads, positions, lambda positions, size: self._growth(positions, size, sign))

    def rotate_query(self, heads, start_index=0):
        return self._rotate_and_scale(heads, start_index, 1.0)

    def rotate_key(self, heads, start_index=0):
        return self._rotate_and_scale(heads, start_index, -1.0)

    def call(self, heads, start_index=0, positions=None):
        return Positions.call(self)
