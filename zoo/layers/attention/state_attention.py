"""Causal attention by a state: the base of retention, gated linear attention and the delta rule."""

import dataclasses

from keras import ops

from zoo.layers.attention.linear_time import LinearTimeAttention, any_visible_key, zero_masked_keys
from zoo.layers.core.facts import computes
from zoo.layers.core.lazy import value_of
from zoo.layers.core.projections import projection
from zoo.layers.execution.plan import Execution, has_loops, has_zero, record
from zoo.layers.execution.run import weights_alone


class StateAttention(LinearTimeAttention):
    """Base of causal attention without softmax, whose keys and values are summed in a matrix for each head.

    `headₜ = norm(Sₜᵀ qₜ / √H)`, where the state Sₜ [H, V] depends on Sₜ₋₁, kₜ and vₜ; `output = concat(headᵢ) W_o`,
    or with a gate `(swish(X W_g) ⊙ concat(headᵢ)) W_o`. A subclass defines two forms that agree: in `compare` the
    parallel form, weights for all pairs; in `run` the chunked form, which is parallel within chunks of positions and
    passes the state from chunk to chunk. With chunks of one position, `run` is the recurrence.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H.
        value_dim: Size of each head for values, V. Default: `key_dim`.
        use_bias: Whether the projections have biases.
        epsilon: Added to the variance of a head.
        **kwargs: Other options of `LinearTimeAttention`.
    """

    saved_options: tuple[str, ...] = ("epsilon",)
    state_name = "state"
    linear_method = "run"
    has_gate = True
    supports_pair_masks = False
    """Whether `attention_mask` is supported: only if no key changes what the state retains of other keys."""

    def __init__(self, num_heads, key_dim, value_dim=None, use_bias=False, epsilon=1e-6, **kwargs):
        if self.has_gate and kwargs.get("output_gate"):
            raise ValueError(f"{type(self).__name__} always has an output gate. Received: output_gate=True.")
        super().__init__(num_heads, key_dim, value_dim, use_bias=use_bias, **kwargs)
        self.epsilon = epsilon
        if self.has_gate:
            self.gate_dense = self._make_gate("silu")

    def projection(self, units, name, use_bias):
        """Returns a `Dense` layer with the initializer and dtype policy of this layer."""
        return projection(self, units, name, use_bias, self.kernel_initializer)

    @property
    def state_shape(self):
        return self.key_dim, self.value_dim

    def run(self, query, key, value, visibility, start, before):
        """Returns the heads [B, N, T, V] before their norm, and the state after all keys, [B, N, H, V].

        Args:
            query: From `project_query`, divided by √H; in `wide_dtype`, like key and value.
            key: From `project_memory`, zero where masked.
            value: From `project_memory`.
            visibility: The `Visibility`.
            start: Position of the first query, an integer or a scalar tensor.
            before: State before the first key, [B, N, H, V], or `None` for zeros.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `run`.")

    def normalize_heads(self, heads):
        """Returns heads [B, N, T, V] with mean 0 and variance 1 at each position."""
        centred = heads - ops.mean(heads, axis=-1, keepdims=True)
        return centred * ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + self.epsilon)

    @computes("scores where the mask allows")
    def normalize(self, scores, query, visibility):
        mask = visibility.mask()
        return scores if mask is None else ops.where(mask, scores, ops.zeros_like(scores))

    def attend_rows(self, query, memory, visibility, bias=None, seed=None):
        query, key, value = self.widen(query, memory["key"], memory["value"])
        key = zero_masked_keys(key, visibility)
        weights = self.normalize(self.compare(query * self.key_dim**-0.5, key, visibility), query, visibility)
        output = self.weighted_sum(weights, value, visibility)
        return {
            "output": ops.cast(self.normalize_heads(output), self.compute_dtype),
            "weights": ops.cast(weights, self.compute_dtype),
            "any_visible": visibility.any_visible(),
        }

    def _attend_and_project(
        self, query, memory, visibility, start_index, attention_bias, return_attention_scores, training
    ):
        if attention_bias is not None:
            raise ValueError(f"{type(self).__name__} takes no `attention_bias`: it has no softmax.")
        if visibility.pair_mask is not None and not self.supports_pair_masks:
            raise ValueError(
                f"{type(self).__name__} takes no `attention_mask`: a key changes the state for all later queries. Use "
                "`value_mask`, which masks it for all queries."
            )
        visibility = dataclasses.replace(visibility, causal=True)
        inputs, query = query, self.project_query(query, self._input_start(start_index))
        if self._is_quadratic(query, memory, visibility):
            results = self.attend(query, memory, visibility, None, return_attention_scores, False)
        else:
            record(Execution("sums", "a state of each head serves all queries, at a cost of T + S"))
            results, _ = self.attend_linearly(query, memory, visibility, value_of(start_index))
            if return_attention_scores:
                results["weights"] = weights_alone(self, query, memory, visibility, None)
        output = self._zero_empty_rows(self.finish(results["output"], inputs), results.get("any_visible"))
        return (output, results["weights"]) if return_attention_scores else (output,)

    def _is_quadratic(self, query, memory, visibility):
        sizes = (*ops.shape(query), ops.shape(memory["value"])[-2])
        explicit = self.implementation in ("dense", "blockwise") or not self.has_linear_path()
        return explicit or visibility.pair_mask is not None or has_zero(sizes) or not has_loops(sizes)

    def attend_linearly(self, query, memory, visibility, start, previous=None):
        query, key, value = self.widen(query, memory["key"], memory["value"])
        state = None if previous is None else previous["state"]
        query = query * self.key_dim**-0.5
        if previous is not None and has_zero((ops.shape(key)[-2],)):  # a step of no positions
            heads = ops.matmul(query, state)
        else:
            heads, state = self.run(query, zero_masked_keys(key, visibility), value, visibility, start, state)
        any_visible, any_key = any_visible_key(visibility, previous)
        results = {"output": ops.cast(self.normalize_heads(heads), self.compute_dtype)}
        if any_visible is not None:
            results["any_visible"] = any_visible
        return results, {"state": state, "any_visible": any_key}
