"""Luong's local attention."""

import keras
from keras import ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention.single_head import Attention
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import apply_positionwise
from zoo.layers.core.softmax import masked_softmax

ALIGNMENTS = ("monotonic", "predictive")


@keras.saving.register_keras_serializable(package="attention_zoo")
class LocalAttention(Attention):
    """Attention to the keys around a position `p_t`: `softmax` over `p_t − D … p_t + D`, weight 0 outside.

    Monotonic (local-m): `p_t = t`. Predictive (local-p): `p_t = S · σ(v · tanh(W q_t))`, where S is the number of keys
    that are not masked, and the weights are multiplied by `exp(−(s − p_t)² / (2 (D/2)²))`, so that they sum to less
    than 1. Positions start at 0; weights have the full length S, as in global attention.

    Args:
        window: D, the number of keys on either side, a positive integer.
        alignment: `"monotonic"` or `"predictive"`.
        score: See `Attention`. Default: `"general"`, the best one for local attention in the paper.
        units: Size of the hidden layer that predicts `p_t`. Default: the last axis of the query.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; without `start_index`, cache and causal mask, the first
    query is at key 0. Predictive alignment with a cache requires S from the first step on: a cache of a fixed length L,
    and a mask of values [B, L] that is True at all positions that contain a key after the last step.

    Raises:
        ValueError: For an unknown `alignment`; with predictive alignment for a growing cache, or a cache without a mask
            of values.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LocalAttention
        >>> query, value = np.ones((1, 3, 5), "float32"), np.ones((1, 4, 5), "float32")
        >>> layer = LocalAttention(window=1, score="dot")
        >>> _, weights = layer(query, value, return_attention_scores=True)
        >>> print(np.round(weights[0], 2))
        [[0.5  0.5  0.   0.  ]
         [0.33 0.33 0.33 0.  ]
         [0.   0.33 0.33 0.33]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.2,
        equations 9 and 10, https://arxiv.org/abs/1508.04025
    """

    saved_options = ("window", "alignment", "units")
    supports_choosing_rules = False

    def __init__(self, window, alignment="monotonic", score="general", units=None, **kwargs):
        super().__init__(score, **kwargs)
        if alignment not in ALIGNMENTS:
            raise ValueError(f"`alignment` must be one of {', '.join(ALIGNMENTS)}. Received: alignment={alignment!r}.")
        self.window = check_size("window", window)
        self.alignment = alignment
        self.units = check_size("units", units, optional=True)

    @property
    def needs_query_position(self):
        return self.alignment == "monotonic"

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        if self.alignment == "predictive":
            units = self.units or query_shape[-1]
            policy = {"use_bias": False, "dtype": self.dtype_policy}
            self.hidden_dense = keras.layers.Dense(units, activation="tanh", name="place_hidden", **policy)
            self.place_dense = keras.layers.Dense(1, name="place", **policy)
            self.hidden_dense.build(query_shape)
            self.place_dense.build((*query_shape[:-1], units))

    def first_position(self, lengths, causal):
        return super().first_position(lengths, causal) if causal else 0

    def step(self, query, value, key, cache, *, value_mask, key_mask, **options):
        is_growing, is_masked = caches.is_growing(cache), value_mask is not None or key_mask is not None
        if self.alignment == "predictive" and (is_growing or not is_masked):
            raise ValueError(
                "`alignment='predictive'` requires the number of keys: pass a cache from `create_cache(batch_size, "
                "length)`, and a `value_mask` [B, length] that is True at all positions that contain a key after the "
                f"last step. Received: a {'growing cache' if is_growing else 'cache without a mask of values'}."
            )
        return super().step(query, value, key, cache, value_mask=value_mask, key_mask=key_mask, **options)

    @property
    def _wide_dtype(self):
        return keras.backend.result_type(self.compute_dtype, "float32")

    def _centres(self, query, visibility):
        """Returns the centre of each query's window, [T, 1] or [B, T, 1]."""
        if self.alignment == "monotonic":
            return ops.cast(visibility.query_positions[:, None], self._wide_dtype)
        hidden = apply_positionwise(self.hidden_dense, query)
        logits = ops.cast(apply_positionwise(self.place_dense, hidden), self._wide_dtype)
        if visibility.key_mask is None:
            length = ops.cast(ops.shape(visibility.key_positions)[0], self._wide_dtype)
        else:
            length = ops.sum(ops.cast(visibility.key_mask, self._wide_dtype), axis=1)[:, None, None]
        return length * ops.sigmoid(logits)

    @computes("softmax(scores), inside the window")
    def normalize(self, scores, query, visibility):
        distances = self._centres(query, visibility) - ops.cast(visibility.key_positions, self._wide_dtype)
        mask, inside = visibility.mask(), ops.abs(distances) <= self.window
        weights = masked_softmax(scores, inside if mask is None else ops.logical_and(mask, inside))
        if self.alignment == "monotonic":
            return weights
        return weights * ops.cast(ops.exp(-2.0 * ops.square(distances / self.window)), weights.dtype)

    def compare_layers(self):
        predictive = self.alignment == "predictive"
        return super().compare_layers() + ([self.hidden_dense, self.place_dense] if predictive else [])
