"""Base of recurrent cells that attend to a memory: their states, and the attention inside a step."""

import functools

import keras
from keras import ops

from zoo.layers.core.base import KeepsQuantization
from zoo.layers.core.checks import check_cell, check_layer, check_size
from zoo.layers.core.masks import check_mask, zero_masked
from zoo.layers.recurrent import loops
from zoo.layers.recurrent.states import _InitialStates, next_step, split_states, state_sizes, step_number
from zoo.layers.scores.additive import CoverageScore


class BaseAttentionCell(KeepsQuantization):
    """Base of the recurrent attention cells: an inner cell, or a stack of them, and an attention layer.

    The cell runs step by step, in `AttentionRNN`, or in `keras.layers.RNN`. A call must not write to the layer, so the
    states of `RNN` contain the memory: `states = cell.initial_states(memory, mask, inner_states)` of a built cell.
    A subclass defines in `step` when the cell attends.

    Args:
        cell: A recurrent cell, such as `keras.layers.GRUCell`, or a list of them, from the bottom to the top. The first
            state of the top cell is the query.
        attention: An attention layer that follows the contract of `BaseAttention`. If its `needs_query_position` is
            true, the number of the step is passed as `start_index`. With a `CoverageScore` the sum of all earlier
            weights is a state; if the attention `is_recurrent`, the weights of the last step are.
        memory_dim: Last axis of the memory, a positive integer.
        return_attention_scores: Whether the output ends with the weights of the attention, so that
            `keras.layers.RNN` returns them; `split_output` separates them.

    Call arguments:
        inputs: x_t, [B, E].
        states: From `initial_states` or from the previous step.
        training: Whether dropout is active.

    Returns:
        The output [B, D] and the new states. With `return_attention_scores` the output is [B, D + S], or [B, D + N · S]
        with heads.

    Raises:
        ValueError: If `cell` is not a recurrent cell, `attention` is not a layer, an inner cell has dropout, an
            attention with heads has coverage, or `RNN` is called without `initial_state`.
    """

    saved_options: tuple[str, ...] = ("cell", "attention", "memory_dim", "return_attention_scores")

    def __init__(self, cell, attention, memory_dim, return_attention_scores=False, **kwargs):
        super().__init__(**kwargs)
        if isinstance(check_cell(cell), (list, tuple)):
            cell = keras.layers.StackedRNNCells(list(cell), dtype=self.dtype_policy, name="cells")
        self.cell = cell
        self.attention = check_layer("attention", attention)
        self.memory_dim = check_size("memory_dim", memory_dim)
        self.return_attention_scores = return_attention_scores
        if self.has_coverage_state and attention.has_heads:
            raise ValueError(f"Coverage requires a single head. Received: attention={type(attention).__name__}.")
        for inner in self._inner_cells():
            check_no_dropout("cell", inner)

    def _inner_cells(self):
        return list(self.cell.cells) if isinstance(self.cell, keras.layers.StackedRNNCells) else [self.cell]

    @property
    def inner_state_sizes(self):
        """Sizes of the inner cells' states, from the bottom to the top."""
        return [size for cell in self._inner_cells() for size in state_sizes(cell)]

    @property
    def query_index(self):
        """Index of the state that is the query: the first of the top cell."""
        return sum(len(state_sizes(cell)) for cell in self._inner_cells()[:-1])

    @property
    def query_dim(self):
        """Last axis of the query."""
        return self.inner_state_sizes[self.query_index]

    @property
    def context_dim(self):
        """Last axis of the attention's output."""
        return self.attention.compute_output_shape((None, 1, self.query_dim), (None, None, self.memory_dim))[-1]

    @property
    def has_step_counter(self):
        """Whether the number of the step is a state."""
        return bool(self.attention.needs_query_position)

    @property
    def has_coverage_state(self):
        """Whether the sum of the weights of all steps, [B, S], is a state."""
        return isinstance(getattr(self.attention, "score", None), CoverageScore)

    @property
    def has_alignment_state(self):
        """Whether the weights of the last step, [B, S], are a state."""
        return self.attention.is_recurrent

    @property
    def attends_in_order(self):
        """Whether the weights of a step depend on earlier weights, so that steps cannot be computed in parallel."""
        return self.has_coverage_state or self.has_alignment_state

    @property
    def fed_state_sizes(self):
        """Sizes of the states that `step` returns besides those of the inner cells."""
        return []

    @property
    def own_state_sizes(self):
        """Sizes of the states that change at every step; `None` stands for the length of the memory."""
        weights = [None] * (self.has_coverage_state + self.has_alignment_state)
        return [*self.inner_state_sizes, *self.fed_state_sizes, *weights, *([2] if self.has_step_counter else [])]

    @property
    def state_size(self):
        """`own_state_sizes`, then `None` for the memory's keys, its values and its mask."""
        return [*self.own_state_sizes, None, None, None]

    @property
    def step_size(self):
        """Last axis of the output without attention weights."""
        raise NotImplementedError(f"{type(self).__name__} must override `step_size`.")

    @property
    def output_size(self):
        """Last axis of the output."""
        if self.return_attention_scores:
            raise ValueError(
                "The last axis of an output with attention weights depends on the memory: use `AttentionRNN` in a "
                "functional model. Received: return_attention_scores=True."
            )
        return self.step_size

    @property
    def cell_input_dim(self):
        """Size of the inputs of the bottom cell besides x_t."""
        return 0

    def build(self, input_shape):
        batch = input_shape[0]
        if not self.cell.built:  # a reloaded cell is built already
            self.cell.build((batch, input_shape[-1] + self.cell_input_dim))
        self._build_attention(batch)

    def _build_attention(self, batch=None):
        if not self.attention.built:  # a reloaded attention layer is built already
            self.attention.build((batch, 1, self.query_dim), (batch, None, self.memory_dim))

    def get_initial_state(self, batch_size=None):
        """Raises an error: `RNN` calls it without `initial_state`, but there is no default memory."""
        raise ValueError(
            "The states contain the memory: call `RNN` with `initial_state=cell.initial_states(memory, memory_mask, "
            "inner_states)`. Received: initial_state=None."
        )

    def project_memory(self, memory, memory_mask=None):
        """Returns the projected memory, a dict, which the attention reads at every step.

        Args:
            memory: [B, S, M], M = `memory_dim`; or a projected memory, which is returned unchanged.
            memory_mask: Boolean [B, S], or `None`.
        """
        if isinstance(memory, dict):
            return memory
        memory = ops.convert_to_tensor(memory, dtype=self.compute_dtype)
        self._build_attention()
        return self.attention.project_memory(zero_masked(memory, check_mask(memory_mask, "memory_mask", (2,))))

    def own_states(self, inner_states, batch_size, memory_length=None):
        """Returns the states that change at every step, before the first one.

        Args:
            inner_states: States of the inner cells, each [B, units], or all states that change; `None` for zeros.
            batch_size: B.
            memory_length: S; required if the cell `attends_in_order`.

        Raises:
            ValueError: If the number of states is wrong.
        """
        sizes = self.own_state_sizes
        states = [ops.convert_to_tensor(state, dtype=self.compute_dtype) for state in inner_states or []]
        if len(states) not in (0, len(self.inner_state_sizes), len(sizes)):
            raise ValueError(
                f"`inner_states` must be a list of {len(self.inner_state_sizes)} tensors, of sizes "
                f"{self.inner_state_sizes}. Received: {len(states)} tensors."
            )
        sizes = [memory_length if size is None else size for size in sizes[len(states) :]]
        first = [ops.zeros((batch_size, size), dtype=self.compute_dtype) for size in sizes]
        if first and self.has_alignment_state:
            first[-1 - self.has_step_counter] = self.attention.initial_weights(batch_size, memory_length)
        return [*states, *first]

    def initial_states(self, memory, memory_mask=None, inner_states=None):
        """Returns the states before the first step.

        Args:
            memory: [B, S, M], M = `memory_dim`; or the result of `project_memory`.
            memory_mask: Boolean [B, S], or `None`.
            inner_states: See `own_states`.
        """
        arguments = {"memory": memory, "memory_mask": memory_mask, "inner_states": inner_states}
        if any(isinstance(tensor, keras.KerasTensor) for tensor in keras.tree.flatten(arguments)):
            return _InitialStates(self)({name: value for name, value in arguments.items() if value is not None})
        memory_mask = check_mask(memory_mask, "memory_mask", (2,))
        memory = self.project_memory(memory, memory_mask)
        if memory_mask is None:
            values = memory["value"][:, 0] if self.attention.has_heads else memory["value"]
            memory_mask = ops.ones_like(values[:, :, 0], dtype="bool")
        # Recurrent layers cast all states to the compute dtype: the mask is passed as zeros and ones.
        mask = ops.cast(memory_mask, self.compute_dtype)
        return [*self.own_states(inner_states, *ops.shape(mask)), memory["key"], memory["value"], mask]

    def step(self, inputs, states, attend, update, product=None):
        """Returns the output, the attention weights and the new states of one step.

        Args:
            inputs: x_t, [B, E].
            states: The states of the inner cells, and those of `fed_state_sizes`.
            attend: Function query [B, Q] → context [B, C], weights: the attention to the memory.
            update: Function inputs [B, E'], inner states → new inner states: a step of the inner cells.
            product: Function that multiplies by `own_weights`, see `zoo.layers.recurrent.loops.run`; or `None`.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `step`.")

    def advance(
        self,
        inputs,
        states,
        memory,
        memory_mask=None,
        training=None,
        return_attention_scores=False,
        sharing=1,
        product=None,
    ):
        """Returns the output [B, D], the weights [B, (N,) S] or `None`, and the new states of one step.

        Args:
            inputs: x_t, [B, E].
            states: From `own_states` or from the previous step.
            memory: From `project_memory`.
            memory_mask: Boolean [B, S], or `None`.
            training: Whether dropout is active.
            return_attention_scores: Whether to return the weights.
            sharing: Number of adjacent rows that share a row of the memory, such as the beams of a search.
            product: See `step`.
        """
        states, options = list(states), {}
        counters = states.pop() if self.has_step_counter else None
        alignment = states.pop() if self.has_alignment_state else None
        coverage = states.pop() if self.has_coverage_state else None
        if counters is not None:
            options["start_index"] = step_number(counters)
        if sharing > 1 and (counters is not None or self.attends_in_order):
            # As queries of the same row they would have different positions and share the earlier weights.
            memory, memory_mask, sharing = _repeat(memory, sharing), _repeat(memory_mask, sharing), 1
        if coverage is not None:
            memory = {**memory, "key": self.attention.score.cover(memory["key"], coverage)}
        if alignment is not None:
            memory = {**memory, "previous": alignment}
        needs_weights = return_attention_scores or self.attends_in_order

        def attend(query):
            results = self.attention(
                ops.reshape(query, (-1, sharing, query.shape[-1])),
                memory=memory,
                value_mask=memory_mask,
                training=training,
                return_attention_scores=needs_weights,
                **options,
            )
            context, weights = results if needs_weights else (results, None)
            return ops.reshape(context, (-1, context.shape[-1])), _split_queries(weights)

        update = functools.partial(self._update, training=training, product=product)
        output, weights, states = self.step(inputs, states, attend, update, product)
        coverage = [] if coverage is None else [coverage + weights]
        alignment = [] if alignment is None else [weights]
        counters = [] if counters is None else [next_step(counters)]
        return output, weights if return_attention_scores else None, [*states, *coverage, *alignment, *counters]

    def _update(self, inputs, inner_states, training=None, product=None):
        states = split_states(self._inner_cells(), inner_states)
        if product is not None:
            return loops.deferred_stack_step(self._inner_cells(), inputs, states, product)
        is_stack = isinstance(self.cell, keras.layers.StackedRNNCells)
        _, states = self.cell(inputs, states if is_stack else states[0], training=training)
        return keras.tree.flatten(states)

    @property
    def own_weights(self):
        """Weights of `step` besides those of the inner cells, for `loops.run`."""
        return {}

    def deferred_weights(self):
        """Returns all weights for `loops.run`; `None` if it does not support a cell or its dtype."""
        weights = loops.deferred_stack_weights(self._inner_cells(), self.compute_dtype)
        return None if weights is None else {**self.own_weights, **weights}

    def call(self, inputs, states, training=None):
        *own_states, key, value, mask = states
        output, weights, own_states = self.advance(
            inputs,
            own_states,
            {"key": key, "value": value},
            ops.cast(mask, "bool"),
            training,
            self.return_attention_scores,
        )
        return join_output(output, weights), [*own_states, key, value, mask]

    def split_output(self, outputs):
        """Returns the output and the weights of an output that ends with weights.

        Args:
            outputs: [B, D + N · S], or [B, T, D + N · S] from `keras.layers.RNN`.

        Returns:
            [B, (T,) D], and weights [B, (N,) (T,) S].
        """
        output, weights = outputs[..., : self.step_size], outputs[..., self.step_size :]
        if self.attention.has_heads:
            *leading, size = ops.shape(weights)
            heads = self.attention.num_heads
            weights = ops.moveaxis(ops.reshape(weights, (*leading, heads, size // heads)), -2, 1)  # [B, N, (T,) S]
        return output, weights


def check_no_dropout(name, cell):
    """Raises a `ValueError` if a recurrent cell, or one of its inner cells, has dropout."""
    # `keras.layers.RNN` draws a dropout mask for each sequence only for its own cell, not for cells inside it.
    for inner in cell._flatten_layers():
        if getattr(inner, "dropout", 0) or getattr(inner, "recurrent_dropout", 0):
            raise ValueError(
                f"`{name}` must have no dropout; apply dropout to its inputs instead. "
                f"Received: dropout={inner.dropout}, recurrent_dropout={inner.recurrent_dropout}."
            )


def join_output(output, weights=None):
    """Returns an output [B, D] followed by the weights [B, (N,) S], if any."""
    if weights is None:
        return output
    if len(weights.shape) > 2:
        batch, heads, keys = ops.shape(weights)
        weights = ops.reshape(weights, (batch, heads * keys))
    return ops.concatenate([output, weights], axis=-1)


def _repeat(nested, times):
    return keras.tree.map_structure(
        lambda tensor: None if tensor is None else ops.repeat(tensor, times, axis=0), nested
    )


def _split_queries(weights):
    """Returns weights [B · K, (N,) S] from [B, (N,) K, S], or `None` for `None`."""
    if weights is None:
        return None
    weights = ops.moveaxis(weights, -2, 1)
    shape = ops.shape(weights)
    return ops.reshape(weights, (shape[0] * shape[1], *shape[2:]))
