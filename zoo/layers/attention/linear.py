"""Attention in linear time: a product of features instead of the softmax."""

from typing import Any, NamedTuple

import keras
from keras import backend, ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core import masks
from zoo.layers.core.facts import overridden_since
from zoo.layers.core.lazy import value_of
from zoo.layers.core.projections import split_at
from zoo.layers.execution.plan import Execution, has_zero, record
from zoo.layers.visibility.visibility import build_visibility

# Queries in a block of causal attention, which are compared with the keys of their own block one by one.
BLOCK_SIZE = 64
# Features are at least e^−20, so that no sum of their products is zero.
LARGEST_NEGATIVE = 20.0
# Integers of the size of a float, as which sums are stored in a cache.
BITS = {"float32": "int32", "float64": "int64"}
# What says by weights of pairs what sums say without them.
BY_PAIRS = ("compare", "normalize", "weighted_sum", "sum_heads", "attend_rows")
_NEVER = 2**31 - 1


@keras.saving.register_keras_serializable(package="attention_zoo")
class LinearAttention(MultiHeadAttention):
    """Multi-head attention with weights `φ(q) · φ(k) / Σ φ(q) · φ(k)`, where `φ(x) = elu(x) + 1`, in linear time.

    `output = φ(q) Σ φ(k) vᵀ / (φ(q) · Σ φ(k))`: the sums over the keys are the same for all queries, and with a causal
    mask they grow from block to block of queries. Time and memory are O(T + S); the weights are never computed. The
    sums are in float32 or wider under any policy.

    Whatever needs the weights themselves costs T · S: `return_attention_scores` (which does not change the output), and
    an `attention_mask` or `attention_bias`, with weights `∝ φ(q) · φ(k) · exp(bias)`. `implementation` applies to
    these; `"dense"` and `"blockwise"` compute the weights in any case.

    The cache holds the sums and not the keys, so that a step costs the same at any length. A step can therefore
    neither return weights nor take an `attention_mask`, an `attention_bias` or a `start_index`, and a position that is
    masked when it enters the cache stays masked.

    A subclass overrides `query_features` and `key_features` for another φ. One that overrides what makes or uses the
    weights, such as `compare`, has them computed in any case, and no cache.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for query and key, a positive integer.
        value_dim: Size of each head for value. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `logit_softcap`, `dropout`, `visibility` and
            `normalization`: there are no scores to cap and no weights to drop. `positions` must act before φ, like
            `RotaryPositions` and the absolute ones.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For one of these options, and for `positions` that act on scores or need the
            products of queries and keys themselves, like `XPosPositions`.

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

    def __init__(self, num_heads, key_dim, value_dim=None, **kwargs):
        name, score, positions = type(self).__name__, kwargs.get("score"), kwargs.get("positions")
        if score is not None:
            raise ValueError(f"{name} takes no `score`: its features define one. Received: score={score!r}.")
        if not kwargs.get("share_score", True):
            raise ValueError(f"{name} has no `score`, and nothing to share. Received: share_score=False.")
        if kwargs.get("logit_softcap") is not None:
            cap = kwargs["logit_softcap"]
            raise ValueError(f"{name} has no scores, and no `logit_softcap` of them. Received: logit_softcap={cap!r}.")
        if getattr(positions, "acts_on_scores", False):
            raise ValueError(
                f"`positions` of {name} must act on queries and keys, like RotaryPositions: there are no scores to act "
                f"on. Received: positions={positions!r}."
            )
        if getattr(positions, "needs_products", False):
            raise ValueError(
                f"`positions` of {name} must keep the lengths of queries and keys, like RotaryPositions: "
                f"{type(positions).__name__} changes them, which a product of features does not show as a decay. "
                f"Received: positions={positions!r}."
            )
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        check_plain(self)
        if self.dropout:
            raise ValueError(
                f"`dropout` of {name} must be 0, since it has no weights to drop; put a Dropout layer after it. "
                f"Received: dropout={self.dropout}."
            )

    def query_features(self, query):
        """Returns positive features φ [B, N, T, M] of projected queries [B, N, T, H], in float32 or wider.

        A common factor of all features of a query does not matter.
        """
        return _elu_plus_one(query)

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
    def _wide(self):
        return backend.result_type(self.compute_dtype, "float32")

    def _features(self, query, key):
        return self.query_features(ops.cast(query, self._wide)), self.key_features(ops.cast(key, self._wide))

    def attend(self, query, memory, visible, attention_bias, return_attention_scores, training):
        if has_zero((*query.shape[:-1], memory["value"].shape[-2])):
            return super().attend(query, memory, visible, attention_bias, return_attention_scores, training)
        query, key = self._features(query, memory["key"])
        features = {"key": key, "value": memory["value"]}
        explicit = self.implementation in ("dense", "blockwise") or not has_sums(self, "_attend_by_sums")
        if explicit or visible.pair_mask is not None or attention_bias is not None:
            return super().attend(query, features, visible, attention_bias, return_attention_scores, training)
        record(Execution("sums", "sums over the keys serve all queries, at a cost of T + S"))
        results, _ = self._attend_by_sums(query, key, memory["value"], visible)
        if return_attention_scores:
            results["weights"] = super().attend(query, features, visible, None, True, False)["weights"]
        return results

    def compare(self, query, key, visible):
        # The softmax of logarithms: each product divided by their sum.
        return ops.log(ops.matmul(query, ops.swapaxes(key, -1, -2)))

    def normalize(self, scores, query, visible):
        return ops.cast(super().normalize(scores, query, visible), self.compute_dtype)

    def can_fuse(self, masked, biased):
        return False

    def _attend_by_sums(self, query, key, value, visible, before=None):
        """Returns `output` and `seen`, and the sums over all keys, from φ(q), φ(k) [B, N, T or S, M] and values.

        Nothing masks pairs; `before` is `{"sums": [B, N, M, H + 1], "seen": [B]}` of earlier keys, or `None`.
        """
        if visible.key_mask is not None:
            key = ops.where(visible.key_mask[:, None, :, None], key, ops.zeros_like(key))
        value = ops.cast(value, self._wide)
        value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)  # the last sum is the denominator
        if visible.causal:
            products, sums = _causal_sums(query, key, value, ops.sum(visible.query_positions[:1]), before)
        else:
            sums = ops.matmul(ops.swapaxes(key, -1, -2), value)
            products = ops.matmul(query, sums)
        seen, any_key = seen_keys(visible, before)
        numerator, denominator = split_at(products, self.value_dim)
        if seen is not None:
            denominator = ops.where(seen, denominator, ops.ones_like(denominator))
        output = ops.cast(numerator / denominator, self.compute_dtype)
        results = {"output": output} if seen is None else {"output": output, "seen": seen}
        return results, {"sums": sums, "seen": any_key}

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache for causal self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions; sums need none.

        Returns:
            `sums`, the bits of the sums [B, N, M, H + 1] as integers, since Keras casts floats that enter a layer to
            its compute dtype; `seen` [B], whether there is anything to attend to; and `index`.
        """
        check_sums(self, "_attend_by_sums")
        shape = (batch_size, self.num_heads, self.num_key_features, self.value_dim + 1)
        return {
            "sums": ops.zeros(shape, dtype=BITS[self._wide]),
            "seen": ops.zeros((batch_size,), dtype="bool"),
            "index": ops.zeros((), dtype="int32"),
        }

    def step(self, query, value, key, cache, query_mask, value_mask, key_mask, **others):
        new = read_step(self, query, value, key, cache, (query_mask, value_mask, key_mask), others)
        query, key = self._features(new.query, new.memory["key"])
        before = {"sums": ops.view(cache["sums"], self._wide), "seen": cache["seen"]}
        results, after = self._attend_by_sums(query, key, new.memory["value"], new.visible, before)
        output = self._zero_empty_rows(self.finish(results["output"], new.inputs), results["seen"])
        sums = ops.view(after["sums"], BITS[self._wide])
        return output, {"sums": sums, "seen": after["seen"], "index": new.count}

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config


