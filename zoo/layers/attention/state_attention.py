"""Causal attention by a state: the base of retention, gated linear attention and the delta rule."""

import dataclasses

from keras import backend, ops

from zoo.layers.attention.linear import BITS, check_plain, check_sums, has_sums, read_step, seen_keys
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.core import masks
from zoo.layers.core.lazy import value_of
from zoo.layers.core.projections import projection
from zoo.layers.execution.plan import Execution, has_loops, has_zero, record
from zoo.layers.execution.run import weights_alone

# Options of `MultiHeadAttention` that act on scores and their softmax, where they are not used.
_UNUSED = {"score": None, "share_score": True, "logit_softcap": None, "dropout": 0.0}


class StateAttention(MultiHeadAttention):
    """Base of causal attention without softmax, whose keys and values are added up in a matrix for each head.

    `headₜ = norm(Sₜᵀ qₜ / √H)`, where the state Sₜ [H, V] depends on Sₜ₋₁, kₜ and vₜ; `output = concat(headᵢ) W_o`,
    or with a gate `(swish(X W_g) ⊙ concat(headᵢ)) W_o`. There are three forms that agree: a subclass has in `compare`
    the parallel one, weights for all pairs; in `run` the chunked one, in parallel within chunks of positions and with
    the state between them; and that with chunks of one position is the recurrence.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for query and key, H.
        value_dim: Size of each head for value, V. Default: `key_dim`.
        use_bias: Whether the projections have biases.
        epsilon: Added to the variance of a head.
        **kwargs: Other options of `MultiHeadAttention`, except `score`, `share_score`, `logit_softcap`,
            `dropout`, `visibility` and `normalization`. `positions` must act on queries and keys.
    """

    saved_options: tuple[str, ...] = ("epsilon",)
    has_gate = True
    supports_pair_masks = False
    """Whether no key has an effect on what is left of another, so that pairs of query and key can be masked."""

    def __init__(self, num_heads, key_dim, value_dim=None, use_bias=False, epsilon=1e-6, **kwargs):
        name = type(self).__name__
        for option, unused in _UNUSED.items():
            if kwargs.get(option, unused) != unused:
                raise ValueError(
                    f"{name} takes no `{option}`: it has no softmax. Received: {option}={kwargs[option]!r}."
                )
        if self.has_gate and kwargs.get("output_gate"):
            raise ValueError(f"{name} has a gate of its own. Received: output_gate=True.")
        positions = kwargs.get("positions")
        if getattr(positions, "acts_on_scores", False):
            raise ValueError(
                f"`positions` of {name} must act on queries and keys, like RotaryPositions. "
                f"Received: positions={positions!r}."
            )
        super().__init__(num_heads, key_dim, value_dim, use_bias=use_bias, **kwargs)
        check_plain(self)
        self.epsilon = epsilon
        if self.has_gate:
            self.gate_dense = self._gate("silu")

    def projection(self, units, name, use_bias):
        """Returns a linear map with the options of this layer."""
        return projection(self, units, name, use_bias, self.kernel_initializer)

    @property
    def wide_dtype(self):
        """Dtype of all that is added up: float32 or wider."""
        return backend.result_type(self.compute_dtype, "float32")

    def widen(self, *tensors):
        """Returns tensors in `wide_dtype`."""
        return [ops.cast(tensor, self.wide_dtype) for tensor in tensors]

    def run(self, query, key, value, visible, start, before):
        """Returns the heads [B, N, T, V] before their norm, and the state after all keys, [B, N, H, V].

        Args:
            query: From `project_query`, divided by √H; like the others in `wide_dtype`.
            key: From `project_memory`, with zeros where it is masked.
            value: From `project_memory`.
            visible: The `Visibility`.
            start: Position of the first query, an integer or a scalar tensor.
            before: State before the first key, [B, N, H, V], or `None` for zeros.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `run`.")

    def normalize_heads(self, heads):
        """Returns heads [B, N, T, V] with mean 0 and variance 1 at each position."""
        centred = heads - ops.mean(heads, axis=-1, keepdims=True)
        return centred * ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + self.epsilon)

    def normalize(self, scores, query, visible):
        mask = visible.mask()
        return scores if mask is None else ops.where(mask, scores, ops.zeros_like(scores))

    def attend_rows(self, query, memory, visible, bias=None, seed=None):
        query, key, value = self.widen(query, memory["key"], memory["value"])
        key = hide(key, visible)
        weights = self.normalize(self.compare(query * self.key_dim**-0.5, key, visible), query, visible)
        output = self.weighted_sum(weights, value, visible)
        return {
            "output": ops.cast(self.normalize_heads(output), self.compute_dtype),
            "weights": ops.cast(weights, self.compute_dtype),
            "seen": visible.seen(),
        }

    def can_fuse(self, masked, biased):
        return False

    def _attend_and_project(
        self, query, memory, visible, start_index, attention_bias, return_attention_scores, training
    ):
        if attention_bias is not None:
            raise ValueError(f"{type(self).__name__} has no softmax: it takes no `attention_bias`.")
        if visible.pair_mask is not None and not self.supports_pair_masks:
            raise ValueError(
                f"{type(self).__name__} takes no `attention_mask`: a key changes what is left of the others, also for "
                "a query that may not see it. Use `value_mask`, which hides it from all."
            )
        visible = dataclasses.replace(visible, causal=True)
        inputs = masks.zero_masked(query, visible.query_mask)
        query = self.project_query(inputs, self._input_start(start_index))
        if self._needs_pairs(query, memory, visible):
            results = self.attend(query, memory, visible, None, return_attention_scores, False)
        else:
            record(Execution("sums", "a state of each head serves all queries, at a cost of T + S"))
            results, _ = self._attend_by_state(query, memory, visible, value_of(start_index))
            if return_attention_scores:
                results["weights"] = weights_alone(self, query, memory, visible, None)
        output = self._finish(results, inputs)
        return (output, results["weights"]) if return_attention_scores else (output,)

    def _needs_pairs(self, query, memory, visible):
        sizes = (*ops.shape(query), ops.shape(memory["value"])[-2])
        explicit = self.implementation in ("dense", "blockwise") or not has_sums(self, "run")
        return explicit or visible.pair_mask is not None or has_zero(sizes) or not has_loops(sizes)

    def _attend_by_state(self, query, memory, visible, start, before=None):
        """Returns `output` and `seen`, and the state and whether any key was visible, after all keys."""
        query, key, value = self.widen(query, memory["key"], memory["value"])
        state = None if before is None else before["state"]
        query = query * self.key_dim**-0.5
        if before is not None and has_zero((ops.shape(key)[-2],)):  # a step of no positions
            heads = ops.matmul(query, state)
        else:
            heads, state = self.run(query, hide(key, visible), value, visible, start, state)
        seen, any_key = seen_keys(visible, before)
        results = {"output": ops.cast(self.normalize_heads(heads), self.compute_dtype)}
        if seen is not None:
            results["seen"] = seen
        return results, {"state": state, "seen": any_key}

    def _finish(self, results, inputs):
        return self._zero_empty_rows(self.finish(results["output"], inputs), results.get("seen"))

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache for self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions; the state needs none.

        Returns:
            `state`, the bits of the state [B, N, H, V] as integers, since Keras casts floats that enter a layer to its
            compute dtype; `seen` [B], whether there is anything to attend to; and `index`.
        """
        check_sums(self, "run")
        return {
            "state": ops.zeros((batch_size, self.num_heads, self.key_dim, self.value_dim), dtype=BITS[self.wide_dtype]),
            "seen": ops.zeros((batch_size,), dtype="bool"),
            "index": ops.zeros((), dtype="int32"),
        }

    def step(self, query, value, key, cache, query_mask, value_mask, key_mask, **others):
        new = read_step(self, query, value, key, cache, (query_mask, value_mask, key_mask), others)
        before = {"state": ops.view(cache["state"], self.wide_dtype), "seen": cache["seen"]}
        results, after = self._attend_by_state(new.query, new.memory, new.visible, new.first, before)
        state = ops.view(after["state"], BITS[self.wide_dtype])
        return self._finish(results, new.inputs), {"state": state, "seen": after["seen"], "index": new.count}

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config


def hide(key, visible):
    """Returns keys [B, N, S, ...] with zeros where they are masked."""
    if visible.key_mask is None:
        return key
    return ops.where(visible.key_mask[:, None, :, None], key, ops.zeros_like(key))
