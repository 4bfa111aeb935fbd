"""Layers of recurrent models: a unidirectional encoder, dropout between the decoder's layers, and initial states."""

import random

import keras
from keras import ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.recurrent.loops import LAYERS, deferred_step, deferred_weights
from zoo.layers.recurrent.states import state_sizes

# Standard deviation of random states: large enough that a decoder learns not to depend on its initial state, and
# small beside states of ±1.
NOISE = 0.1


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
        # In reverse, the masked steps of the padding come first, and do not change the initial state of zeros.
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
        if not self.cell.built:  # a reloaded cell is built already
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


@keras.saving.register_keras_serializable(package="attention_zoo")
class StartStates(SavesOptions):
    """Initial states of a decoder that do not depend on the source.

    In training, random states are drawn for each sentence, from `N(0, 0.1²)`. In inference they are drawn once from
    `inference_seed`, so that results are reproducible and do not depend on the other sentences of a batch.

    Args:
        count: Number of states.
        units: Size of each state.
        kind: `"zero"`, `"learned"` (weights, initially zero) or `"random"`.
        seed: Seed of random states in training.
        inference_seed: Seed of random states in inference, with the same result on every backend; `None` for zeros.

    Call arguments:
        rows: Any tensor with the batch as its first axis.
        training: Whether random states are drawn for each row.

    Returns:
        A list of states [B, units].
    """

    saved_options = ("count", "units", "kind", "seed", "inference_seed")

    def __init__(self, count, units, kind, seed=None, inference_seed=None, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.units = units
        self.kind = kind
        self.seed = seed
        self.inference_seed = inference_seed
        self.seed_generator = keras.random.SeedGenerator(seed) if kind == "random" else None

    def build(self, rows_shape):
        if self.kind == "learned":
            self.states = self.add_weight(shape=(self.count, self.units), initializer="zeros", name="states")

    def call(self, rows, training=None):
        shape = (self.count, ops.shape(rows)[0], self.units)
        if self.kind == "learned":
            states = ops.broadcast_to(self.states[:, None], shape)
        elif self.kind == "random" and training:
            states = keras.random.normal(shape, stddev=NOISE, dtype=self.compute_dtype, seed=self.seed_generator)
        elif self.kind == "random" and self.inference_seed is not None:
            draw = random.Random(self.inference_seed).gauss
            drawn = [[[draw(0, NOISE) for _ in range(self.units)]] for _ in range(self.count)]
            states = ops.broadcast_to(ops.convert_to_tensor(drawn, dtype=self.compute_dtype), shape)
        else:
            states = ops.zeros(shape, dtype=self.compute_dtype)
        return [states[number] for number in range(self.count)]
