"""The calling convention and the contract of all attention layers: masks, caches, and what a call returns."""

import dataclasses

import keras
from keras import backend, ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention.description import AttentionDescription
from zoo.layers.core import masks
from zoo.layers.core.base import ReturnsMore
from zoo.layers.core.facts import PLAIN, memos, promises, remembered
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.lazy import computed_from, length_of, value_of
from zoo.layers.core.masks import check_bias, repeat_bias_rows
from zoo.layers.execution import run
from zoo.layers.execution.plan import IMPLEMENTATIONS, choices, plan, recorded_choices
from zoo.layers.normalizations import get_normalization
from zoo.layers.visibility.base import check_rule
from zoo.layers.visibility.visibility import build_visibility

NO_VALUE = "`value` is missing; self-attention is `layer(x, x)`."


class BaseAttention(ReturnsMore, AttentionDescription):
    """Base of the attention layers: project → score → mask → softmax → dropout → weighted sum → project.

    `weights = softmax(score(query, key) + bias)`, `output = weights · value`, where masked positions have weight 0.
    A subclass overrides parts of its `AttentionDescription`, first of all `compare`, and `build` if it has weights;
    it does not override `call`. How it is computed is for `zoo.layers.execution` to plan, see
    `explain_execution`.
    Axes: B batch, T queries, S keys and values, N heads, H size of a head, D features.

    Args:
        dropout: Rate of dropout on the attention weights, 0 ≤ dropout < 1.
        seed: Seed of the dropout, an integer or `None`.
        implementation: How the weights are computed; the results agree. `"dense"`: all at once. `"blockwise"`: a chunk
            of queries at a time, and once more in the backward pass, so that memory grows with S and not with T · S;
            on TensorFlow in tiles of queries × keys, so that it grows with neither, and what a causal mask or the
            lengths rule out is skipped, if each score depends on its own query and key alone; all at once if a user's
            score draws random numbers. `"fused"`: by the backend's own kernel
            (`keras.ops.dot_product_attention`) for scaled dot products, without active dropout and without a mask and
            a bias at once (on GPUs with JAX without either, but for a causal mask alone), unless a subclass overrides a
            part of what it computes; otherwise as `"auto"`. `"auto"`: fused on PyTorch and on GPUs with JAX, else
            blockwise for sizes that are known and large, else dense.
        visibility: A `VisibilityRule`, such as `SlidingWindow(128)` or `Causal() & Segments()`, which says what a query
            may see besides what masks say; or `None`.
        normalization: What `get_normalization` takes, which makes weights of scores: a `Normalization` or its name.

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
        use_causal_mask: Whether query t sees only the keys up to S − T + t; with a cache it always is so.
        attention_bias: Float tensor that broadcasts to the scores, added before the softmax: [T, S]; [B, T, S], or with
            heads [N, T, S] or [B, N, T, S], whatever B and N are; any axis may be 1. Infinite ones are the limit of
            large ones, in every dtype: keys with +∞ share all the weight; those with −∞ get none, but where a query
            sees no others, they share it evenly. Only masks hide.
        start_index: Position of the first query among the keys. Default: the queries are at the end of the keys, with a
            cache at the end of those that the call adds to it.
        segment_ids: Integers [B, S], for a `visibility` with `Segments`.
        query_segment_ids: Integers [B, T]; default: those of the keys at the positions of the queries.
        prefix_length: Integers [B], for a `visibility` with `PrefixLM`.
        memory: What `project_memory(value, key)` returned, to project a fixed memory once and not at every call;
            `value` and `key` are then ignored and may be `None`.
        cache: Dict from `create_cache` (layers that have it); the keys and values of the call are appended, and what
            the queries see is what they would see with all keys at once and a causal mask. Masks of values and
            `segment_ids` then cover the room of the cache, or in a growing cache everything in it with the new
            positions, [B, L].

    Returns:
        `output` [B, T, D]; `(output, weights)` with `return_attention_scores`; the new cache, if any, comes last.
        Weights are after the softmax and before dropout: [B, N, T, S], or [B, T, S] for single-head layers.

    Masking:
        All masks are boolean (True = may attend) and are ANDed. A query with nothing to attend to returns exact zeros,
        in output and weights. The output carries the query's mask.

    Raises:
        ValueError: For a floating point mask, a mask or bias of the wrong rank or size, a mask whose batch is neither
            the query's nor 1, a query without value, or a call that does not tell what the `visibility` needs.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import BaseAttention
        >>> class NearbyAttention(BaseAttention):
        ...     def compare(self, query, key, visible):
        ...         steps = ops.abs(visible.key_positions - visible.query_positions[:, None])  # [T, S]
        ...         return ops.matmul(query, ops.swapaxes(key, -1, -2)) - ops.cast(steps, query.dtype)
        >>> inputs = np.zeros((1, 3, 4), "float32")
        >>> _, weights = NearbyAttention()(inputs, inputs, return_attention_scores=True, use_causal_mask=True)
        >>> print(np.round(weights[0], 2))
        [[1.   0.   0.  ]
         [0.27 0.73 0.  ]
         [0.09 0.24 0.67]]
    """

    saved_options: tuple[str, ...] = ("dropout", "seed", "implementation", "visibility", "normalization")
    may_choose = True
    """Whether its `visibility` may be a rule that `chooses`: each query needs its scores with all keys at once."""

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
        if self.visibility is not None and self.visibility.chooses and not self.may_choose:
            raise ValueError(
                f"{type(self).__name__} takes no rule that chooses by scores. Received: visibility={visibility!r}."
            )
        self.normalization = get_normalization(normalization, dtype=self.dtype_policy, name="normalization")

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.normalization.build_for_attention(self.num_score_heads)

    def __setattr__(self, name, value):
        if name in ("_called", "built") and self.__dict__.get(name) is value:  # Keras writes them at every call
            return
        super().__setattr__(name, value)

    def __call__(self, query, *args, **kwargs):
        # Checked before Keras builds the layer, for which it needs shapes.
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
        check_inputs(query, value, key, memory)  # wrappers, as Keras' TimeDistributed, call this method itself
        has_masks = not (query_mask is value_mask is key_mask is None)
        has_mask_inputs = not (segment_ids is query_segment_ids is prefix_length is None)
        is_plain, drops = False, bool(training) and self.dropout > 0
        if not has_mask_inputs and attention_mask is attention_bias is start_index is memory is cache is None:
            signature = query.shape[0], query.shape[1], value.shape[1], has_masks, bool(use_causal_mask), drops
            memo = memos.setdefault(self, {})
            if signature not in memo:
                memo[signature] = self._is_plain_call(*signature)
            is_plain = memo[signature] and choices.get() is None  # the general path records the choice
        if is_plain and not (has_masks or use_causal_mask):
            return self._plain_call(query, value, key, None, drops, return_attention_scores)
        given = {
            "query_mask": query_mask,
            "value_mask": value_mask,
            "key_mask": key_mask,
            "attention_mask": attention_mask,
        }
        told = {"segment_ids": segment_ids, "query_segment_ids": query_segment_ids, "prefix_length": prefix_length}
        for name, tensor in told.items():
            if tensor is not None:
                given[name] = tensor
        masks.check_batch(given, query.shape[0])
        options = {
            "attention_bias": attention_bias,
            "return_attention_scores": return_attention_scores,
            "training": bool(training),
        }
        if cache is not None:
            return self.step(query, value, key, cache, memory=memory, start_index=start_index, **given, **options)
        keys = length_of(value) if memory is None else length_of(memory["value"], -2)
        lengths = length_of(query), keys
        if start_index is None:
            start_index = self._first_position(lengths, use_causal_mask)
        visible = self._visible(query, lengths, start_index, use_causal_mask, given)
        if is_plain:
            return self._plain_call(query, value, key, visible, drops, return_attention_scores)
        memory = self._project_unless(memory, value, key, visible.key_mask)
        results = self._attend_and_project(query, memory, visible, start_index, **options)
        return results if len(results) > 1 else results[0]

    def _is_plain_call(self, batch, queries, keys, has_masks, causal, drops):
        """Returns whether `compute_attention` computes a call of these sizes, which are `None` where unknown."""
        if not self.built or not self.is_plain():
            return False
        lengths = queries, keys
        visible = build_visibility(lengths, self._first_position(lengths, causal), causal=causal, heads=self.has_heads)
        if has_masks:
            visible = dataclasses.replace(visible, key_mask=True)
        elif visible.may_hide_all and not causal:  # the sequence of keys may be empty
            return False
        shape = (batch, *[self.num_score_heads] * self.has_heads, queries, 1)
        return plan(self, shape, keys, visible, drops=drops).path == "dense"

    def _plain_call(self, query, value, key, visible, drops, return_attention_scores):
        """Returns the results of a call of `compute_attention`; without masks, `visible` is `None`."""
        mask = nonempty = None
        if visible is not None:
            mask, nonempty = visible.mask(), None if visible.is_plainly_causal else visible.seen()
            query = masks.zero_masked(query, visible.query_mask)
            value, key = masks.zero_masked(value, visible.key_mask), masks.zero_masked(key, visible.key_mask)
        seed = self.dropout_layer.seed_generator.next() if drops else None
        output, weights = self.compute_attention(query, value, value if key is None else key, mask, seed)
        if nonempty is not None:
            output = self._zero_empty_rows(output, nonempty)
        return (output, weights) if return_attention_scores else output

    def _first_position(self, lengths, causal):
        """Returns the default position of the first query among the keys, `Lazy` if a length is unknown."""
        if isinstance(lengths[0], int) and isinstance(lengths[1], int):
            return self.first_position(lengths, causal)
        return computed_from(lambda *lengths: self.first_position(lengths, causal), *lengths)

    def _placed(self, start_index):
        """Returns the position of the first query or key, if a projection may depend on it, or else 0."""
        return value_of(start_index) if remembered(self, "places_inputs", lambda: self.places_inputs) else 0

    def _visible(self, query, lengths, start_index, causal, arguments, has_keys=False):
        """Returns the `Visibility` of a call with these masks, and with what it tells the rule."""
        sizes = length_of(query, 0), self.num_score_heads
        options = {"causal": causal, "heads": self.has_heads, "rule": self.visibility, "has_keys": has_keys}
        return build_visibility(lengths, start_index, **arguments, **options, sizes=sizes)

    def explain_execution(self, query, value=None, *args, **kwargs):
        """Returns by which path a call would be computed, and why; nothing is computed, and results never differ.

        Args:
            query: [B, T, Dq]; like all tensors here, of any values: arrays, tensors or `keras.KerasTensor`s.
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
        arguments = keras.tree.map_structure(_as_symbol, (query, value, *args))
        options = keras.tree.map_structure(_as_symbol, kwargs)
        with recorded_choices() as choices:
            self(*arguments, **options)
        return choices[0]

    def step(self, query, value, key, cache, memory, start_index, **arguments):
        """Returns what a call with a cache returns: the output, the weights if asked for, and the new cache.

        A layer whose cache does not hold keys and values overrides this together with `create_cache`.

        See the call arguments; what the call tells the rule is with the masks.
        """
        options = {name: arguments.pop(name) for name in ("attention_bias", "return_attention_scores", "training")}
        position, rolls, queries = caches.position(cache), caches.rolls(cache), length_of(query)
        added = length_of(value) if memory is None else length_of(memory["value"], -2)
        # A single query at the end of the keys sees all of them: no causal mask has to be computed.
        causal = not (caches.grows(cache) and query.shape[1] == 1 and start_index is None)
        if start_index is None:
            start_index = caches.first_query_position(position, added, queries)
        mask = None
        if arguments["value_mask"] is not None or arguments["key_mask"] is not None:
            room = value_of(added if rolls else caches.room_for(cache, added))
            mask = masks.combined_value_mask(arguments["value_mask"], arguments["key_mask"], room)
            if not rolls:  # those of the new positions
                mask = masks.slice_mask(mask, value_of(position), value_of(added))
        joint = None
        if memory is None and mask is None and arguments["query_mask"] is None and value is query and key is None:
            joint = self.project_jointly(query, self._placed(position))
        if joint is not None:
            options["projected"], memory = joint
        memory = self._project_unless(memory, value, key, mask, position)
        if rolls:
            caches.check_rolling_step(queries, added)
            memory, cache = caches.rolled(cache, memory, mask, self.kept_first)
            arguments |= {"value_mask": memory.pop("real"), "key_mask": None}
            key_positions = memory.pop("positions")
        else:
            memory = cache = caches.extend(cache, memory)
        lengths, has_keys = (queries, length_of(memory["value"], -2)), isinstance(added, int) and added > 0
        visible = self._visible(query, lengths, start_index, causal, arguments, has_keys)
        if rolls:
            visible = visible.rolled_to(key_positions)
        elif "index" in cache and causal and not visible.causal:  # what a rule lets see may not be there yet
            visible = visible.limited_to(cache["index"])
        results = self._attend_and_project(query, memory, visible, start_index, **options)
        return *results, cache

    def _project_unless(self, memory, value, key, mask, position=0):
        """Returns a memory that is given, or else that of values and keys, of which the mask tells the real ones."""
        if memory is not None:
            return memory
        if mask is not None:
            value, key = masks.zero_masked(value, mask), masks.zero_masked(key, mask)
        return self.project_memory(value, key, self._placed(position))

    def project_jointly(self, inputs, start_index):
        """Returns projected queries and the memory of the same inputs by one product; `None` if there is no such one.

        Args:
            inputs: [B, T, D].
            start_index: Position of the first one.
        """
        return None

    def _attend_and_project(
        self, query, memory, visible, start_index, attention_bias, return_attention_scores, training, projected=None
    ):
        max_keys = self.max_keys()
        visible = visible if max_keys is None else visible.limited_to(max_keys)
        inputs = query if visible.query_mask is None else masks.zero_masked(query, visible.query_mask)
        query = self.project_query(inputs, self._placed(start_index)) if projected is None else projected
        if attention_bias is not None:
            attention_bias = check_bias(attention_bias, (*query.shape[:-1], visible.num_keys))
        results = self.attend(query, memory, visible, attention_bias, return_attention_scores, training)
        output = self._zero_empty_rows(self.finish(results["output"], inputs), results.get("seen"))
        return (output, results["weights"]) if return_attention_scores else (output,)

    @promises(PLAIN)
    def attend(self, query, memory, visible, attention_bias, return_attention_scores, training):
        """Returns `output`, `weights` if asked for, and `seen` if anything is masked: whether a query sees any key.

        The query is from `project_query`, the memory from `project_memory`; `attention_bias` broadcasts to the scores
        or is `None`.
        """
        if "index" in memory:  # of a cache
            memory = {name: memory[name] for name in memory if name != "index"}
        bias = attention_bias
        if bias is not None:
            bias = repeat_bias_rows(bias, axis_size(query, -2))
        return run.attend(self, query, memory, visible, bias, return_attention_scores, training)

    def _zero_empty_rows(self, output, seen):
        """Returns `output` [B, T, D] with zeros where a query sees no key: the projection may have a bias."""
        if seen is None:
            return output
        if self.has_heads:  # [B or 1, T or 1, 1]
            seen = seen[:, 0] if seen.shape[1] == 1 else ops.any(seen, axis=1)
        seen = ops.cast(seen, "bool")
        return ops.where(seen, output, ops.cast(0.0, output.dtype))

    def create_cache(self, batch_size, length=None, rolling=False):
        """Returns an empty cache for self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions, L; `None` for a cache that grows. What goes beyond the room is lost.
            rolling: Whether the cache keeps no more positions than a query sees before its own, whatever the length of
                the sequence, for layers that have a window: `reach` positions, after the first `kept_first` that stay
                visible, such as those of `Causal() & (SlidingWindow(128) | GlobalTokens(range(4)))`. Masks of values
                then are of the new positions, [B, T], and masks and biases of pairs, and weights, of the positions kept
                and the new ones; a first one that is in the window, too, has its weight at its first place.

        Raises:
            ValueError: If the layer is not built, or has no window, or its `visibility` needs what a call tells.
        """
        if not self.built:
            raise ValueError(f"Build {type(self).__name__}, or call it, first: a cache has the sizes of its keys.")
        value, key = (ops.zeros((1, 1, size), dtype=self.compute_dtype) for size in self.memory_sizes)
        single = self.project_memory(value, key)  # a position, for the shapes
        room = self._rolling_room() if rolling else 0 if length is None else length
        buffers = {
            name: ops.zeros((batch_size, *tensor.shape[1:-2], room, tensor.shape[-1]), dtype=tensor.dtype)
            for name, tensor in single.items()
        }
        if rolling:
            buffers["real"] = ops.zeros((batch_size, room), dtype="bool")
        return buffers if length is None and not rolling else {**buffers, "index": ops.zeros((), dtype="int32")}

    def _rolling_room(self):
        needs = () if self.visibility is None else self.visibility.needs
        if self.reach is None or needs:
            raise ValueError(
                f"A rolling cache is for attention in a window, such as `visibility=SlidingWindow(128)`, that needs no "
                f"more than positions. Received: {type(self).__name__} with visibility={self.visibility!r}."
            )
        return self.kept_first + self.reach


def check_inputs(query, value, key, memory):
    """Checks that a call has a query and a value, or a memory in its place, each of three axes.

    Raises:
        ValueError: If it has not.
    """
    if isinstance(query, (list, tuple)):
        raise ValueError("`query` and `value` are separate arguments: `layer(query, value)`. Received: a list.")
    if value is None and memory is None:
        raise ValueError(NO_VALUE)
    if memory is not None and not isinstance(memory, dict):
        raise ValueError(f"`memory` must be what `project_memory` returned. Received: {type(memory).__name__}.")
    for name, tensor in (("query", query), ("value", value), ("key", key)):
        if tensor is not None and len(getattr(tensor, "shape", (0, 0, 0))) != 3:
            raise ValueError(f"`{name}` must be [B, length, size]. Received: shape={tuple(tensor.shape)}.")


def check_built(layer):
    """Checks that a layer is built, whose projections have the sizes of its inputs.

    Raises:
        ValueError: If it is not.
    """
    if not layer.built:
        name = type(layer).__name__
        raise ValueError(f"Build {name}, or call it, first: its projections have the sizes of its inputs.")


def _as_symbol(argument):
    """Returns a tensor's shape and dtype as a symbolic tensor, and anything else as it is."""
    if not hasattr(argument, "shape") or not argument.shape or isinstance(argument, keras.KerasTensor):
        return argument
    return keras.KerasTensor(argument.shape, backend.standardize_dtype(argument.dtype))
