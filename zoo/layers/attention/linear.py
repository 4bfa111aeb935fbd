"""Attention in linear time: a product of features instead of the softmax."""

import keras
from keras import ops

from zoo.layers.attention.linear_time import LinearTimeAttention, any_visible_key, zero_masked_keys
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import split_at
from zoo.layers.execution.plan import Execution, has_zero, record
from zoo.row_selection import take

# Queries in a block of causal attention; each is compared with each key of its own block.
BLOCK_SIZE = 64
# Features are at least e^−20, so that no sum of their products is zero.
LARGEST_NEGATIVE = 20.0


@keras.saving.register_keras_serializable(package="attention_zoo")
class LinearAttention(LinearTimeAttention):
    """Multi-head attention with weights `φ(q) · φ(k) / Σ φ(q) · φ(k)`, where `φ(x) = elu(x) + 1`, in linear time.

    `output = φ(q) Σ φ(k) vᵀ / (φ(q) · Σ φ(k))`: the sums over the keys are the same for all queries, and with a causal
    mask they grow from block to block of queries. Time and memory are O(T + S), without the weights. The sums are in
    float32 or wider under any policy.

    Weights cost O(T · S). They are computed for `return_attention_scores` (which does not change the output), for an
    `attention_mask` or `attention_bias`, with weights `∝ φ(q) · φ(k) · exp(bias)`, and always with the implementations
    `"dense"` and `"blockwise"`.

    The cache contains the sums and not the keys, so that a step costs the same at any length. A step therefore returns
    no weights and takes no `attention_mask`, `attention_bias` or `start_index`, and a position that is masked when it
    is appended stays masked.

    A subclass overrides `query_features` and `key_features` for another φ. A subclass that overrides `compare` or
    another method that computes or uses weights always computes them, and has no cache.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, a positive integer.
        value_dim: Size of each head for values. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap`, `dropout`,
            `visibility` and `normalization`: there are no scores to cap and no weights to drop. `positions` must act
            before φ, like `RotaryPositions` and absolute positions.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For one of these options, and for `positions` that act on scores or require products of queries and
            keys, like `XPosPositions`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LinearAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> LinearAttention(num_heads=2, key_dim=4)(inputs, inputs, use_causal_mask=True).shape
        TensorShape([2, 3, 8])

    Reference:
        Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
        sections 3.2 and 3.3, equations 4-12, https://arxiv.org/abs/2006.16236
    """

    state_name = "sums"
    linear_method = "attend_linearly"

    def __init__(self, num_heads, key_dim, value_dim=None, **kwargs):
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        if self.positions is not None and self.positions.needs_products:
            raise ValueError(
                f"`positions` of {type(self).__name__} must preserve the lengths of queries and keys, like "
                f"RotaryPositions: {type(self.positions).__name__} scales them, which does not decay a product "
                f"of features. Received: positions={self.positions!r}."
            )

    @computes("φ(query) = elu(query) + 1")
    def query_features(self, query):
        """Returns positive features φ [B, N, T, M] of projected queries [B, N, T, H], in float32 or wider.

        A common factor of all features of a query cancels out.
        """
        return _elu_plus_one(query)

    @computes("φ(key) = elu(key) + 1")
    def key_features(self, key):
        """Returns positive features φ [B, N, S, M] of projected keys [B, N, S, H], in float32 or wider.

        The features of a key must depend on that key alone.
        """
        return _elu_plus_one(key)

    @property
    def num_key_features(self):
        """Number of features of a key, M."""
        return self.key_dim

    @property
    def state_shape(self):
        return self.num_key_features, self.value_dim + 1

    def _features(self, query, memory):
        query, key = self.widen(query, memory["key"])
        return self.query_features(query), {"key": self.key_features(key), "value": memory["value"]}

    def attend(self, query, memory, visibility, attention_bias, return_attention_scores, training):
        if has_zero((*query.shape[:-1], memory["value"].shape[-2])):
            return super().attend(query, memory, visibility, attention_bias, return_attention_scores, training)
        query, memory = self._features(query, memory)
        is_quadratic = self.implementation in ("dense", "blockwise") or not self.has_linear_path()
        if is_quadratic or visibility.pair_mask is not None or attention_bias is not None:
            return super().attend(query, memory, visibility, attention_bias, return_attention_scores, training)
        record(Execution("sums", "sums over the keys serve all queries, at a cost of T + S"))
        results, _ = self._attend_to_sums(query, memory, visibility)
        if return_attention_scores:
            results["weights"] = super().attend(query, memory, visibility, None, True, False)["weights"]
        return results

    @computes("log(φ(query) · φ(key))")
    def compare(self, query, key, visibility):
        # The softmax of the logarithms divides each product by the sum of all.
        return ops.log(ops.matmul(query, ops.swapaxes(key, -1, -2)))

    @computes("φ(query) · φ(key) / Σ φ(query) · φ(key)")
    def normalize(self, scores, query, visibility):
        return ops.cast(super().normalize(scores, query, visibility), self.compute_dtype)

    def attend_linearly(self, query, memory, visibility, start, previous=None):
        return self._attend_to_sums(*self._features(query, memory), visibility, previous)

    def _attend_to_sums(self, query, memory, visibility, previous=None):
        """Returns the results of `attend_linearly` from the features of queries [B, N, T, M] and keys [B, N, S, M]."""
        key = zero_masked_keys(memory["key"], visibility)
        (value,) = self.widen(memory["value"])
        value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)  # the last sum is the denominator
        if visibility.causal:
            previous_sums = None if previous is None else previous["sums"]
            products, sums = _causal_sums(query, key, value, ops.sum(visibility.query_positions[:1]), previous_sums)
        else:
            sums = ops.matmul(ops.swapaxes(key, -1, -2), value)
            products = ops.matmul(query, sums)
        any_visible, any_key = any_visible_key(visibility, previous)
        numerator, denominator = split_at(products, self.value_dim)
        if any_visible is not None:
            denominator = ops.where(any_visible, denominator, ops.ones_like(denominator))
        output = ops.cast(numerator / denominator, self.compute_dtype)
        results = {"output": output} if any_visible is None else {"output": output, "any_visible": any_visible}
        return results, {"sums": sums, "any_visible": any_key}


