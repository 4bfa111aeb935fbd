"""Positions that rotate queries and keys: rotary positions and xPos."""

import keras
from keras import backend, ops

from zoo.layers.core.graphs import axis_size, computed_once
from zoo.layers.core.projections import sizes_of
from zoo.layers.positions.base import Positions, angles, check_positions, consecutive, rates
from zoo.layers.positions.scaling import parse_scaling

LAYOUTS = ("interleaved", "half_split")


@keras.saving.register_keras_serializable(package="attention_zoo")
class RotaryPositions(Positions):
    """Rotates each pair of features by an angle proportional to the position: `(x₂ᵢ, x₂ᵢ₊₁) · R(p / w^(2i/R))`.

    Queries and keys are rotated alike, so that their dot product depends on their distance alone. Of a head of H
    features the first R are rotated, where R is the largest even number up to `fraction` · H. With the layout
    `"half_split"` the pairs are (xᵢ, xᵢ₊R/2): a permutation of the columns of W_q and W_k converts one into the other.

    For texts longer than those of training, `scaling` changes the angles. Its options are named as in `rope_scaling`
    (`rope_parameters`) of checkpoints; s is `factor`:

    - `{"rope_type": "linear", "factor": s}`: position interpolation, `p / s` in place of p.
    - `{"rope_type": "ntk", "factor": s}`: NTK-aware, `w · s^(R/(R−2))` in place of w.
    - `{"rope_type": "yarn", "factor": s, "original_max_position_embeddings": L}`, with `beta_fast` (32), `beta_slow`
      (1), `attention_factor`, `mscale`, `mscale_all_dim` and `truncate`: pairs with more than `beta_fast` rotations in
      L positions are unchanged, pairs with fewer than `beta_slow` are interpolated, and rotated features are multiplied
      by `0.1 ln s + 1`. Between the two, the interpolation is linear in the index of the pair, as in the authors' code,
      or with `"ramp": "rotations"` in the number of rotations, as in the paper.
    - `{"rope_type": "llama3", "factor": s, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": L}`: the same ramp over rotations, from the low to the high factor.

    Args:
        max_wavelength: w, a positive number, above 1 with a scaling.
        fraction: Part of each head that is rotated, 0 < fraction ≤ 1.
        layout: Pairs of features: `"interleaved"`, neighbours (the paper, GPT-J), or `"half_split"`, features R/2 apart
            (GPT-NeoX, Llama).
        scaling: A dict as above, or `None`.

    Call arguments:
        heads: Projected queries or keys [B, N, T, H].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of all rows instead, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, N, T, H].

    Raises:
        ValueError: If fewer than two features of a head are rotated (four with the scaling `"ntk"`), or for an unknown
            layout or scaling.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import RotaryPositions
        >>> print(np.round(RotaryPositions()(np.ones((1, 1, 2, 2), "float32")), 3))
        [[[[ 1.     1.   ]
           [-0.301  1.382]]]]

    Reference:
        Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2, equations 14-15,
        and section 3.4.2, equation 34, https://arxiv.org/abs/2104.09864;
        Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation", section 2.3,
        https://arxiv.org/abs/2306.15595;
        Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3,
        https://arxiv.org/abs/2309.00071
    """

    saved_options: tuple[str, ...] = ("max_wavelength", "fraction", "layout", "scaling")
    needs_equal_sizes = True

    def __init__(self, max_wavelength=10000.0, fraction=1.0, layout="interleaved", scaling=None, **kwargs):
        super().__init__(**kwargs)
        if max_wavelength <= 0:
            raise ValueError(f"`max_wavelength` must be positive. Received: max_wavelength={max_wavelength}.")
        if not 0 < fraction <= 1:
            raise ValueError(f"`fraction` must be in (0, 1]. Received: fraction={fraction}.")
        if layout not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {', '.join(LAYOUTS)}. Received: layout={layout!r}.")
        self._scaling = parse_scaling(scaling)
        if scaling is not None and max_wavelength <= 1:
            raise ValueError(
                f"A `scaling` requires a `max_wavelength` above 1. Received: max_wavelength={max_wavelength}."
            )
        self.max_wavelength = max_wavelength
        self.fraction = fraction
        self.layout = layout
        self.scaling = scaling

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

    def _rates(self, size):
        """Returns the angle of each pair at position 1, float32 [size/2]."""
        if self._scaling is None:
            return rates(size, self.max_wavelength)
        return ops.convert_to_tensor(self._scaling.rates(size, self.max_wavelength), "float32")

    def _split_pairs(self, rotated):
        """Returns the first and the second feature of each pair, both [..., R/2], from [..., R]."""
        if self.layout == "interleaved":
            return rotated[..., 0::2], rotated[..., 1::2]
        half = rotated.shape[-1] // 2
        return rotated[..., :half], rotated[..., half:]

    def _join_pairs(self, first, second):
        """Returns the inverse of `_split_pairs`, [..., R]."""
        if self.layout == "half_split":
            return ops.concatenate([first, second], axis=-1)
        pairs = ops.stack([first, second], axis=-1)
        return ops.reshape(pairs, (*sizes_of(pairs, *range(len(pairs.shape) - 2)), 2 * first.shape[-1]))

    def _factors(self, positions, size):
        """Returns the factors of rotated features, which broadcast to [..., T, size/2], or `None` for 1."""
        return None if self._scaling is None else self._scaling.attention_scale

    def _cosines_and_sines(self, positions, size):
        """Returns the cosines and sines of the angles at positions, float32 [..., T, size/2]."""
        phases = angles(positions, self._rates(size))
        return ops.cos(phases), ops.sin(phases)

    def rotate(self, heads, start_index=0):
        return self._rotate_at(heads, consecutive(start_index, axis_size(heads, -2)), self._factors)

    def _rotate_at(self, heads, positions, factors):
        """Returns heads [B, N, T, H] rotated at positions, int32 [T] or [B, T]; for `factors` see `_factors`."""
        size = self._rotated_size(heads.shape[-1])
        positions = positions if len(positions.shape) == 1 else positions[:, None]
        cos, sin = computed_once((self, size), lambda positions: self._cosines_and_sines(positions, size), positions)
        factor = factors(positions, size)
        cos, sin = (cos, sin) if factor is None else (cos * factor, sin * factor)
        dtype = backend.standardize_dtype(heads.dtype)
        wide = backend.result_type(dtype, "float32")
        cos, sin = ops.cast(cos, wide), ops.cast(sin, wide)
        first, second = self._split_pairs(ops.cast(heads if size == heads.shape[-1] else heads[..., :size], wide))
        rotated = ops.cast(self._join_pairs(first * cos - second * sin, first * sin + second * cos), dtype)
        return rotated if size == heads.shape[-1] else ops.concatenate([rotated, heads[..., size:]], axis=-1)

    def call(self, heads, start_index=0, positions=None):
        if positions is None:
            return self.rotate(heads, start_index)
        return self._rotate_at(heads, check_positions(positions, start_index, heads.shape[-2]), self._factors)

    def compute_output_shape(self, input_shape):
        return input_shape


