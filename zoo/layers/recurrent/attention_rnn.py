"""Recurrent decoder: a recurrent attention cell run over a whole sequence."""

import keras
from keras import ops

from zoo.layers.core.base import ReturnsMore, SavesOptions, pack_results
from zoo.layers.core.loops import defers_weight_gradients
from zoo.layers.core.masks import check_mask, single_mask
from zoo.layers.recurrent.base_cell import BaseAttentionCell, join_output
from zoo.layers.recurrent.loops import pad_empty_sequence, remove_padding, run


class _BoundCell:
    """A recurrent attention cell with a fixed memory, for `keras.layers.RNN`: its states do not contain the memory."""

    def __init__(self, cell, **arguments):
        self.cell = cell
        self.arguments = arguments
        self.state_size = cell.own_state_sizes
        self.compute_dtype = cell.compute_dtype

    def call(self, inputs, states, product=None):
        output, weights, states = self.cell.advance(inputs, states, **self.arguments, product=product)
        return join_output(output, weights), states

    __call__ = call


class _MaskingCell(_BoundCell):
    """The same with the mask as the last column of the inputs: masked steps change no state but the step counter."""

    def call(self, inputs, states, product=None):
        is_real = inputs[:, -1:] > 0
        output, new_states = super().call(inputs[:, :-1], states, product)
        kept = [ops.where(is_real, new, old) for new, old in zip(new_states[:-1], states[:-1], strict=True)]
        return ops.where(is_real, output, ops.zeros_like(output)), [*kept, new_states[-1]]

    __call__ = call


@keras.saving.register_keras_serializable(package="attention_zoo")
class AttentionRNN(ReturnsMore, SavesOptions):
    """Recurrent decoder: `y_t, s_t = cell(x_t, s_{t−1}, memory)` for all steps of a sequence.

    Like `keras.layers.RNN`, but the memory is an argument, and the alignments are a result.

    Args:
        cell: A recurrent attention cell, such as `RecurrentAttentionCell` or `LuongAttentionCell`.

    Call arguments:
        inputs: [B, T, E].
        memory: [B, S, M]; or the result of the cell's `project_memory`.
        initial_state: The inner cells' states, a list of [B, units] or a single tensor; or the states returned by an
            earlier call. Default: zeros.
        mask: Boolean [B, T]. A masked step changes no state but the number of the step, and its output is zero.
            Default: the Keras mask of `inputs`, such as that of an `Embedding(mask_zero=True)`, which Keras passes as
            `inputs_mask`.
        memory_mask: Boolean [B, S].
        return_attention_scores: Whether to return the alignments as well.
        return_state: Whether to return the list of states after the last step as well.
        training: Whether dropout is active.

    Returns:
        The cell's outputs [B, T, D]; with `return_attention_scores` the alignments [B, T, S] ([B, N, T, S] for
        attention with heads); with `return_state` the states, last.

    Raises:
        ValueError: If `cell` is another object, a mask is floating point, or the number of states is wrong.

    Example:
        >>> import keras, numpy as np
        >>> from zoo.layers import AdditiveAttention, AttentionRNN, LuongAttentionCell
        >>> decoder = AttentionRNN(LuongAttentionCell(keras.layers.GRUCell(5), AdditiveAttention(7), memory_dim=3))
        >>> inputs, memory = np.ones((2, 6, 4), "float32"), np.ones((2, 11, 3), "float32")
        >>> outputs, alignments = decoder(inputs, memory, return_attention_scores=True)
        >>> outputs.shape, alignments.shape
        (TensorShape([2, 6, 5]), TensorShape([2, 6, 11]))

    Reference:
        Bahdanau et al. 2015, section 3.1, https://arxiv.org/abs/1409.0473;
        Luong et al. 2015, section 3, https://arxiv.org/abs/1508.04025
    """

    saved_options = ("cell",)

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(cell, BaseAttentionCell):
            raise ValueError(
                f"`cell` must be a recurrent attention cell, such as LuongAttentionCell. Received: cell={cell!r}."
            )
        self.supports_masking = True
        self.cell = cell

    def build(self, inputs_shape, memory_shape=None, initial_state_shape=None):
        if not self.cell.built:  # a reloaded layer is built already
            self.cell.build((inputs_shape[0], inputs_shape[-1]))

    def call(
        self,
        inputs,
        memory,
        initial_state=None,
        mask=None,
        memory_mask=None,
        return_attention_scores=False,
        return_state=False,
        training=None,
        *,
        inputs_mask=None,
    ):
        mask = check_mask(inputs_mask if mask is None else mask, "mask", (2,))
        steps, mask = pad_empty_sequence(inputs, mask)
        memory_mask = check_mask(single_mask(memory_mask), "memory_mask", (2,))
        memory = self.cell.project_memory(memory, memory_mask)
        if self.cell.has_alignment_state:
            memory = self.cell.attention.with_noise_seed(memory, training)
        bound_cell = _BoundCell
        if mask is not None and self.cell.has_step_counter:  # Keras' loop would not count the masked steps of a row
            steps = ops.concatenate([steps, ops.cast(mask, steps.dtype)[:, :, None]], axis=-1)
            bound_cell, mask = _MaskingCell, None
        bound = bound_cell(
            self.cell,
            memory=memory,
            memory_mask=memory_mask,
            training=training,
            return_attention_scores=return_attention_scores,
        )
        if initial_state is not None and not isinstance(initial_state, (list, tuple)):
            initial_state = [initial_state]
        states = self.cell.own_states(initial_state, ops.shape(inputs)[0], ops.shape(memory["value"])[-2])
        is_deferred = training and mask is None and bound_cell is _BoundCell and defers_weight_gradients()
        deferred = self.cell.deferred_weights() if is_deferred else None
        if deferred is None:
            output, new_states = self._loop(bound, steps, states, mask)
        else:
            output, new_states = run(
                lambda inputs, states, product: bound(inputs[0], states, product=product), [steps], states, deferred
            )
        output, states = remove_padding(inputs, output, new_states, states)
        output, weights = self.cell.split_output(output) if return_attention_scores else (output, None)
        return pack_results(output, weights, states if return_state else None)

    def _loop(self, bound, inputs, states, mask):
        # Created at every call, since the cell contains the memory of the call; the loop has no weights.
        loop = keras.layers.RNN(
            bound,
            return_sequences=True,
            return_state=True,
            zero_output_for_mask=True,
            dtype=self.dtype_policy,
            name="loop",
        )
        output, *states = loop(inputs, initial_state=states, mask=mask)
        return output, states

    def compute_output_shape(self, inputs_shape, memory_shape=None, initial_state_shape=None):
        return (*inputs_shape[:-1], self.cell.step_size)
