"""Layers of stacked recurrent models: a unidirectional encoder, and dropout between the decoder's layers."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.saving import SavesOptions
from zoo.layers.recurrent.loops import LAYERS, deferred_step, deferred_weights
from zoo.layers.recurrent.states import state_sizes


@keras.saving.register_keras_serializable(package="attention_zoo")
class OneWayEncoder(SavesOptions):
    """Unidirectional stacked recurrent encoder; see also `BidirectionalEncoder`.

    Args:
        units: Size of each state, a positive integer.
        num_layers: Number of layers, a positive integer.
        cell_type: `"gru"` or `"lstm"`.
        dropout: Rate of dropout between the layers.
        reverse: Whether it reads from the last real position of each row to the first one. In either case, outputs are
            in the order of the inputs, with padding at the end.

    Call arguments:
        inputs: [B, S, D].
        mask: Boolean [B, S], True at real positions, which precede padding.
        return_state: Whether to return the final states as well.
        training: Whether dropout is active.

    Returns:
        [B, S, units]; with `return_state` also the final states, from the bottom layer to the top: h, and for LSTMs c,
        of each layer.

    Reference:
        Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", section 3.3 (reversed sources),
        https://arxiv.org/abs/1409.3215
    """

    saved_options = ("units", "num_layers", "cell_type", "dropout", "reverse")

    def __init__(self, units, num_layers=1, cell_type="lstm", dropout=0.0, reverse=False, **kwargs):
        super().__init__(**kwargs)
        check_size("num_layers", num_layers)
        self.supports_masking = True
        self.units = units
        self.num_layers = num_layers
        self.cell_type = cell_type
        self.dropout = dropout
        self.reverse = reverse
        self.recurrent_layers = [self._recurrent_layer(f"layer_{number}") for number in range(num_layers)]
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)

    def _recurrent_layer(self, name):
        # In reverse, the masked steps of the padding are the first, and do not change the initial state of zeros.
        return LAYERS[self.cell_type](
            self.units,
            return_sequences=True,
            return_state=True,
            go_backwards=self.reverse,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, inputs_shape):
        for layer in self.recurrent_layers:
            layer.build(inputs_shape)
            inputs_shape = (*inputs_shape[:-1], self.units)

    def call(self, inputs, mask=None, return_state=False, training=None):
        hidden, states = inputs, []
        for number, layer in enumerate(self.recurrent_layers):
            if number:
                hidden = self.dropout_layer(hidden, training=training)
            hidden, *final = layer(hidden, mask=mask, training=training)
            hidden = ops.flip(hidden, axis=1) if self.reverse else hidden
            states += final
        return (hidden, states) if return_state else hidden


@keras.saving.register_keras_serializable(package="attention_zoo")
class MaskedInputCell(SavesOptions):
    """Recurrent cell with the same dropout mask at every step: `s_t = cell(x_t · m, s_{t−1})`.

    The mask m is the last of the states, so that steps have no random operations; its initial value is `Dropout` of
    ones. In a stack this is dropout between the layers.

    Args:
        cell: A recurrent cell.
        input_dim: Last axis of the inputs, a positive integer.

    Call arguments:
        inputs: x_t, [B, D].
        states: The states of the cell, and m [B, D].
        training: Passed to the cell.

    Returns:
        The cell's output and the new states.

    Reference:
        Zaremba et al. 2014, "Recurrent Neural Network Regularization" (dropout between layers only), section 3.2,
        https://arxiv.org/abs/1409.2329;
        Gal and Ghahramani 2016, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks" (one
        mask for all steps), section 4, https://arxiv.org/abs/1512.05287
    """

    saved_options = ("cell", "input_dim")

    def __init__(self, cell, input_dim, **kwargs):
        super().__init__(**kwargs)
        check_size("input_dim", input_dim)
        self.cell = cell
        self.input_dim = input_dim
        self.state_size = [*state_sizes(cell), input_dim]
        self.output_size = cell.output_size

    def build(self, input_shape):
        if not self.cell.built:  # a reloaded cell is built
            self.cell.build(input_shape)

    def call(self, inputs, states, training=None):
        *states, mask = states
        output, states = self.cell(inputs * mask, states, training=training)
        return output, [*keras.tree.flatten(states), mask]

    def deferred_weights(self, name):
        """See `zoo.layers.recurrent.loops.deferred_weights`."""
        return deferred_weights(self.cell, name)

    def deferred_step(self, name, inputs, states, product):
        """See `zoo.layers.recurrent.loops.deferred_step`."""
        *states, mask = states
        return [*deferred_step(self.cell, name, inputs * mask, states, product), mask]