class Step(NamedTuple):
    """What a call with a cache of sums computes with.

    Args:
        query: Projected queries.
        memory: Projected new keys and values.
        visible: The `Visibility` of the new positions among themselves.
        inputs: Of the queries, before their projection.
        first: Position of the first query among the new keys.
        count: Number of positions after the call.
    """

    query: Any
    memory: dict[str, Any]
    visible: Any
    inputs: Any
    first: Any
    count: Any


def read_step(layer, query, value, key, cache, given, others):
    """Returns the `Step` of a call with a cache of sums; `given` are the masks of queries, values and keys.

    Raises:
        ValueError: If one of the `others`, arguments by name, is given, or there are more queries than values.
    """
    others = {name: option for name, option in others.items() if name != "training"}  # nothing is dropped
    refused = [f"`{name}`" for name, option in others.items() if option is not None and option is not False]
    if refused:
        raise ValueError(
            f"{type(layer).__name__} has no keys in its cache to compute weights from: a call with `cache` "
            f"takes no {', '.join(refused)}."
        )
    query_mask, value_mask, key_mask = given
    # Masks of values cover the room of the cache, but only those of the new positions are read.
    index, lengths = cache["index"], (ops.shape(query)[1], ops.shape(value)[1])
    check_step(*lengths)
    first = value_of(caches.first_query_position(0, lengths[1], lengths[0]))
    value_mask = masks.slice_mask(masks.combined_value_mask(value_mask, key_mask, None), index, lengths[1])
    visible = build_visibility(lengths, first, query_mask, key_mask=value_mask, causal=True, heads=True)
    value, key = masks.zero_masked(value, visible.key_mask), masks.zero_masked(key, visible.key_mask)
    memory = layer.project_memory(value, key, index)
    inputs = masks.zero_masked(query, visible.query_mask)
    return Step(layer.project_query(inputs, index + first), memory, visible, inputs, first, index + lengths[1])


