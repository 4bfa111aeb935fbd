"""Recurrent loops with deferred weight gradients, for training on CPUs with TensorFlow.

The gradient of a weight in a loop is a sum over the steps. TensorFlow computes it step by step: a small product, and an
addition to a tensor as large as the weight, which mixed precision also casts at every step. In `run` the weights are
constants of the loop, and a term is added to each product with a weight: its gradient is that of the product. After the
loop, the gradient of a weight is one product of the left factors of all steps with these gradients.
"""

import keras
from keras import ops

from zoo.layers.core.loops import deferred_gradient_loop, defers_weight_gradients


def _gru(inputs_product, state_product, states):
    (state,) = states
    (z, r, candidate), (inner_z, inner_r, inner_candidate) = (
        ops.split(product, 3, axis=-1) for product in (inputs_product, state_product)
    )
    z, r = ops.sigmoid(z + inner_z), ops.sigmoid(r + inner_r)
    candidate = ops.tanh(candidate + r * inner_candidate)
    return [candidate + z * (state - candidate)]


def _lstm(inputs_product, state_product, states):
    _, carry = states
    input_gate, forget, candidate, output_gate = ops.split(inputs_product + state_product, 4, axis=-1)
    carry = ops.sigmoid(forget) * carry + ops.sigmoid(input_gate) * ops.tanh(candidate)
    return [ops.sigmoid(output_gate) * ops.tanh(carry), carry]


_UPDATES = {keras.layers.GRUCell: _gru, keras.layers.LSTMCell: _lstm}


def _update_of(cell):
    """Returns the function of products and states that computes a cell's new states; `None` if it is not supported."""
    is_standard = (
        type(cell) in _UPDATES
        and cell.use_bias
        and getattr(cell, "reset_after", True)
        and cell.activation is keras.activations.tanh
        and cell.recurrent_activation is keras.activations.sigmoid
        and not (cell.dropout or cell.recurrent_dropout)
    )
    return _UPDATES[type(cell)] if is_standard else None


def _biases(cell):
    """Returns the biases of the products with inputs and with states; the latter is `None` if a cell has one bias."""
    bias = ops.convert_to_tensor(cell.bias)
    return (bias[0], bias[1]) if len(bias.shape) == 2 else (bias, None)


def deferred_weights(cell, name):
    """Returns a cell's weights for `run`, with prefixed names; `None` if the cell is not supported.

    Supported are GRU and LSTM cells of Keras, and cells with methods `deferred_weights` and `deferred_step`.
    """
    if hasattr(cell, "deferred_weights"):
        return cell.deferred_weights(name)
    if _update_of(cell) is None:
        return None
    outer, inner = _biases(cell)
    return {
        f"{name}/kernel": (ops.convert_to_tensor(cell.kernel), outer),
        f"{name}/recurrent_kernel": (ops.convert_to_tensor(cell.recurrent_kernel), inner),
    }


def deferred_step(cell, name, inputs, states, product):
    """Returns the new states of a cell with `deferred_weights` of this name; for `product` see `run`."""
    if hasattr(cell, "deferred_step"):
        return cell.deferred_step(name, inputs, states, product)
    return _update_of(cell)(product(f"{name}/kernel", inputs), product(f"{name}/recurrent_kernel", states[0]), states)


def deferred_stack_weights(cells, dtype):
    """Returns the `deferred_weights` of cells, bottom first; `None` if one is not supported or has another dtype."""
    weights = {}
    for number, cell in enumerate(cells):
        cell_weights = deferred_weights(cell, str(number))
        if cell_weights is None or cell.compute_dtype != dtype:
            return None
        weights |= cell_weights
    return weights


def deferred_stack_step(cells, inputs, states, product):
    """Returns a flat list of the new states of cells, bottom first, from a list of states for each cell."""
    new_states = []
    for number, (cell, cell_states) in enumerate(zip(cells, states, strict=True)):
        cell_states = deferred_step(cell, str(number), inputs, cell_states, product)
        inputs = cell_states[0]
        new_states += cell_states
    return new_states


