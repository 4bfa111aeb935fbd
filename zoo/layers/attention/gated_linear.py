"""Gated linear attention: a state that decays at each position by a gate computed from the position's inputs."""

import keras
from keras import ops

from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.attention.state_chunks import attend_by_state
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import apply_positionwise, split_heads
from zoo.row_selection import take

# Keys in a chunk; within a chunk there is a factor for each pair of positions and each feature.
CHUNK_SIZE = 16


@keras.saving.register_keras_serializable(package="attention_zoo")
class GatedLinearAttention(StateAttention):
    """Causal linear attention whose state decays by gates: `Sₜ = diag(αₜ) Sₜ₋₁ + kₜ vₜᵀ`, `headₜ = norm(Sₜᵀ qₜ / √H)`.

    `αₜ = sigmoid(kₜ' W₁ W₂ + b)^(1/τ)`, a number in (0, 1) for each head and feature, where k' is the input of the
    key's projection. `output = (swish(X W_g) ⊙ concat(headᵢ)) W_o`; the norm gives each head mean 0 and variance 1 at
    each position, without learned weights.

    Three forms agree. Chunks of positions are computed in parallel, and pass the state from one to the next, at a cost
    of (T + S) · N · H · V. A step is the recurrence; the cache is the state, whose size does not depend on the length.
    In parallel for all pairs, the weight of key s for query t is `Σ_h q_th k_sh α_(s+1)h … α_th / √H`:
    `return_attention_scores` (which does not change the output) and the implementations `"dense"` and `"blockwise"`
    compute it, at a cost of T · S · N · H. All of it is computed in float32 or wider.

    The layer is always causal, even without `use_causal_mask`. At a masked key the state does not change. There is no
    softmax: the layer takes no `attention_bias`, and no `attention_mask`, since a key changes the state for all later
    queries; weights may be negative, and their rows may have any sum. With a cache there are no weights and no
    `start_index`.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H; in the paper D / 2N.
        value_dim: Size of each head for values, V; in the paper D / N. Default: `key_dim`.
        decay_rank: Size between W₁ and W₂, a positive integer.
        decay_temperature: τ, a positive number; the larger it is, the more slowly the state decays.
        use_bias: Whether the projections have biases; W₂ always has one.
        epsilon: Added to the variance of a head.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap` and `dropout`.
            `positions` must act on queries and keys; the paper has none, since the gates depend on the order.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For one of these options, an `attention_bias` or `attention_mask`, `positions` that act on scores,
            or a `decay_temperature` that is not positive.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GatedLinearAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> GatedLinearAttention(num_heads=2, key_dim=2, value_dim=4)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Yang et al. 2024, "Gated Linear Attention Transformers with Hardware-Efficient Training", sections 4.1-4.4,
        https://arxiv.org/abs/2312.06635
    """

    saved_options = ("decay_rank", "decay_temperature")

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        decay_rank=16,
        decay_temperature=16.0,
        use_bias=False,
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(num_heads, key_dim, value_dim, use_bias, epsilon, **kwargs)
        if decay_temperature <= 0:
            raise ValueError(f"`decay_temperature` must be positive. Received: decay_temperature={decay_temperature}.")
        self.decay_rank = check_size("decay_rank", decay_rank)
        self.decay_temperature = decay_temperature
        self.decay_input_dense = self.projection(self.decay_rank, "decay_input", use_bias=False)
        self.decay_dense = self.projection(self.num_heads * self.key_dim, "decay", use_bias=True)

    def build_projections(self, query_shape, value_shape, key_shape):
        super().build_projections(query_shape, value_shape, key_shape)
        self.decay_input_dense.build(key_shape)
        self.decay_dense.build((*key_shape[:-1], self.decay_rank))

    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}`; the keys [B, N, S, 2 H] are `[k; log α]` in float32 or wider.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Position of the first key, if the keys are appended to a cache.
        """
        memory = super().project_memory(value, key, start_index)
        inputs = value if key is None else key
        gates = apply_positionwise(self.decay_dense, apply_positionwise(self.decay_input_dense, inputs))
        keys, gates = self.widen(memory["key"], split_heads(gates, self.key_dim))
        log_decays = -ops.softplus(-gates) / self.decay_temperature
        return {**memory, "key": ops.concatenate([keys, log_decays], axis=-1)}

    @computes("Σ_h query_h key_h α_h … α_h / √H")
    def compare(self, query, key, visibility):
        key, log_decays = ops.split(key, 2, axis=-1)
        total = ops.cumsum(log_decays, axis=-2)  # up to each key
        # There is no decay before the first key or after the last one.
        indices = ops.clip(visibility.query_positions + 1, 0, ops.shape(key)[-2])
        query_total = take(ops.pad(total, ((0, 0), (0, 0), (1, 0), (0, 0))), indices, axis=-2)
        between = ops.minimum(query_total[..., :, None, :] - total[..., None, :, :], 0.0)  # [B, N, T, S, H]
        return ops.sum(query[..., :, None, :] * key[..., None, :, :] * ops.exp(between), axis=-1)

    def run(self, query, key, value, visibility, start, before):
        key, log_decays = ops.split(key, 2, axis=-1)
        return attend_by_state(query, key, value, log_decays, start, before, CHUNK_SIZE)
