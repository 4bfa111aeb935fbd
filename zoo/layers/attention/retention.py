"""Retention: causal attention without softmax, whose weights decay with the distance."""

import math

import keras
from keras import ops

from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.attention.state_chunks import attend_by_state
from zoo.layers.core.facts import computes
from zoo.layers.positions.rotary import RotaryPositions

# Keys in a chunk.
CHUNK_SIZE = 64


@keras.saving.register_keras_serializable(package="attention_zoo")
class MultiScaleRetention(StateAttention):
    """Retention, causal attention without softmax: `(swish(X W_g) ⊙ norm(heads)) W_o`, `headᵢ = (Q Kᵀ / √H ⊙ Dᵢ) V`.

    `D_ts = γᵢ^(t − s)` for s ≤ t and 0 for the future; queries and keys are rotated, so that decay and rotation are
    one complex factor, `(γ e^{iθ})^(t − s)`. The norm gives each head mean 0 and variance 1 at each position, without
    learned weights. The layer omits the paper's normalisations of the scores: they are a common factor of a head at a
    position, which the norm cancels.

    As a recurrence: `S_t = γ S_{t−1} + k_t v_tᵀ`, `head_t = q_tᵀ S_t / √H`. Chunks of positions are computed in
    parallel, and pass the state from one to the next, at a cost of (T + S) · N · H². The cache is the state, whose size
    does not depend on the length. All of it is computed in float32 or wider. `return_attention_scores`, which does not
    change the output, an `attention_mask`, and the implementations `"dense"` and `"blockwise"` cost T · S.

    The layer is always causal, even without `use_causal_mask`. A masked key adds nothing to the state, but counts in
    distances. There is no softmax: the layer takes no `attention_bias`, weights may be negative, and their rows may
    have any sum. With a cache there are no weights, no `attention_mask` and no `start_index`.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H, even.
        value_dim: Size of each head for values. Default: `key_dim`; in the paper, twice that.
        decays: γ of each head, N numbers in (0, 1]. Default: `1 − 2^(−5 − i)`, i = 0 … N − 1.
        use_bias: Whether the projections have biases.
        epsilon: Added to the variance of a head.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap` and `dropout`.
            `positions` are `RotaryPositions()` by default, or `None`; they must act on queries and keys.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For one of these options, an `attention_bias`, `positions` that act on scores, and `decays` that
            are not N numbers in (0, 1].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiScaleRetention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> MultiScaleRetention(num_heads=2, key_dim=4)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models", sections 2.1 and
        2.2, equations 5-8, https://arxiv.org/abs/2307.08621
    """

    saved_options = ("decays",)
    supports_pair_masks = True

    def __init__(self, num_heads, key_dim, value_dim=None, decays=None, use_bias=False, epsilon=1e-6, **kwargs):
        kwargs.setdefault("positions", RotaryPositions())
        super().__init__(num_heads, key_dim, value_dim, use_bias, epsilon, **kwargs)
        if decays is not None and (len(decays) != self.num_heads or not all(0 < decay <= 1 for decay in decays)):
            raise ValueError(
                f"`decays` must be {self.num_heads} numbers in (0, 1], one for each head. Received: decays={decays}."
            )
        self.decays = None if decays is None else [float(decay) for decay in decays]

    def _log_decays(self):
        """Returns log γ of each head, [N, 1, 1]."""
        if self.decays is None:
            logarithms = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.num_heads)]
        else:
            logarithms = [math.log(decay) for decay in self.decays]
        return ops.reshape(ops.convert_to_tensor(logarithms, dtype=self.wide_dtype), (self.num_heads, 1, 1))

    @computes("γ^(t − s) query · key / √H")
    def compare(self, query, key, visibility):
        steps = visibility.query_positions[:, None] - visibility.key_positions  # [T, S]
        decays = ops.exp(self._log_decays() * ops.cast(ops.maximum(steps, 0), self.wide_dtype))
        return ops.matmul(query, ops.swapaxes(key, -1, -2)) * decays

    def run(self, query, key, value, visibility, start, before):
        decays = self._log_decays()
        # For queries after the last key the state decays further.
        steps = ops.maximum(visibility.query_positions - (ops.shape(key)[-2] - 1), 0)[:, None]
        query = query * ops.exp(decays * ops.cast(steps, self.wide_dtype))
        log_decay = ops.zeros_like(key[:1, :1, :, :1]) + decays  # [1, N, S, 1]
        return attend_by_state(query, key, value, log_decay, start, before, CHUNK_SIZE)