def has_sums(layer, method):
    """Returns whether sums, by a method of this name, say what the weights do: no subclass changes the latter alone."""
    return not overridden_since(layer, BY_PAIRS, method)


def check_sums(layer, method):
    """Checks that a layer `has_sums`, which alone are in its caches.

    Raises:
        ValueError: If it has none.
    """
    if not has_sums(layer, method):
        raise ValueError(
            f"{type(layer).__name__} overrides one of {', '.join(BY_PAIRS)}, of which sums over the keys know nothing: "
            "it has no cache."
        )


def check_plain(layer):
    """Checks that a layer that sums over the keys has neither a rule of visibility nor a normalisation.

    Raises:
        ValueError: If it has.
    """
    if layer.visibility is not None or not layer.has_softmax:
        raise ValueError(
            f"{type(layer).__name__} sums over the keys: it takes no `visibility` and no `normalization`. "
            f"Received: visibility={layer.visibility!r}, normalization={layer.normalization!r}."
        )


def check_step(queries, keys):
    """Checks that there are no more queries than new keys: sums over fewer keys than the cache has are lost."""
    if isinstance(queries, int) and isinstance(keys, int) and queries > keys:
        raise ValueError(
            "A call with a cache of sums must have at least as many values as queries. "
            f"Received: {queries} queries and {keys} values."
        )


def _elu_plus_one(inputs):
    # elu(x) + 1 itself rounds to zero below x = −17.
    return ops.relu(inputs) + ops.exp(ops.clip(inputs, -LARGEST_NEGATIVE, 0.0))


def _causal_sums(query, key, value, start, before):
    """Returns `query · Σ key valueᵀ` over the keys up to each query's own position, [B, N, T, V], and the sum over all.

    Each block of queries is multiplied with the sum over all earlier blocks of keys, and with the keys of its own block
    one by one.

    Sizes are [B, N, T or S, M] and [B, N, S, V]; `start` is the position of the first query, `before` the sums of
    earlier keys or `None`, see `LinearAttention`.
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
    sums = _prefix_sums(key, value, size, before)  # [B, N, ⌈S / K⌉ + 1, M, V]
    numbers = ops.clip(blocks.first_keys() // size, 0, ops.shape(sums)[2] - 1)
    products = own + ops.matmul(query, ops.take(sums, numbers, axis=2))
    return blocks.join_rows(products, length), sums[:, :, -1]


def _prefix_sums(key, value, size, before):
    """Returns `Σ key valueᵀ` over the keys before each block, and at the end over all, [B, N, C + 1, M, V]."""
    keys = ops.shape(key)[-2]
    blocks = QueryBlocks(count=(keys + size - 1) // size, rows=size, window=size, first_key=0, row_positions=None)
    key = blocks.cut_rows(key)
    if not isinstance(keys, int) or keys % size:
        exists = blocks.key_positions()[..., None] < keys  # [C, K, 1]
        key = ops.where(exists, key, ops.zeros_like(key))
    sums = ops.matmul(ops.swapaxes(key, -1, -2), blocks.cut_rows(value))
    # There may be no block, and yet a sum before it.
    first = ops.zeros_like(ops.sum(sums, axis=2, keepdims=True)) if before is None else before["sums"][:, :, None]
    # Later keys must not change a bit of earlier results: nothing is subtracted.
    return ops.cumsum(ops.concatenate([first, sums], axis=2), axis=2)


def seen_keys(visible, before):
    """Returns which query sees any key, [B, 1, T, 1] or `None` for all; and whether there is any visible key, [B]."""
    if not visible.may_hide_all:
        return None, None
    positions, mask = visible.key_positions[None], visible.key_mask
    positions = positions if mask is None else ops.where(mask, positions, _NEVER)
    first = ops.min(positions, axis=1, initial=_NEVER)  # [B or 1]
    if before is not None:
        first = ops.where(before["seen"], -1, first)
    last = visible.query_positions if visible.causal else ops.full_like(visible.query_positions, _NEVER - 1)
    seen = first[:, None] <= last  # [B or 1, T]
    if visible.query_mask is not None:
        seen = ops.logical_and(seen, visible.query_mask)
    return seen[:, None, :, None], first < _NEVER