GAMMA = 0.4  # the paper's value


@keras.saving.register_keras_serializable(package="attention_zoo")
class XPosPositions(RotaryPositions):
    """Rotary positions whose products decay with the distance: `R(p θᵢ) q · ζᵢ^(p/b)` and `R(s θᵢ) k · ζᵢ^(−s/b)`.

    For a query q at position p and a key k at position s, pair i of R rotated features is rotated by `θᵢ = w^(−2i/R)`
    for each position, and multiplied by a power of `ζᵢ = (2i/R + γ) / (1 + γ)`, γ = 0.4; b is `scale_base`. Their
    product has the factor `ζᵢ^((p − s)/b)`, at most 1 for keys before the query: fast pairs weigh near keys, slow pairs
    distant keys, too. For keys after the query the factor exceeds 1, so a causal mask should exclude them.

    Queries and keys have separate factors, so that caches and chunks work as with rotary positions. Attention by
    features of queries and keys, such as `LinearAttention`, would not turn the factors into a decay, and raises an
    error. At position p keys are multiplied by up to 3.5^(p/b): float16 holds this up to about p = 7.5 b, bfloat16 and
    float32 up to 65 b. The factors cost nothing besides the rotation, and there are no weights.

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
        factor = self._factors(positions, size)
        return growth if factor is None else growth * factor

    def _rotate_and_scale(self, heads, start_index, sign):
        positions = consecutive(start_index, axis_size(heads, -2))
        return self._rotate_at(heads, positions, lambda positions, size: self._growth(positions, size, sign))

    def rotate_query(self, heads, start_index=0):
        return self._rotate_and_scale(heads, start_index, 1.0)

    def rotate_key(self, heads, start_index=0):
        return self._rotate_and_scale(heads, start_index, -1.0)

    def call(self, heads, start_index=0, positions=None):
        return Positions.call(self)
