"""The calling convention of all attention layers: arguments, masks, caches and results."""

import contextlib
import dataclasses

import keras
from keras import backend, ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention.description import AttentionDescription
from zoo.layers.core import masks
from zoo.layers.core.base import ReturnsMore
from zoo.layers.core.facts import PLAIN, known_sizes, memos, promises, remembered
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.lazy import computed_from, length_of, value_of
from zoo.layers.core.masks import check_bias, repeat_bias_rows
from zoo.layers.core.softmax import trained_softmax
from zoo.layers.execution import run
from zoo.layers.execution.plan import IMPLEMENTATIONS, choices, plan, recorded_choices
from zoo.layers.normalizations import get_normalization
from zoo.layers.visibility.base import check_rule
from zoo.layers.visibility.visibility import build_visibility

NO_VALUE = "`value` is missing; self-attention is `layer(x, x)`."


class BaseAttention(ReturnsMore, AttentionDescription):
    """Base of the attention layers: project → score → mask → softmax → dropout → weighted sum → project.

    `weights = softmax(score(query, key) + bias)`, `output = weights · value`, where masked positions have weight 0.
    A subclass overrides steps of `AttentionDescription`, first of all `compare`, and `build` if it has weights, but not
    `call`. `zoo.layers.execution` chooses the path by which the steps are computed; see `explain_execution`.
    Axes: B batch, T queries, S keys and values, N heads, H size of a head, D features.

    Args:
        dropout: Rate of dropout on the attention weights, 0 ≤ dropout < 1.
        seed: Seed of the dropout, an integer or `None`.
        implementation: How the weights are computed; the results agree. `"dense"`: all at once. `"blockwise"`: a chunk
            of queries at a time, and again in the backward pass, so that memory is O(S) instead of O(T · S). On
            TensorFlow, if each score depends on its own query and key alone, in tiles of queries × keys: memory then
            depends on neither length, and tiles that are masked completely are skipped. A score that draws random
            numbers is computed all at once. `"fused"`: by the backend's kernel (`keras.ops.dot_product_attention`) for
            dot products of projected queries and keys, unless dropout is active, the call has both a mask and a bias
            (on GPUs with JAX either of them, except a causal mask alone) or a bias in float16, `visibility` chooses
            keys by scores, or a subclass overrides a step that the kernel replaces; the layer then computes like
            `"auto"`. `"auto"`: fused on PyTorch and on GPUs with JAX, else blockwise for sizes that are known and
            large, else dense.
        visibility: A `VisibilityRule`, such as `SlidingWindow(128)` or `Causal() & Segments()`, which masks keys in
            addition to the masks of a call; or `None`.
        normalization: A `Normalization`, which turns scores into weights, or its name.

    Call arguments:
        query: [B, T, Dq].
        value: [B, S, Dv].
        key: [B, S, Dk]; defaults to `value`.
        query_mask: Boolean [B, T]; in this and all other masks, integers other than 0 count as True.
        value_mask: Boolean [B, S].
        key_mask: Boolean [B, S].
        attention_mask: Boolean [B, T, S]; with heads also [B, N, T, S].
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.
        use_causal_mask: Whether query t attends only to the keys up to S − T + t; with a cache, it always does.
        attention_bias: Float tensor that broadcasts to the scores, added before the softmax: [T, S]; without
            heads also [B, T, S]; with heads also [N, T, S] and [B, N, T, S]; any axis may be 1. Infinite biases act as
            very large ones, in every dtype: keys with +∞ share all the weight; keys with −∞ get none, but share it
            evenly if a query has no other keys. A bias never masks.
        start_index: Position of the first query among the keys. Default: the queries are at the end of the keys; with a
            cache, at the end of the new keys.
        segment_ids: Integers [B, S], for a `visibility` with `Segments`.
        query_segment_ids: Integers [B, T]. Default: those of the keys at the positions of the queries.
        prefix_length: Integers [B], for a `visibility` with `PrefixLM`.
        memory: The result of `project_memory(value, key)`, so that a fixed memory is projected once and not at every
            call; `value` and `key` are then ignored and may be `None`.
        cache: Dict from `create_cache` (in layers that have it), to which the keys and values of the call are appended.
            The results are those of a call with all keys and a causal mask. Masks of values and `segment_ids` are then
            [B, L]: they cover the capacity of the cache, or all positions of a growing cache and the new ones. With a
            rolling cache, masks of values are of the new positions, [B, T]; with the state of a linear layer either.

    Returns:
        `output` [B, T, D]; `(output, weights)` with `return_attention_scores`; the new cache, if any, comes last.
        Weights are after the softmax and before dropout: [B, N, T, S], or [B, T, S] for single-head layers.

    Masking:
        All masks are boolean (True = may attend) and are ANDed. For a query without any unmasked key, output and
        weights are exactly zero. The output carries the query's mask.

    Raises:
        ValueError: For a floating point mask, a mask or bias of the wrong rank or size, a mask whose batch size is
            neither the query's nor 1, a call without `value`, or without an argument that `visibility` requires.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import BaseAttention
        >>> class NearbyAttention(BaseAttention):
        ...     def compare(self, query, key, visibility):
        ...         steps = ops.abs(visibility.key_positions - visibility.query_positions[:, None])  # [T, S]
        ...         return ops.matmul(query, ops.swapaxes(key, -1, -2)) - ops.cast(steps, query.dtype)
        >>> inputs = np.zeros((1, 3, 4), "float32")
        >>> _, weights = NearbyAttention()(inputs, inputs, return_attention_scores=True, use_causal_mask=True)
        >>> print(np.round(weights[0], 2))
        [[1.   0.   0.  ]
         [0.27 0.73 0.  ]
         [0.09 0.24 0.67]]
    """

    saved_options: tuple[str, ...] = ("dropout", "seed", "implementation", "visibility", "normalization")
    supports_choosing_rules = True
    """Whether `visibility` may be a rule that `chooses` keys by all scores of a query."""

    def __init__(
        self,
        dropout=0.0,
        seed=None,
        implementation="auto",
        visibility=None,
        normalization="softmax",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout}.")
        if implementation not in IMPLEMENTATIONS:
            raise ValueError(
                f"`implementation` must be one of {', '.join(IMPLEMENTATIONS)}. "
                f"Received: implementation={implementation!r}."
            )
        self.supports_masking = True
        self.dropout = dropout
        self.seed = seed
        self.implementation = implementation
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)
        self.visibility = None if visibility is None else check_rule(visibility)
        if self.visibility is not None and self.visibility.chooses and not self.supports_choosing_rules:
            raise ValueError(
                f"{type(self).__name__} does not support rules that choose keys by scores. "
                f"Received: visibility={visibility!r}."
            )
        self.normalization = get_normalization(normalization, dtype=self.dtype_policy, name="normalization")

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.normalization.build_for_attention(self.num_score_heads)

    def __setattr__(self, name, value):
        if name in ("_called", "built") and self.__dict__.get(name) is value:  # Keras sets them at every call
            return
        super().__setattr__(name, value)

    def __call__(self, query, *args, **kwargs):
        # Checked before Keras builds the layer, which requires the shapes.
        value = args[0] if args else kwargs.get("value")
        key = args[1] if len(args) > 1 else kwargs.get("key")
        check_inputs(query, value, key, kwargs.get("memory"))
        return super().__call__(query, *args, **kwargs)

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
        start_index=None,
        memory=None,
        cache=None,
        segment_ids=None,
        query_segment_ids=None,
        prefix_length=None,
    ):
        check_inputs(query, value, key, memory)  # wrappers such as Keras' TimeDistributed call this method directly
        has_masks = not (query_mask is value_mask is key_mask is None)
        has_mask_inputs = not (segment_ids is query_segment_ids is prefix_length is None)
        is_plain, uses_dropout = False, bool(training) and self.dropout > 0
        if not has_mask_inputs and attention_mask is attention_bias is start_index is memory is cache is None:
            sizes = query.shape[0], query.shape[1], value.shape[1]
            sizes = known_sizes(sizes) if backend.backend() == "torch" else sizes
            signature = *sizes, has_masks, bool(use_causal_mask), uses_dropout
            memo = memos.setdefault(self, {})
            if signature not in memo:
                memo[signature] = self._is_plain_call(*signature)
            is_plain = memo[signature] and choices.get() is None  # the general path records the choice
        if is_plain and not (has_masks or use_causal_mask):
            return self._plain_call(query, value, key, None, training, return_attention_scores)
        mask_arguments = {
            "query_mask": query_mask,
            "value_mask": value_mask,
            "key_mask": key_mask,
            "attention_mask": attention_mask,
        }
        mask_inputs = {
            "segment_ids": segment_ids,
            "query_segment_ids": query_segment_ids,
            "prefix_length": prefix_length,
        }
        for name, tensor in mask_inputs.items():
            if tensor is not None:
                mask_arguments[name] = tensor
        masks.check_batch(mask_arguments, query.shape[0])
        options = {
            "attention_bias": attention_bias,
            "return_attention_scores": return_attention_scores,
            "training": bool(training),
        }
        if cache is not None:
            return self.step(
                query, value, key, cache, memory=memory, start_index=start_index, **mask_arguments, **options
            )
        keys = length_of(value) if memory is None else length_of(memory["value"], -2)
        lengths = length_of(query), keys
        if start_index is None:
            start_index = self._first_position(lengths, use_causal_mask)
        visibility = self._build_visibility(query, lengths, start_index, use_causal_mask, mask_arguments)
        is_shared = value is query and visibility.key_mask is visibility.query_mask  # in self-attention
        query = masks.zero_masked(query, visibility.query_mask)
        if memory is None:
            value = query if is_shared else masks.zero_masked(value, visibility.key_mask)
            key = masks.zero_masked(key, visibility.key_mask)
        if is_plain:
            return self._plain_call(query, value, key, visibility, training, return_attention_scores)
        memory = self.project_memory(value, key) if memory is None else memory
        results = self._attend_and_project(query, memory, visibility, start_index, **options)
        return results if len(results) > 1 else results[0]

    def _is_plain_call(self, batch, queries, keys, has_masks, causal, uses_dropout):
        """Returns whether `compute_attention` computes a call of these sizes; an unknown size is `None`."""
        if not self.built or not self.is_plain():
            return False
        lengths = queries, keys
        visibility = build_visibility(
            lengths, self._first_position(lengths, causal), causal=causal, heads=self.has_heads
        )
        if has_masks:
            visibility = dataclasses.replace(visibility, key_mask=True)
        elif visibility.may_hide_all and not causal:  # the sequence of keys may be empty
            return False
        shape = (batch, *[self.num_score_heads] * self.has_heads, queries, 1)
        return plan(self, shape, keys, visibility, drops=uses_dropout).path == "dense"

    def _plain_call(self, query, value, key, visibility, training, return_attention_scores):
        """Returns the results of a call with inputs that are zero where masked, computed by `compute_attention`.

        Without masks, `visibility` is `None`.
        """
        mask = any_visible = None
        if visibility is not None:
            mask, any_visible = visibility.mask(), None if visibility.is_plainly_causal else visibility.any_visible()
        seed = self.dropout_layer.seed_generator.next() if training and self.dropout > 0 else None
        with trained_softmax() if training else contextlib.nullcontext():
            output, weights = self.compute_attention(query, value, value if key is None else key, mask, seed)
        if any_visible is not None:
            output = self._zero_empty_rows(output, any_visible)
        return (output, weights) if return_attention_scores else output

    def _first_position(self, lengths, causal):
        """Returns the default position of the first query among the keys, `Lazy` if a length is unknown."""
        if isinstance(lengths[0], int) and isinstance(lengths[1], int):
            return self.first_position(lengths, causal)
        return computed_from(lambda *lengths: self.first_position(lengths, causal), *lengths)

    def _input_start(self, start_index):
        """Returns the position of the first query or key if a projection may depend on it, else 0."""
        return value_of(start_index) if remembered(self, "uses_positions", lambda: self.uses_positions) else 0

    def _build_visibility(self, query, lengths, start_index, causal, arguments, has_keys=False):
        """Returns the `Visibility` of a call from its masks and mask inputs."""
        sizes = length_of(query, 0), self.num_score_heads
        options = {"causal": causal, "heads": self.has_heads, "rule": self.visibility, "has_keys": has_keys}
        return build_visibility(lengths, start_index, **arguments, **options, sizes=sizes)

    def explain_execution(self, query, value=None, *args, **kwargs):
        """Returns the path by which a call would be computed, and why, without computing it.

        Args:
            query: [B, T, Dq]; the values of this and all other tensors are not read: `keras.KerasTensor` is enough.
            value: [B, S, Dv].
            *args: Other arguments of the call.
            **kwargs: Other arguments of the call.

        Returns:
            An `Execution` with its `reason` and its `path`: `"fused"`, `"tiles"`, `"chunks"`, `"windows"`, `"sums"` or
            `"dense"`.

        Example:
            >>> import keras
            >>> from zoo.layers import DotAttention
            >>> inputs = keras.KerasTensor((2, 9, 4))
            >>> DotAttention(implementation="dense").explain_execution(inputs, inputs, use_causal_mask=True)
            Execution(path='dense', reason="implementation='dense'")
        """
        arguments = keras.tree.map_structure(_as_symbolic, (query, value, *args))
        options = keras.tree.map_structure(_as_symbolic, kwargs)
        with recorded_choices() as choices:
            self(*arguments, **options)
        return choices[0]

    def step(self, query, value, key, cache, memory, start_index, **arguments):
        """Returns the results of a call with a cache: the output, the weights if they are requested, the new cache.

        A layer whose cache does not contain keys and values overrides this method and `create_cache`.
        For the arguments see `BaseAttention`.
        """
        options = {name: arguments.pop(name) for name in ("attention_bias", "return_attention_scores", "training")}
        position, is_rolling, queries = caches.next_position(cache), caches.is_rolling(cache), length_of(query)
        added = length_of(value) if memory is None else length_of(memory["value"], -2)
        row_lengths, filled = cache.get("lengths"), cache.get("filled")
        # A single query at the end of the keys attends to all of them: it requires no causal mask.
        causal = not (caches.is_growing(cache) and query.shape[1] == 1 and start_index is None)
        if start_index is None:
            start_index = caches.first_query_position(position, added, queries)
        mask = None
        if arguments["value_mask"] is not None or arguments["key_mask"] is not None:
            capacity = value_of(added if is_rolling else caches.capacity_after(cache, added))
            mask = masks.combined_value_mask(arguments["value_mask"], arguments["key_mask"], capacity)
            if not is_rolling:  # only the mask of the new positions
                mask = masks.slice_mask(mask, value_of(position), value_of(added))
        projected, input_start = None, self._input_start(position if row_lengths is None else row_lengths)
        if memory is None and mask is None and arguments["query_mask"] is None and value is query and key is None:
            projected = self.project_jointly(query, input_start)
        if projected is not None:
            options["projected"], memory = projected
        if memory is None:
            value, key = masks.zero_masked(value, mask), masks.zero_masked(key, mask)
            memory = self.project_memory(value, key, input_start)
        if is_rolling:
            caches.check_rolling_step(queries, added)
            memory, cache = caches.append_rolling(cache, memory, mask, self.kept_first)
            arguments |= {"value_mask": memory.pop("real"), "key_mask": None}
            key_positions = memory.pop("positions")
        else:
            memory = cache = caches.append(cache, memory)
            if filled is not None:
                arguments["value_mask"] = masks.conjunction(arguments["value_mask"], filled)
        lengths, has_keys = (queries, length_of(memory["value"], -2)), isinstance(added, int) and added > 0
        visibility = self._build_visibility(query, lengths, start_index, causal, arguments, has_keys)
        if is_rolling:
            visibility = visibility.rolled_to(key_positions)
        elif "index" in cache and causal and not visibility.causal:
            visibility = visibility.limited_to(cache["index"])  # a rule may allow positions that are not filled yet
        start_index = start_index if row_lengths is None else row_lengths
        query = masks.zero_masked(query, visibility.query_mask)
        return *self._attend_and_project(query, memory, visibility, start_index, **options), cache

    def project_jointly(self, inputs, start_index):
        """Returns queries and a memory projected from the same inputs by one product; `None` if it is not supported.

        Args:
            inputs: [B, T, D].
            start_index: Position of the first input.
        """
        return None

    def _attend_and_project(
        self, query, memory, visibility, start_index, attention_bias, return_attention_scores, training, projected=None
    ):
        """Returns the output and, if requested, the weights; `query` [B, T, Dq] is zero where masked."""
        max_keys, inputs = self.max_keys(), query
        visibility = visibility if max_keys is None else visibility.limited_to(max_keys)
        query = self.project_query(inputs, self._input_start(start_index)) if projected is None else projected
        if attention_bias is not None:
            attention_bias = check_bias(attention_bias, (*query.shape[:-1], visibility.num_keys))
        results = self.attend(query, memory, visibility, attention_bias, return_attention_scores, training)
        any_visible = results.get("any_visible", results.get("seen"))  # `seen` was its name until 0.3
        output = self._zero_empty_rows(self.finish(results["output"], inputs), any_visible)
        return (output, results["weights"]) if return_attention_scores else (output,)

    @promises(PLAIN)
    def attend(self, query, memory, visibility, attention_bias, return_attention_scores, training):
        """Returns a dict of `output`, `weights` if they are requested, and `any_visible` if anything is masked.

        `any_visible` is whether a query attends to any key, [B or 1, (N or 1,) T or 1, 1]. The query is from
        `project_query`, the memory from `project_memory`; `attention_bias` broadcasts to the scores or is `None`.
        """
        if "index" in memory:  # the memory is a cache
            memory = {name: memory[name] for name in memory if name != "index"}
        bias = attention_bias
        if bias is not None:
            bias = repeat_bias_rows(bias, axis_size(query, -2))
        return run.attend(self, query, memory, visibility, bias, return_attention_scores, training)

    def _zero_empty_rows(self, output, any_visible):
        """Returns `output` [B, T, D] with zeros where a query attends to no key: the projection may add a bias."""
        if any_visible is None:
            return output
        if self.has_heads:  # [B or 1, T or 1, 1]
            any_visible = any_visible[:, 0] if any_visible.shape[1] == 1 else ops.any(any_visible, axis=1)
        any_visible = ops.cast(any_visible, "bool")
        return ops.where(any_visible, output, ops.cast(0.0, output.dtype))

    def create_cache(self, batch_size, length=None, rolling=False):
        """Returns an empty cache for step-by-step self-attention.

        Args:
            batch_size: B.
            length: Capacity in positions, L; later ones are lost. `None`: the cache grows. `rolling` ignores it.
            rolling: Whether the cache contains only the positions to which later queries may attend, for layers with a
                window: the last `reach` positions and the first `kept_first`, such as those of
                `Causal() & (SlidingWindow(128) | GlobalTokens(range(4)))`. Masks of values are then those of the new
                positions, [B, T]; `attention_mask`, `attention_bias` and weights cover the positions in the cache and
                the new ones. If a position is both among the first and in the window, its weight is among the first.

        Raises:
            ValueError: If the layer is not built; with `rolling`, if it has no window or its `visibility` requires mask
                inputs.
        """
        if not self.built:
            raise ValueError(f"Build or call {type(self).__name__} first: the sizes of a cache depend on its inputs.")
        value, key = (ops.zeros((1, 1, size), dtype=self.compute_dtype) for size in self.memory_sizes)
        memory = self.project_memory(value, key)  # the memory of one position, for its shapes
        capacity = self._rolling_capacity() if rolling else 0 if length is None else length
        buffers = {
            name: ops.zeros((batch_size, *tensor.shape[1:-2], capacity, tensor.shape[-1]), dtype=tensor.dtype)
            for name, tensor in memory.items()
        }
        if rolling:
            buffers["real"] = ops.zeros((batch_size, capacity), dtype="bool")
        return buffers if length is None and not rolling else {**buffers, "index": ops.zeros((), dtype="int32")}

    def _rolling_capacity(self):
        if self.reach is None or (self.visibility is not None and self.visibility.needs):
            raise ValueError(
                "A rolling cache requires attention in a window that depends on positions alone, such as "
                f"`visibility=SlidingWindow(128)`. Received: {type(self).__name__} with visibility={self.visibility!r}."
            )
        return self.kept_first + self.reach


