"""The path that all attention layers share."""

import keras
from keras import ops

from zoo.layers import cache as caches
from zoo.layers import masks


class BaseAttention(keras.layers.Layer):
    """Base of the attention layers: project → score → mask → softmax → dropout → weighted sum → project.

    `weights = softmax(score(query, key) + bias)`, `output = weights · value`, where positions that the mask forbids
    have weight 0. A subclass says how queries and keys are projected and compared; it does not override `call`.

    Args:
        dropout: Rate of dropout on the attention weights, 0 ≤ dropout < 1.
        seed: Seed of the dropout, an integer or `None`.

    Call arguments:
        query: [B, T, Dq].
        value: [B, S, Dv].
        key: [B, S, Dk]; defaults to `value`.
        query_mask: Boolean [B, T].
        value_mask: Boolean [B, S].
        key_mask: Boolean [B, S].
        attention_mask: Boolean [B, T, S] (with heads also [B, N, T, S]).
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.
        use_causal_mask: Whether query t sees only the keys up to S − T + t (with a cache: up to its own position).
        attention_bias: Float tensor that broadcasts to the scores, added before the softmax.
        memory: What `project_memory(value, key)` returned, to project a fixed memory once and not at every call;
            `value` and `key` are then ignored and may be `None`.
        cache: Dict from `create_cache` (layers that have it); the new positions are appended and the queries attend
            to all that is in it. Masks of values then cover the room of the cache, [B, L].

    Returns:
        `output` [B, T, D]; `(output, weights)` with `return_attention_scores`; the new cache, if any, comes last.
        Weights are after the softmax and before dropout: [B, N, T, S], or [B, T, S] for single-head layers.

    Masking:
        All masks are boolean (True = may attend) and are ANDed. A query with nothing to attend to returns exact zeros,
        in output and weights. The output carries the query's mask.

    Raises:
        ValueError: For a floating point mask, or a mask of the wrong rank.
    """

    has_heads = False

    def __init__(self, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout}.")
        self.supports_masking = True
        self.dropout = dropout
        self.seed = seed
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def project_query(self, query):
        """Returns the queries as `compare` takes them."""
        raise NotImplementedError(f"{type(self).__name__} must override `project_query`.")

    def project_memory(self, value, key=None):
        """Returns `{"key": ..., "value": ...}` as `compare` and the weighted sum take them.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `project_memory`.")

    def compare(self, query, key):
        """Returns scores [B, T, S] or [B, N, T, S] of projected queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    def project_output(self, output):
        """Returns the layer's output from the weighted sum of the values."""
        return output

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        attention_bias=None,
        memory=None,
        cache=None,
    ):
        if memory is None:
            memory = self.project_memory(value, key)
        offset = None
        if cache is not None:
            offset = cache["index"]
            memory = cache = caches.extend(cache, memory)
        lengths = (ops.shape(query)[1], ops.shape(memory["value"])[-2])
        if cache is None and use_causal_mask:
            offset = lengths[1] - lengths[0]
        mask = masks.combine_masks(
            lengths, query_mask, value_mask, key_mask, attention_mask, causal_offset=offset, heads=self.has_heads
        )
        weights = self.attention_weights(query, memory["key"], mask, attention_bias)
        output = self.project_output(ops.matmul(self.dropout_layer(weights, training=training), memory["value"]))
        output = self.zero_empty_rows(output, mask)
        results = (output,) + ((weights,) if return_attention_scores else ()) + ((cache,) if cache is not None else ())
        return results if len(results) > 1 else output

    def attention_weights(self, query, key, mask, attention_bias=None):
        """Returns the attention weights of unprojected queries and projected keys.

        Args:
            query: [B, T, Dq].
            key: The `key` of `project_memory`.
            mask: Combined boolean mask, or `None`.
            attention_bias: Float tensor that broadcasts to the scores, or `None`.
        """
        scores = self.compare(self.project_query(query), key)
        if attention_bias is not None:
            scores = scores + ops.cast(attention_bias, scores.dtype)
        return masks.masked_softmax(scores, mask)

    def zero_empty_rows(self, output, mask):
        """Returns `output` [B, T, D] with zeros where a query had nothing to attend to (the projection has a bias)."""
        if mask is None:
            return output
        allowed = ops.any(mask, axis=-1, keepdims=True)  # [B, (N,) T, 1]
        if self.has_heads:
            allowed = ops.any(allowed, axis=1)  # [B, T, 1]
        return ops.where(allowed, output, ops.zeros_like(output))

    def compute_output_spec(self, *args, **kwargs):
        # Traced: Keras would derive it from the shape of the output alone, and lose the weights and the cache.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}
