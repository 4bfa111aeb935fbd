"""Recurrent layers whose loops over the steps do less in training on processors, with TensorFlow.

The gradient of a weight that a loop reads is a sum over its steps. TensorFlow works it out step by step: a small
product and a pass over a sum as large as the weight, which mixed precision also has cast at every step. Here weights
are constants of the loop, `run`, and every product with one has an addend, of which the gradient is that of the
product. The left factors and gradients of all steps then make the weight's gradient, in one product behind the loop.
"""

import keras
from keras import ops

from zoo.layers.core.kernels import deferred_gradient_loop, defers_weight_gradients


def _gru(inputs, inner, states):
    (state,) = states
    (z, r, candidate), (inner_z, inner_r, inner_candidate) = (ops.split(each, 3, axis=-1) for each in (inputs, inner))
    z, r = ops.sigmoid(z + inner_z), ops.sigmoid(r + inner_r)
    candidate = ops.tanh(candidate + r * inner_candidate)
    return [candidate + z * (state - candidate)]


def _lstm(inputs, inner, states):
    _, carry = states
    enter, forget, candidate, leave = ops.split(inputs + inner, 4, axis=-1)
    carry = ops.sigmoid(forget) * carry + ops.sigmoid(enter) * ops.tanh(candidate)
    return [ops.sigmoid(leave) * ops.tanh(carry), carry]


_GATES = {keras.layers.GRUCell: _gru, keras.layers.LSTMCell: _lstm}


def _gates(cell):
    """Returns what makes new states [B, units] from the two products of a cell and its states; `None` for other cells.

    Args:
        cell: A recurrent cell.
    """
    plain = (
        type(cell) in _GATES
        and cell.use_bias
        and getattr(cell, "reset_after", True)
        and cell.activation is keras.activations.tanh
        and cell.recurrent_activation is keras.activations.sigmoid
        and not (cell.dropout or cell.recurrent_dropout)
    )
    return _GATES[type(cell)] if plain else None


def _biases(cell):
    """Returns the biases of the products with inputs and with states, the latter `None` where there is one for both."""
    bias = ops.convert_to_tensor(cell.bias)
    return (bias[0], bias[1]) if len(bias.shape) == 2 else (bias, None)


def deferred_weights(cell, name):
    """Returns the weights of a cell, by name, as `run` takes them; `None` where it cannot be run so.

    Args:
        cell: A recurrent cell of Keras, or one that has `deferred_weights` and `deferred_step` itself.
        name: What the names of the weights begin with.
    """
    if hasattr(cell, "deferred_weights"):
        return cell.deferred_weights(name)
    if _gates(cell) is None:
        return None
    outer, inner = _biases(cell)
    return {
        f"{name}/kernel": (ops.convert_to_tensor(cell.kernel), outer),
        f"{name}/recurrent_kernel": (ops.convert_to_tensor(cell.recurrent_kernel), inner),
    }


def deferred_step(cell, name, inputs, states, product):
    """Returns the new states of a cell that has `deferred_weights`.

    Args:
        cell: The cell.
        name: What the names of its weights begin with.
        inputs: [B, D].
        states: Its states.
        product: See `run`.
    """
    if hasattr(cell, "deferred_step"):
        return cell.deferred_step(name, inputs, states, product)
    return _gates(cell)(product(f"{name}/kernel", inputs), product(f"{name}/recurrent_kernel", states[0]), states)


def run(step, inputs, states, weights):
    """Returns the outputs of all steps [B, T, D] and the states behind the last one, a list.

    Args:
        step: Called with a list of the inputs at a step, the states and a function `product(name, rows [B, D])`, which
            returns the product with a weight and adds its bias; each weight has one product a step. Returns an output
            [B, D] and the new states.
        inputs: Tensors [B, T, ...].
        states: Tensors with the batch first.
        weights: `(kernel [D, K], bias [K] or None)` by name.
    """
    inputs = [ops.swapaxes(each, 0, 1) for each in inputs]
    outputs, states = deferred_gradient_loop(step, inputs, states, weights)
    return ops.swapaxes(outputs, 0, 1), states


class _Deferring:
    """A recurrent layer of Keras that in training multiplies all inputs with their weight at once; see the module."""

    def inner_loop(self, sequences, initial_state, mask, training=False):
        gates = _gates(self.cell) if training and defers_weight_gradients() and not self.unroll else None
        if gates is None:
            return super().inner_loop(sequences, initial_state, mask, training=training)
        states = [*initial_state] if isinstance(initial_state, (list, tuple)) else [initial_state]
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        outer, inner = _biases(self.cell)
        rows = ops.reshape(sequences, (-1, sequences.shape[-1])) @ ops.convert_to_tensor(self.cell.kernel) + outer
        rows = ops.reshape(rows, (*ops.shape(sequences)[:2], rows.shape[-1]))
        inputs = [rows] if mask is None else [rows, mask[:, :, None]]

        def step(inputs, states, product):
            new = gates(inputs[0], product("recurrent_kernel", states[0]), states)
            if mask is None:
                return new[0], new
            new = [ops.where(inputs[1], each, old) for each, old in zip(new, states, strict=True)]
            # As in Keras, a masked step hands on the output of the one before, which is the state.
            return ops.where(inputs[1], new[0], ops.zeros_like(new[0])) if self.zero_output_for_mask else new[0], new

        inputs = [ops.flip(each, axis=1) for each in inputs] if self.go_backwards else inputs
        weights = {"recurrent_kernel": (ops.convert_to_tensor(self.cell.recurrent_kernel), inner)}
        outputs, states = run(step, inputs, states, weights)
        return outputs[:, -1], outputs, states


@keras.saving.register_keras_serializable(package="attention_zoo")
class GRU(_Deferring, keras.layers.GRU):
    """`keras.layers.GRU`, faster in training on processors with TensorFlow, where weights have no second derivatives.

    Reference:
        Cho et al. 2014, section 2.3, https://arxiv.org/abs/1406.1078
    """


@keras.saving.register_keras_serializable(package="attention_zoo")
class LSTM(_Deferring, keras.layers.LSTM):
    """`keras.layers.LSTM`, faster in training on processors with TensorFlow, where weights have no second derivatives.

    Reference:
        Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", https://doi.org/10.1162/neco.1997.9.8.1735
    """