def check_inputs(query, value, key, memory):
    """Checks that a call has a query and either a value or a memory, and that its tensors have three axes.

    Raises:
        ValueError: For any other call, or a key and a value of different lengths.
    """
    if isinstance(query, (list, tuple)):
        raise ValueError("`query` and `value` are separate arguments: `layer(query, value)`. Received: a list.")
    if value is None and memory is None:
        raise ValueError(NO_VALUE)
    if memory is not None and not isinstance(memory, dict):
        raise ValueError(f"`memory` must be a result of `project_memory`. Received: {type(memory).__name__}.")
    for name, tensor in (("query", query), ("value", value), ("key", key)):
        if tensor is not None and len(getattr(tensor, "shape", (0, 0, 0))) != 3:
            raise ValueError(f"`{name}` must be [B, length, size]. Received: shape={tuple(tensor.shape)}.")
    if value is not None and key is not None and masks.sizes_differ(_length(value), _length(key)):
        raise ValueError(
            "`key` must have the length of `value`, [B, S, size]. "
            f"Received: shapes {tuple(key.shape)} and {tuple(value.shape)}."
        )


def _length(tensor):
    return tensor.shape[1] if hasattr(tensor, "shape") else None


def check_built(layer):
    """Checks that a layer is built.

    Raises:
        ValueError: If it is not.
    """
    if not layer.built:
        name = type(layer).__name__
        raise ValueError(f"Build or call {name} first: the sizes of its projections depend on its inputs.")


def _as_symbolic(argument):
    """Returns a symbolic tensor of a tensor's shape and dtype, and anything else unchanged."""
    if not hasattr(argument, "shape") or not argument.shape or isinstance(argument, keras.KerasTensor):
        return argument
    return keras.KerasTensor(argument.shape, backend.standardize_dtype(argument.dtype))
