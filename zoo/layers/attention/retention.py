"""Retention: causal attention without softmax, whose weights decay with the distance."""

import dataclasses
import math

import keras
from keras import backend, ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention import masks
from zoo.layers.attention.linear import BITS, check_step, seen_keys
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.state_chunks import attend_by_state
from zoo.layers.core import execution
from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.positions.rotary import RotaryPositions

# Keys in a chunk.
CHUNK_SIZE = 64


@keras.saving.register_keras_serializable(package="attention_zoo")
class MultiScaleRetention(MultiHeadAttention):
    """Retention, causal attention without softmax: `(swish(X W_g) ⊙ norm(heads)) W_o`, `headᵢ = (Q Kᵀ / √H ⊙ Dᵢ) V`.

    `D_ts = γᵢ^(t − s)` for s ≤ t and 0 for the future; queries and keys are rotated, so that decay and rotation are
    one complex factor, `(γ e^{iθ})^(t − s)`. The norm makes mean 0 and variance 1 of each head at each position,
    without weights of its own. The paper's normalisations of the scores only change a common factor of a head at a
    position, which the norm takes out again: they are left out.

    The same as a recurrence: `S_t = γ S_{t−1} + k_t v_tᵀ`, `head_t = q_tᵀ S_t / √H`. Chunks of positions are computed
    in parallel, with the state between them, at a cost of (T + S) · N · H²; the cache is the state, of one size at any
    length. All of this is in float32 or wider. `return_attention_scores`, which does not change the output, and an
    `attention_mask` cost T · S, as do the implementations `"dense"` and `"blockwise"`.

    It is always causal, whatever `use_causal_mask`. A masked key adds nothing and leaves all others at their distances:
    places count, as for all positions. There is no softmax, so that an `attention_bias` is refused; weights have
    either sign, and their rows any sum. With a cache there are no weights, no `attention_mask` and no `start_index`.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for query and key, H, even.
        value_dim: Size of each head for value. Default: `key_dim`; in the paper, twice that.
        decays: γ of each head, N numbers in (0, 1]. Default: `1 − 2^(−5 − i)`, i = 0 … N − 1.
        use_bias: Whether the projections have biases.
        epsilon: Added to the variance of a head.
        **kwargs: Other options of `MultiHeadAttention`, except `score` and `dropout`. `positions` are
            `RotaryPositions()` by default, or `None`; they must act on queries and keys.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For a `score`, `dropout` or `attention_bias`, `positions` that act on scores, and `decays` that are
            not N numbers in (0, 1].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiScaleRetention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> MultiScaleRetention(num_heads=2, key_dim=4)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Sun et al. 2023, "Retentive Network: A Successor to Transformer for Large Language Models", sections 2.1 and
        2.2, equations 5-8, https://arxiv.org/abs/2307.08621
    """

    saved_options = ("decays", "epsilon")

    def __init__(self, num_heads, key_dim, value_dim=None, decays=None, use_bias=False, epsilon=1e-6, **kwargs):
        name = type(self).__name__
        for option in ("score", "dropout"):
            if kwargs.get(option):
                raise ValueError(
                    f"{name} takes no `{option}`: it has no softmax. Received: {option}={kwargs[option]!r}."
                )
        positions = kwargs.setdefault("positions", RotaryPositions())
        if getattr(positions, "acts_on_scores", False):
            raise ValueError(
                f"`positions` of {name} must act on queries and keys, like RotaryPositions. "
                f"Received: positions={positions!r}."
            )
        super().__init__(num_heads, key_dim, value_dim, use_bias=use_bias, **kwargs)
        if decays is not None and (len(decays) != self.num_heads or not all(0 < decay <= 1 for decay in decays)):
            raise ValueError(
                f"`decays` must be {self.num_heads} numbers in (0, 1], one for each head. Received: decays={decays}."
            )
        self.decays = None if decays is None else [float(decay) for decay in decays]
        self.epsilon = epsilon
        self.gate_dense = projection(
            self, self.num_heads * self.value_dim, "gate", use_bias, self.kernel_initializer, activation="silu"
        )

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.gate_dense.build(query_shape)

    @property
    def _wide(self):
        return backend.result_type(self.compute_dtype, "float32")

    def _log_decays(self):
        """Returns log γ of each head, [N, 1, 1]."""
        if self.decays is None:
            logarithms = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.num_heads)]
        else:
            logarithms = [math.log(decay) for decay in self.decays]
        return ops.reshape(ops.convert_to_tensor(logarithms, dtype=self._wide), (self.num_heads, 1, 1))

    def compare(self, query, key, visible):
        query, key = (ops.cast(heads, self._wide) for heads in (query, key))
        scores = ops.matmul(query * self.key_dim**-0.5, ops.swapaxes(key, -1, -2))
        steps = visible.query_positions[:, None] - visible.key_positions  # [T, S]
        return scores * ops.exp(self._log_decays() * ops.cast(ops.maximum(steps, 0), self._wide))

    def normalize(self, scores, query, visible):
        mask = visible.mask()
        return scores if mask is None else ops.where(mask, scores, ops.zeros_like(scores))

    def weighted_sum(self, weights, value, visible):
        return ops.matmul(weights, value)

    def attend_rows(self, query, memory, visible, bias=None, seed=None, chunk=0):
        weights = self.normalize(self.compare(query, memory["key"], visible), query, visible)
        output = self.weighted_sum(weights, ops.cast(memory["value"], self._wide), visible)
        return {
            "output": ops.cast(self._normalize_heads(output), self.compute_dtype),
            "weights": ops.cast(weights, self.compute_dtype),
            "seen": visible.seen(self.compute_dtype),
        }

    def can_fuse(self, masked, biased):
        return False

    def _normalize_heads(self, heads):
        """Returns heads [B, N, T, V] with mean 0 and variance 1 at each position."""
        centred = heads - ops.mean(heads, axis=-1, keepdims=True)
        return centred * ops.rsqrt(ops.mean(ops.square(centred), axis=-1, keepdims=True) + self.epsilon)

    def _attend_and_project(self, query, memory, visible, start_index, attention_bias, return_attention_scores, drop):
        if attention_bias is not None:
            raise ValueError(f"{type(self).__name__} has no softmax: it takes no `attention_bias`.")
        visible = dataclasses.replace(visible, causal=True)
        inputs = masks.zero_masked(query, visible.query_mask)
        query = self.project_query(inputs, start_index)
        if self._needs_pairs(query, memory, visible):
            results = self.attend(query, memory, visible, None, return_attention_scores, False)
        else:
            execution.record("sums", "a state of each head serves all queries, at a cost of T + S")
            results, _ = self._attend_by_state(query, memory, visible, start_index)
            if return_attention_scores:
                results["weights"] = self.attend_unfused(query, memory, visible, None, None, ["weights"])["weights"]
        output = self._finish(results, inputs)
        return (output, results["weights"]) if return_attention_scores else (output,)

    def _needs_pairs(self, query, memory, visible):
        sizes = (*ops.shape(query), ops.shape(memory["value"])[-2])
        explicit = self.implementation in ("dense", "blockwise") or visible.pair_mask is not None
        return explicit or execution.has_zero(sizes) or not execution.has_loops(sizes)

    def _attend_by_state(self, query, memory, visible, start, before=None):
        """Returns `output` and `seen`, and the state and whether any key was visible, after all keys."""
        query, key, value = (ops.cast(heads, self._wide) for heads in (query, memory["key"], memory["value"]))
        query = query * self.key_dim**-0.5
        if visible.key_mask is not None:
            key = ops.where(visible.key_mask[:, None, :, None], key, ops.zeros_like(key))
        keys = ops.shape(key)[-2]
        decays = self._log_decays()
        # For a query after the last key the state goes on decaying.
        late = ops.maximum(visible.query_positions - (keys - 1), 0)[:, None]
        query = query * ops.exp(decays * ops.cast(late, self._wide))
        log_decay = decays + ops.zeros_like(key[:1, :1, :, :1])  # [1, N, S, 1]
        output, state = attend_by_state(
            query, key, value, log_decay, start, None if before is None else before["state"], CHUNK_SIZE
        )
        seen, any_key = seen_keys(visible, before)
        results = {"output": ops.cast(self._normalize_heads(output), self.compute_dtype)}
        if seen is not None:
            results["seen"] = ops.cast(seen, self.compute_dtype)
        return results, {"state": state, "seen": any_key}

    def _finish(self, results, inputs):
        gate = apply_positionwise(self.gate_dense, inputs)
        batch, length = ops.shape(gate)[:2]
        gate = ops.transpose(ops.reshape(gate, (batch, length, self.num_heads, self.value_dim)), (0, 2, 1, 3))
        return self._zero_empty_rows(self.project_output(results["output"] * gate), results.get("seen"))

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache for self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions; the state needs none.

        Returns:
            `state`, the bits of the state [B, N, H, V] as integers, since Keras casts floats that enter a layer to its
            compute dtype; `seen` [B], whether there is anything to attend to; and `index`.
        """
        return {
            "state": ops.zeros((batch_size, self.num_heads, self.key_dim, self.value_dim), dtype=BITS[self._wide]),
            "seen": ops.zeros((batch_size,), dtype="bool"),
            "index": ops.zeros((), dtype="int32"),
        }

    def step(self, query, value, key, cache, query_mask, value_mask, key_mask, **others):
        refused = [f"`{name}`" for name, option in others.items() if option is not None and option is not False]
        if refused:
            raise ValueError(
                f"{type(self).__name__} has no keys in its cache to compute weights from: a call with `cache` "
                f"takes no {', '.join(refused)}."
            )
        # Masks of values cover the room of the cache, but only those of the new positions are read.
        index, lengths = cache["index"], (ops.shape(query)[1], ops.shape(value)[1])
        check_step(*lengths)
        first = caches.first_query_position(0, lengths[1], lengths[0])
        value_mask = masks.slice_mask(masks.combined_value_mask(value_mask, key_mask, None), index, lengths[1])
        visible = masks.build_visibility(lengths, first, query_mask, key_mask=value_mask, causal=True, heads=True)
        value, key = masks.zero_masked(value, visible.key_mask), masks.zero_masked(key, visible.key_mask)
        memory = self.project_memory(value, key, index)
        inputs = masks.zero_masked(query, visible.query_mask)
        query = self.project_query(inputs, index + first)
        before = {"state": ops.view(cache["state"], self._wide), "seen": cache["seen"]}
        results, after = self._attend_by_state(query, memory, visible, first, before)
        state = ops.view(after["state"], BITS[self._wide])
        return self._finish(results, inputs), {"state": state, "seen": after["seen"], "index": index + lengths[1]}

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config
