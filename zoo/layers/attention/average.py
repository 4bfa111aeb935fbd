"""Average attention: each position sees the mean of those up to it."""

import keras
from keras import backend, ops

from zoo.layers.attention.linear import BITS
from zoo.layers.attention.self_mixing import SelfMixing
from zoo.layers.core.checks import check_size
from zoo.layers.core.feed_forward import FeedForward
from zoo.layers.core.projections import apply_positionwise, projection


@keras.saving.register_keras_serializable(package="attention_zoo")
class AverageAttention(SelfMixing):
    """The mean of all positions up to each one, and a gate: `gₜ = FFN(Σ_{s≤t} x_s / t)`, `yₜ = iₜ ⊙ xₜ + fₜ ⊙ gₜ`.

    `[i; f] = sigmoid([x; g] W + b)`. The sum is that of the real positions, in float32 or wider, and t their number. It
    is always causal; the cache is the sum and the number, so that a step costs the same at any length. A block adds
    residual and normalisation, as to attention.

    Args:
        intermediate_dim: Size inside the feed-forward network, a positive integer, or `None` for `g` without FFN.
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

    @property
    def _wide(self):
        return backend.result_type(self.compute_dtype, "float32")

    def mix(self, inputs, real, training, cache, return_attention_scores):
        batch, length = ops.shape(inputs)[:2]
        ones = ops.ones((batch, length, 1), dtype=self._wide)
        counted = ones if real is None else ops.cast(real, self._wide)[..., None]
        added = ops.cast(inputs, self._wide)
        sums, counts = (ops.cumsum(tensor, axis=1) for tensor in (added, counted))
        if cache is not None:
            before, count = ops.view(cache["sum"], self._wide), cache["count"]
            sums = sums + before[:, None]
            counts = counts + ops.cast(count, self._wide)[:, None, None]
            cache = {
                "sum": ops.view(before + ops.sum(added, axis=1), BITS[self._wide]),
                "count": count + ops.cast(ops.sum(counted, axis=(1, 2)), "int32"),
                "index": cache["index"] + length,
            }
        mean = ops.cast(sums / ops.maximum(counts, 1.0), self.compute_dtype)
        context = mean if self.feed_forward is None else self.feed_forward(mean, training=training)
        gates = apply_positionwise(self.gate_dense, ops.concatenate([inputs, context], axis=-1))
        of_inputs, of_context = ops.split(gates, 2, axis=-1)
        weights = self._weights(counted, counts, length, real) if return_attention_scores else None
        return of_inputs * inputs + of_context * context, weights, cache

    def _weights(self, counted, counts, length, real):
        """Returns the weights of all pairs of positions, [B, 1, T, T]."""
        places = ops.arange(length, dtype="int32")
        earlier = ops.cast(places <= places[:, None], self._wide)  # [T, T]
        weights = counted[:, None, :, 0] * earlier / ops.maximum(counts, 1.0)
        weights = weights if real is None else weights * counted
        return ops.cast(weights, self.compute_dtype)[:, None]

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache: the bits of the sum [B, D] as integers, and the number of its positions [B].

        Args:
            batch_size: B.
            length: Room for positions; a sum needs none.
        """
        return {
            "sum": ops.zeros((batch_size, self.size), dtype=BITS[self._wide]),
            "count": ops.zeros((batch_size,), dtype="int32"),
            "index": ops.zeros((), dtype="int32"),
        }
