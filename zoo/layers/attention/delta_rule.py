"""The delta rule: each value replaces the value that the state recalls for its key."""

import keras
from keras import ops

from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.attention.state_chunks import attend_by_state, inverse_of_corrections, new_values
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import apply_positionwise, split_at, split_heads

# Keys in a chunk.
CHUNK_SIZE = 64
# Added to the squared length of a query or key.
_EPSILON = 1e-6


@keras.saving.register_keras_serializable(package="attention_zoo")
class DeltaRuleAttention(StateAttention):
    """DeltaNet: `Sₜ = Sₜ₋₁ + βₜ kₜ (vₜ − Sₜ₋₁ᵀ kₜ)ᵀ`, `headₜ = norm(Sₜᵀ qₜ / √H)`, `output = concat(headᵢ) W_o`.

    The state recalls Sᵀ k for a key k. Before a value is added, the recalled one is subtracted, in the proportion β:
    with β = 1 and keys of length 1 the new state recalls exactly vₜ for kₜ. `q = φ(X W_q)`, `k = φ(Y W_k)` with
    `φ(x) = swish(x) / |swish(x)|`, and `β = sigmoid(Y W_β)`, a number for each head. The norm divides each head at each
    position by the root of its mean square, without learned weights.

    Three forms agree. In chunks of positions, with `A = tril(diag(β) K Kᵀ, −1)` and the state S before the chunk, the
    differences that are added to the state are `U = (I + A)⁻¹ diag(β) (V − K S)`, and `heads = Q S + tril(Q Kᵀ) U`, at
    a cost of (T + S) · N · H · V. A step is the recurrence; the cache is the state, whose size does not depend on the
    length. In parallel for all pairs, the weights are `tril(Q Kᵀ) (I + A)⁻¹ diag(β)`: `return_attention_scores` (which
    does not change the output) and the implementations `"dense"` and `"blockwise"` compute them, at a cost of
    S² · N · (S + T). All of it is computed in float32 or wider.

    The layer is always causal, even without `use_causal_mask`. A masked key does not change the state. There is no
    softmax: the layer takes no `attention_bias`, and no `attention_mask`, since a key changes the state for all later
    queries; weights may be negative, and their rows may have any sum. With a cache there are no weights and no
    `start_index`. The short convolutions of published models are not part of the layer.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H.
        value_dim: Size of each head for values, V. Default: `key_dim`.
        use_bias: Whether the projections have biases.
        epsilon: Added to the mean square of a head.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap` and `dropout`.
            `positions` must act on queries and keys, to which they are applied before φ; the paper has none.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For one of these options, an `attention_bias` or `attention_mask`, or `positions` that act on
            scores.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DeltaRuleAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> DeltaRuleAttention(num_heads=2, key_dim=4)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Schlag et al. 2021, "Linear Transformers Are Secretly Fast Weight Programmers", section 4.2, equations 21-24,
        https://arxiv.org/abs/2102.11174; in chunks: Yang et al. 2024, "Parallelizing Linear Transformers with the Delta
        Rule over Sequence Length", section 3, https://arxiv.org/abs/2406.06484
    """

    has_gate = False

    def __init__(self, num_heads, key_dim, value_dim=None, use_bias=False, epsilon=1e-6, **kwargs):
        super().__init__(num_heads, key_dim, value_dim, use_bias, epsilon, **kwargs)
        self.beta_dense = self.projection(self.num_heads, "beta", use_bias)

    def build_projections(self, query_shape, value_shape, key_shape):
        super().build_projections(query_shape, value_shape, key_shape)
        self.beta_dense.build(key_shape)

    def project_query(self, query, start_index=0):
        return self._features(super().project_query(query, start_index))

    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}`; the keys [B, N, S, H + 1] are `[k; β]` in float32 or wider.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Position of the first key, if the keys are appended to a cache.
        """
        memory = super().project_memory(value, key, start_index)
        betas = apply_positionwise(self.beta_dense, value if key is None else key)
        (betas,) = self.widen(split_heads(betas, 1))
        return {**memory, "key": ops.concatenate([self._features(memory["key"]), ops.sigmoid(betas)], axis=-1)}

    def _features(self, heads):
        """Returns φ of queries or keys, in float32 or wider."""
        (heads,) = self.widen(heads)
        heads = ops.silu(heads)
        return heads * ops.rsqrt(ops.sum(ops.square(heads), axis=-1, keepdims=True) + _EPSILON)

    def normalize_heads(self, heads):
        return heads * ops.rsqrt(ops.mean(ops.square(heads), axis=-1, keepdims=True) + self.epsilon)

    @computes("tril(query keyᵀ) (I + A)⁻¹ diag(β) / √H")
    def compare(self, query, key, visibility):
        key, betas = split_at(key, self.key_dim)
        products = ops.matmul(query, ops.swapaxes(key, -1, -2))
        is_earlier = visibility.key_positions <= visibility.query_positions[:, None]  # [T, S]
        products = ops.where(is_earlier, products, ops.zeros_like(products))
        return ops.matmul(products, inverse_of_corrections(key, betas)) * ops.swapaxes(betas, -1, -2)

    def run(self, query, key, value, visibility, start, before):
        key, betas = split_at(key, self.key_dim)
        values = new_values(key, value, betas, before, CHUNK_SIZE)
        return attend_by_state(query, key, values, ops.zeros_like(betas), start, before, CHUNK_SIZE)