def run(step, inputs, states, weights):
    """Returns the outputs of all steps [B, T, D] and the states after the last one, a list.

    Args:
        step: Function of a list of the inputs at a step, the states and a function `product`, which returns an output
            [B, D] and the new states. `product(name, rows [B, D])` returns the product with a weight plus its bias, and
            is called exactly once for each weight.
        inputs: Tensors [B, T, ...].
        states: Tensors with the batch first.
        weights: `(kernel [D, K], bias [K] or None)` by name.
    """
    inputs = [ops.swapaxes(tensor, 0, 1) for tensor in inputs]
    outputs, states = deferred_gradient_loop(step, inputs, states, weights)
    return ops.swapaxes(outputs, 0, 1), states


def pad_empty_sequence(inputs, mask):
    """Returns inputs [B, T, D] and mask [B, T], with a masked step if T = 0: a loop of Keras has at least one step.

    The mask may be `None` if T is unknown: `remove_padding` then restores the states from before that step.
    """
    batch, length, size = ops.shape(inputs)
    if inputs.shape[1] not in (0, None):
        return inputs, mask
    step, masked = ops.zeros((batch, 1, size), dtype=inputs.dtype), ops.zeros((batch, 1), dtype="bool")
    if inputs.shape[1] == 0:
        return step, masked
    mask = mask if mask is None else ops.concatenate([mask, masked[:, length:]], axis=1)
    return ops.concatenate([inputs, step[:, length:]], axis=1), mask


def remove_padding(inputs, outputs, states, before):
    """Returns outputs and states without the step of `pad_empty_sequence`; `before` are the states before it."""
    if inputs.shape[1] not in (0, None):
        return outputs, states
    length = ops.shape(inputs)[1]
    states = [ops.where(length > 0, new, ops.cast(old, new.dtype)) for new, old in zip(states, before, strict=True)]
    return outputs[:, :length], states


class _DeferredGradients:
    """Mixin of recurrent layers of Keras: deferred weight gradients, and one product for the inputs of all steps."""

    def inner_loop(self, sequences, initial_state, mask, training=False):
        update = _update_of(self.cell) if training and defers_weight_gradients() and not self.unroll else None
        if update is None:
            return super().inner_loop(sequences, initial_state, mask, training=training)
        states = [*initial_state] if isinstance(initial_state, (list, tuple)) else [initial_state]
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        outer, inner = _biases(self.cell)
        rows = ops.reshape(sequences, (-1, sequences.shape[-1])) @ ops.convert_to_tensor(self.cell.kernel) + outer
        rows = ops.reshape(rows, (*ops.shape(sequences)[:2], rows.shape[-1]))
        inputs = [rows] if mask is None else [rows, mask[:, :, None]]

        def step(inputs, states, product):
            new_states = update(inputs[0], product("recurrent_kernel", states[0]), states)
            if mask is None:
                return new_states[0], new_states
            real = inputs[1]
            new_states = [ops.where(real, new, old) for new, old in zip(new_states, states, strict=True)]
            output = new_states[0]  # the state: as in Keras, a masked step repeats the previous output
            return ops.where(real, output, ops.zeros_like(output)) if self.zero_output_for_mask else output, new_states

        inputs = [ops.flip(tensor, axis=1) for tensor in inputs] if self.go_backwards else inputs
        weights = {"recurrent_kernel": (ops.convert_to_tensor(self.cell.recurrent_kernel), inner)}
        outputs, states = run(step, inputs, states, weights)
        return outputs[:, -1], outputs, states


@keras.saving.register_keras_serializable(package="attention_zoo")
class GRU(_DeferredGradients, keras.layers.GRU):
    """`keras.layers.GRU`, faster in training on CPUs with TensorFlow, where weights have no second derivatives.

    Reference:
        Cho et al. 2014, section 2.3, https://arxiv.org/abs/1406.1078
    """


@keras.saving.register_keras_serializable(package="attention_zoo")
class LSTM(_DeferredGradients, keras.layers.LSTM):
    """`keras.layers.LSTM`, faster in training on CPUs with TensorFlow, where weights have no second derivatives.

    Reference:
        Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", https://doi.org/10.1162/neco.1997.9.8.1735
    """


LAYERS = {"gru": GRU, "lstm": LSTM}