def _elu_plus_one(inputs):
    # elu(x) + 1 itself rounds to zero below x = −17.
    return ops.relu(inputs) + ops.exp(ops.clip(inputs, -LARGEST_NEGATIVE, 0.0))


def _causal_sums(query, key, value, start, previous_sums):
    """Returns `query · Σ key valueᵀ` over the keys up to each query's position, [B, N, T, V], and the sum over all.

    Each block of queries is multiplied by the sum over all earlier blocks of keys, and by each key of its own block.

    Sizes are [B, N, T or S, M] and [B, N, S, V]; `start` is the position of the first query, `previous_sums` are those
    of earlier keys, [B, N, M, V], or `None`.
    """
    length, keys = ops.shape(query)[-2], ops.shape(key)[-2]
    size = max(1, min(BLOCK_SIZE, keys)) if isinstance(keys, int) else BLOCK_SIZE
    blocks = QueryBlocks.aligned(length, start, size)
    positions = blocks.key_positions()  # [C, K]
    exists = ops.logical_and(positions >= 0, positions < keys)[:, None]
    earlier = ops.arange(blocks.window, dtype="int32") <= blocks.row_positions[:, None]  # [R, K]
    query = blocks.cut_rows(query)
    products = ops.matmul(query, ops.swapaxes(blocks.cut_keys(key), -1, -2))  # [B, N, C, R, K]
    products = ops.where(ops.logical_and(exists, earlier), products, ops.zeros_like(products))
    own = ops.matmul(products, blocks.cut_keys(value))
    sums = _prefix_sums(key, value, size, previous_sums)  # [B, N, ⌈S / K⌉ + 1, M, V]
    numbers = ops.clip(blocks.first_keys() // size, 0, ops.shape(sums)[2] - 1)
    products = own + ops.matmul(query, take(sums, numbers, axis=2))
    return blocks.join_rows(products, length), sums[:, :, -1]


def _prefix_sums(key, value, size, previous_sums):
    """Returns `Σ key valueᵀ` over the keys before each block, and then over all keys, [B, N, C + 1, M, V]."""
    keys = ops.shape(key)[-2]
    blocks = QueryBlocks(count=(keys + size - 1) // size, rows=size, window=size, first_key=0, row_positions=None)
    key = blocks.cut_rows(key)
    if not isinstance(keys, int) or keys % size:
        exists = blocks.key_positions()[..., None] < keys  # [C, K, 1]
        key = ops.where(exists, key, ops.zeros_like(key))
    sums = ops.matmul(ops.swapaxes(key, -1, -2), blocks.cut_rows(value))
    # `sums[:, :, :1]` would be empty if there are no blocks.
    if previous_sums is None:
        first = ops.zeros_like(ops.sum(sums, axis=2, keepdims=True))
    else:
        first = previous_sums[:, :, None]
    # Sums are never subtracted, so that later keys leave earlier results unchanged to the last bit.
    return ops.cumsum(ops.concatenate([first, sums], axis=2), axis=2)
