"""Differential attention: the difference of two softmaxes, in which common noise cancels out."""

import keras
from keras import backend, ops

from zoo.layers.attention.base import check_built
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.core.dropout import drop_weights
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import project_heads, replace_layer


@keras.saving.register_keras_serializable(package="attention_zoo")
class DifferentialAttention(MultiHeadAttention):
    """Multi-head attention with weights `softmax(score(Q₁, K₁)) − λ softmax(score(Q₂, K₂))` in each head.

    Each head has two queries and two keys of `key_dim` features, and one value. `λ = exp(λ_q1 · λ_k1) − exp(λ_q2 ·
    λ_k2) + λ₀`, with four learned vectors [p_k] that all heads share. `headᵢ = (1 − λ₀) norm(weightsᵢ V W_vⁱ)`, where
    the norm divides by the root of the mean square of the head, without learned weights (W_o can contain them), and
    `output = concat(headᵢ) W_o`.

    Rows of the weights sum to 1 − λ; individual weights may be negative. Masks and `attention_bias` act on both
    softmaxes, dropout on their difference. The cost is that of multi-head attention with 2N heads, without fused
    kernels and tiles: long sequences are computed in chunks of queries.

    Args:
        num_heads: N, a positive integer; in the paper half the number of heads of multi-head attention.
        key_dim: Size of each of the two queries and keys of a head, p_k.
        value_dim: Size of each head for values. Default: 2 p_k.
        initial_lambda: λ₀, 0 ≤ λ₀ < 1; in the paper `0.8 − 0.6 exp(−0.3 (l − 1))` in layer l = 1, 2, ….
        epsilon: Added to the mean square of a head.
        use_bias: Whether the projections have biases.
        **kwargs: Other options of `MultiHeadAttention`, except `query_dim` and `share_score`.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: If `initial_lambda` is not in [0, 1), for a `query_dim`, or `share_score=False`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DifferentialAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> layer = DifferentialAttention(num_heads=2, key_dim=2)
        >>> output, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 8]), TensorShape([2, 2, 3, 3]))

    Reference:
        Ye et al. 2024, "Differential Transformer", section 2.1, equations 1-3, https://arxiv.org/abs/2410.05258
    """

    saved_options = ("initial_lambda", "epsilon")
    supports_choosing_rules = False

    def __init__(self, num_heads, key_dim, value_dim=None, initial_lambda=0.8, epsilon=1e-5, use_bias=False, **kwargs):
        for option, default in (("query_dim", None), ("share_score", True)):
            if kwargs.pop(option, default) != default:
                raise ValueError(
                    f"{type(self).__name__} takes no `{option}`: both parts of a head have the same score."
                )
        if not 0 <= initial_lambda < 1:
            raise ValueError(f"`initial_lambda` must be in [0, 1). Received: initial_lambda={initial_lambda}.")
        super().__init__(num_heads, key_dim, value_dim or 2 * key_dim, use_bias=use_bias, **kwargs)
        self.initial_lambda = initial_lambda
        self.epsilon = epsilon
        for name in ("query", "key"):
            replace_layer(self, f"{name}_dense", self._dense(self.num_heads * 2 * self.key_dim, name))

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.lambdas = [
            self.add_weight(
                name=f"lambda_{name}",
                shape=(self.key_dim,),
                initializer=keras.initializers.RandomNormal(stddev=0.1),
            )
            for name in ("query_1", "key_1", "query_2", "key_2")
        ]

    def subtracted_part(self):
        """Returns λ, the factor of the second softmax, a scalar in float32 or wider."""
        dtype = backend.result_type(self.compute_dtype, "float32")
        query_1, key_1, query_2, key_2 = (ops.cast(vector, dtype) for vector in self.lambdas)
        return ops.exp(ops.sum(query_1 * key_1)) - ops.exp(ops.sum(query_2 * key_2)) + self.initial_lambda

    def _project_pairs(self, dense, norm, inputs, start_index, rotate):
        """Returns the two queries or keys of each head side by side, [B, N, T, 2 p_k]."""
        inputs = inputs if self.positions is None else self.positions.encode(inputs, start_index)
        heads = project_heads(dense, inputs, self.key_dim)  # [B, 2N, T, p_k]
        heads = self._normalize_heads(norm, heads)
        heads = heads if self.positions is None else rotate(heads, start_index)
        batch, _, length, size = ops.shape(heads)
        heads = ops.reshape(heads, (batch, self.num_heads, 2, length, size))
        return ops.concatenate([heads[:, :, 0], heads[:, :, 1]], axis=-1)

    def project_query(self, query, start_index=0):
        rotate = self.positions and self.positions.rotate_query
        return self._project_pairs(self.query_dense, self.query_norm, query, start_index, rotate)

    def project_memory(self, value, key=None, start_index=0):
        check_built(self)
        rotate = self.positions and self.positions.rotate_key
        key = self._project_pairs(self.key_dense, self.key_norm, value if key is None else key, start_index, rotate)
        return {"key": key, "value": project_heads(self.value_dense, value, self.value_dim)}

    def attend_rows(self, query, memory, visibility, bias=None, seed=None):
        queries, keys = (ops.split(pairs, 2, axis=-1) for pairs in (query, memory["key"]))
        first, second = (
            self.weigh(query, self.score.project_key(key), visibility, bias)
            for query, key in zip(queries, keys, strict=True)
        )
        weights = self.subtract(first, second)
        dropped = drop_weights(weights, self.dropout, seed)
        output = self.weighted_sum(dropped, memory["value"], visibility)
        return {"output": output, "weights": weights, "any_visible": visibility.any_visible()}

    @computes("weights_1 − λ weights_2")
    def subtract(self, first, second):
        """Returns the weights of a head, from the softmaxes of both its parts."""
        return ops.cast(first - second * ops.cast(self.subtracted_part(), first.dtype), self.compute_dtype)

    def weigh(self, query, key, visibility, bias):
        """Returns the weights of one of the two parts of each head, in float32 or wider."""
        scores = self.compare(query, key, visibility)
        scores = ops.cast(scores, backend.result_type(scores.dtype, "float32"))
        return self.normalize(scores if bias is None else scores + bias, query, visibility)

    def can_fuse(self, masked, biased):
        return False

    def finish(self, output, inputs):
        wide = ops.cast(output, backend.result_type(output.dtype, "float32"))
        norm = ops.rsqrt(ops.mean(ops.square(wide), axis=-1, keepdims=True) + self.epsilon)
        return super().finish(ops.cast(wide * norm * (1 - self.initial_lambda), output.dtype), inputs)

    def get_config(self):
        config = super().get_config()
        for option in ("query_dim", "share_score"):
            del config[option]
        return config
