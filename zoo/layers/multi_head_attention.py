"""Multi-head attention with any score function."""

import keras
from keras import ops

from zoo.layers.base_attention import BaseAttention
from zoo.layers.initializers import fresh
from zoo.layers.scores import ScaledDotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class MultiHeadAttention(BaseAttention):
    """Multi-head attention: `concat(head₁ … head_N) W_o`, `headᵢ = attention(Q W_qⁱ, K W_kⁱ, V W_vⁱ)`.

    Each projection is one matrix for all heads, and initialised as one.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for query and key, a positive integer.
        value_dim: Size of each head for value. Default: `key_dim`.
        output_dim: Size of the output. Default: the last axis of the query.
        score: A `Score` layer, applied to each head. Default: `ScaledDotScore()`.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initializer of the projections.
        dropout: Rate of dropout on the attention weights.
        seed: Seed of the dropout.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiHeadAttention
        >>> query, value = np.ones((2, 3, 8), "float32"), np.ones((2, 5, 7), "float32")
        >>> output, weights = MultiHeadAttention(num_heads=2, key_dim=4)(query, value, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 8]), TensorShape([2, 2, 3, 5]))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2, https://arxiv.org/abs/1706.03762
    """

    has_heads = True

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        score=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        value_dim = key_dim if value_dim is None else value_dim
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        sizes |= {} if output_dim is None else {"output_dim": output_dim}
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}.")
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.output_dim = output_dim
        self.score = ScaledDotScore(dtype=self.dtype_policy, name="score") if score is None else score
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = self._projection("query", num_heads * self.key_dim)
        self.key_dense = self._projection("key", num_heads * self.key_dim)
        self.value_dense = self._projection("value", num_heads * self.value_dim)

    def _projection(self, name, size):
        return keras.layers.Dense(
            size,
            use_bias=self.use_bias,
            kernel_initializer=fresh(self.kernel_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def _split_heads(self, projected):
        """Returns [B, N, T, H] from [B, T, N·H]."""
        batch, length = ops.shape(projected)[:2]
        heads = ops.reshape(projected, (batch, length, self.num_heads, projected.shape[-1] // self.num_heads))
        return ops.transpose(heads, (0, 2, 1, 3))

    def build(self, query_shape, value_shape=None, key_shape=None):
        key_shape = key_shape or value_shape
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        batch, length = query_shape[0], query_shape[1]
        if not self.score.built:  # a reloaded one is
            heads = (batch, self.num_heads)
            self.score.build((*heads, length, self.key_dim), (*heads, key_shape[1], self.key_dim))
        self.output_dense = self._projection("output", self.output_dim or query_shape[-1])
        self.output_dense.build((batch, length, self.num_heads * self.value_dim))

    def project_query(self, query):
        return self.score.project_query(self._split_heads(self.query_dense(query)))

    def project_memory(self, value, key=None):
        key = value if key is None else key
        key = self.score.project_key(self._split_heads(self.key_dense(key)))
        return {"key": key, "value": self._split_heads(self.value_dense(value))}

    def compare(self, query, key):
        return self.score.compare(query, key)

    def project_output(self, output):
        batch, _, length, _ = ops.shape(output)
        merged = ops.reshape(ops.transpose(output, (0, 2, 1, 3)), (batch, length, self.num_heads * self.value_dim))
        return self.output_dense(merged)

    def create_cache(self, batch_size, length):
        """Returns an empty cache for self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions, L.
        """
        key = ops.zeros((batch_size, self.num_heads, length, self.key_dim), dtype=self.compute_dtype)
        value = ops.zeros((batch_size, self.num_heads, length, self.value_dim), dtype=self.compute_dtype)
        return {"key": self.score.project_key(key), "value": value, "index": ops.zeros((), dtype="int32")}

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], self.output_dim or query_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "score": keras.saving.serialize_keras_object(self.score),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "score": keras.saving.deserialize_keras_object(config["score"])})
