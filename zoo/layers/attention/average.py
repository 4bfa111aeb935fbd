"""Average attention: each position attends equally to all positions up to it."""

import keras
from keras import ops

from zoo.layers.attention.self_mixing import SelfMixing
from zoo.layers.attention.wide_state import WideState
from zoo.layers.core.checks import check_size
from zoo.layers.core.feed_forward import FeedForward
from zoo.layers.core.projections import apply_positionwise, projection


@keras.saving.register_keras_serializable(package="attention_zoo")
class AverageAttention(WideState, SelfMixing):
    """The mean of the positions up to each one, with gates: `gₜ = FFN(Σ_{s≤t} x_s / t)`, `yₜ = iₜ ⊙ xₜ + fₜ ⊙ gₜ`.

    `[i; f] = sigmoid([x; g] W + b)`. The sum is over the positions that are not masked, in float32 or wider, and t is
    their number. The layer is always causal. Its cache contains the sum and t, so that a step costs the same at any
    length. A Transformer block adds the residual connection and the normalisation.

    Args:
        intermediate_dim: Size inside the feed-forward network, a positive integer, or `None` for no FFN.
        use_bias: Whether the network and the gate have biases.

    Call arguments and results: see `SelfMixing`; weights are [B, 1, T, T], 1 / t up to each position.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AverageAttention
        >>> inputs = np.array([[[2.0], [4.0], [9.0]]], "float32")
        >>> _, weights = AverageAttention(intermediate_dim=4)(inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[1.   0.   0.  ]
         [0.5  0.5  0.  ]
         [0.33 0.33 0.33]]

    Reference:
        Zhang et al. 2018, "Accelerating Neural Transformer via an Average Attention Network", section 3, equations 3-6,
        https://aclanthology.org/P18-1166
    """

    saved_options = ("intermediate_dim", "use_bias")

    def __init__(self, intermediate_dim=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = check_size("intermediate_dim", intermediate_dim, optional=True)
        self.use_bias = use_bias
        self.feed_forward = None
        if intermediate_dim is not None:
            self.feed_forward = FeedForward(
                self.intermediate_dim, use_bias=use_bias, dtype=self.dtype_policy, name="feed_forward"
            )

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.size = query_shape[-1]
        if self.feed_forward is not None:
            self.feed_forward.build(query_shape)
        self.gate_dense = projection(self, 2 * self.size, "gate", self.use_bias, activation="sigmoid")
        self.gate_dense.build((*query_shape[:-1], 2 * self.size))

    def mix(self, inputs, real, training, cache, return_attention_scores):
        batch, length = ops.shape(inputs)[:2]
        ones = ops.ones((batch, length, 1), dtype=self.wide_dtype)
        is_real = ones if real is None else ops.cast(real, self.wide_dtype)[..., None]  # [B, T, 1]
        terms = ops.cast(inputs, self.wide_dtype)
        sums, counts = (ops.cumsum(tensor, axis=1) for tensor in (terms, is_real))
        if cache is not None:
            previous_sum, count = self.from_stored(cache["sum"]), cache["count"]
            sums = sums + previous_sum[:, None]
            counts = counts + ops.cast(count, self.wide_dtype)[:, None, None]
            cache = {
                "sum": self.to_stored(previous_sum + ops.sum(terms, axis=1)),
                "count": count + ops.cast(ops.sum(is_real, axis=(1, 2)), "int32"),
                "index": cache["index"] + length,
            }
        mean = ops.cast(sums / ops.maximum(counts, 1.0), self.compute_dtype)
        context = mean if self.feed_forward is None else self.feed_forward(mean, training=training)
        gates = apply_positionwise(self.gate_dense, ops.concatenate([inputs, context], axis=-1))
        input_gate, context_gate = ops.split(gates, 2, axis=-1)
        weights = self._weights(is_real, counts, length, real) if return_attention_scores else None
        return input_gate * inputs + context_gate * context, weights, cache

    def _weights(self, is_real, counts, length, real):
        """Returns the weights of all pairs of positions, [B, 1, T, T]."""
        positions = ops.arange(length, dtype="int32")
        causal = ops.cast(positions <= positions[:, None], self.wide_dtype)  # [T, T]
        weights = is_real[:, None, :, 0] * causal / ops.maximum(counts, 1.0)
        weights = weights if real is None else weights * is_real
        return ops.cast(weights, self.compute_dtype)[:, None]

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache: the sum [B, D] (see `WideState`), the number of its terms [B], and `index`.

        Args:
            batch_size: B.
            length: Not used: the size of the sum does not depend on the number of positions.
        """
        return {
            "sum": self.stored_zeros((batch_size, self.size)),
            "count": ops.zeros((batch_size,), dtype="int32"),
            "index": ops.zeros((), dtype="int32"),
        }
