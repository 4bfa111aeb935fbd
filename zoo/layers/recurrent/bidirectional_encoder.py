"""Stacked bidirectional recurrent encoder."""

import keras
from keras import ops

from zoo.layers.core.base import ReturnsMore, SavesOptions, pack_results
from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.masks import check_mask
from zoo.layers.recurrent.loops import LAYERS, pad_empty_sequence, remove_padding


@keras.saving.register_keras_serializable(package="attention_zoo")
class BidirectionalEncoder(ReturnsMore, SavesOptions):
    """Bidirectional recurrent encoder, a stack of layers: `h_j = [→h_j; ←h_j]`.

    The backward direction starts at the last real position of each row, so that padding at the end changes nothing.
    With `segments`, such as the sentences of a document, each segment is encoded separately: states are zero before its
    first position, and in the backward direction before its last one.

    Args:
        units: Size of the state of each direction, a positive integer.
        num_layers: Number of layers, a positive integer.
        cell_type: `"gru"` or `"lstm"`.
        dropout: Rate of dropout between the layers.
        seed: Seed of the dropout.
        use_cudnn: As in Keras: `"auto"`, or `False` for a model that is exported on a GPU and served on a CPU.

    Call arguments:
        inputs: [B, S, D].
        mask: Boolean [B, S], True at real positions. Default: the Keras mask of `inputs`, which Keras passes as
            `inputs_mask` if there are `segments`.
        return_state: Whether to return the final states as well.
        training: Whether dropout is active.
        segments: Segment number of each position, [B, S]; a segment begins where the number changes. Default: one
            segment.

    Returns:
        [B, S, 2 · units], zero at masked positions. With `return_state` also a list of the final states, from the
        bottom layer to the top: for each layer `[→h; ←h]`, for LSTMs followed by `[→c; ←c]`, [B, 2 · units]. They fit a
        decoder's stack of cells of 2 · units.

    Raises:
        ValueError: If the mask is floating point.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import BidirectionalEncoder
        >>> encoder = BidirectionalEncoder(units=7, num_layers=2)
        >>> outputs, states = encoder(np.ones((2, 3, 5), "float32"), return_state=True)
        >>> outputs.shape, len(states), states[0].shape
        (TensorShape([2, 3, 14]), 2, TensorShape([2, 14]))

    Reference:
        Schuster and Paliwal 1997, "Bidirectional Recurrent Neural Networks", https://doi.org/10.1109/78.650093;
        Bahdanau et al. 2015, section 3.2, https://arxiv.org/abs/1409.0473;
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2 (sentences by
        themselves), https://aclanthology.org/N16-1174
    """

    saved_options = ("units", "num_layers", "cell_type", "dropout", "seed", "use_cudnn")

    def __init__(self, units, num_layers=1, cell_type="gru", dropout=0.0, seed=None, use_cudnn="auto", **kwargs):
        super().__init__(**kwargs)
        if cell_type not in LAYERS:
            raise ValueError(f"`cell_type` must be one of {', '.join(LAYERS)}. Received: cell_type={cell_type!r}.")
        self.supports_masking = True
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        self.cell_type = cell_type
        self.dropout = dropout
        self.seed = seed
        self.use_cudnn = use_cudnn
        self.recurrent_layers = [self._recurrent_layer(f"layer_{number}") for number in range(self.num_layers)]
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def _recurrent_layer(self, name):
        forward = LAYERS[self.cell_type](
            self.units,
            return_sequences=True,
            return_state=True,
            use_cudnn=self.use_cudnn,
            dtype=self.dtype_policy,
            name=self.cell_type,
        )
        return keras.layers.Bidirectional(forward, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape):
        for layer in self.recurrent_layers:
            layer.build(inputs_shape)
            inputs_shape = self.compute_output_shape(inputs_shape)

    def call(self, inputs, mask=None, return_state=False, training=None, segments=None, *, inputs_mask=None):
        mask = check_mask(inputs_mask if mask is None else mask, "mask", (2,))
        (hidden, mask), states = pad_empty_sequence(inputs, mask), []
        if segments is not None:
            segments, _ = pad_empty_sequence(segments[:, :, None], None)
            segments = ops.squeeze(segments, -1)
        for number, layer in enumerate(self.recurrent_layers):
            if number:
                hidden = self.dropout_layer(hidden, training=training)
            if segments is None:
                hidden, *final = layer(hidden, mask=mask, training=training)
            else:
                hidden, *final = _by_segment(layer, hidden, segments, mask)
            forward, backward = final[: len(final) // 2], final[len(final) // 2 :]
            states += [ops.concatenate(pair, axis=-1) for pair in zip(forward, backward, strict=True)]
        zeros = [ops.zeros_like(state) for state in states]
        hidden, states = remove_padding(inputs, hidden, states, zeros)
        return pack_results(hidden, states if return_state else None)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], 2 * self.units)


def _by_segment(layer, inputs, segments, mask):
    """Returns the results of a `Bidirectional` layer of Keras, with zero states before each segment."""
    changes = ops.cast(ops.not_equal(segments[:, 1:], segments[:, :-1]), inputs.dtype)
    edge = ops.ones_like(inputs[:, :1, 0])
    starts, ends = ops.concatenate([edge, changes], axis=1), ops.concatenate([changes, edge], axis=1)
    real = ops.ones_like(starts) if mask is None else ops.cast(mask, inputs.dtype)
    outputs, states = [], []
    for direction, is_first in ((layer.forward_layer, starts), (layer.backward_layer, ends)):
        # Created at every call, around the layer's cell; the loop has no weights.
        loop = keras.layers.RNN(
            _ResettingCell(direction.cell),
            return_sequences=True,
            return_state=True,
            go_backwards=direction.go_backwards,
            dtype=layer.dtype_policy,
            name=direction.name,
        )
        hidden, *final = loop(ops.concatenate([inputs, is_first[:, :, None], real[:, :, None]], axis=-1))
        outputs.append(ops.flip(hidden, axis=1) if direction.go_backwards else hidden)
        states += final
    return ops.concatenate(outputs, axis=-1), *states


class _ResettingCell(keras.layers.Layer):
    """A recurrent cell for `keras.layers.RNN` that resets its states to zero at the beginning of a segment.

    Its inputs end with two features: whether a segment begins, and whether the position is real. As states are also
    reset at masked positions, the loop cannot apply the mask.
    """

    def __init__(self, cell):
        super().__init__(dtype=cell.dtype_policy, name=cell.name)
        self.cell = cell
        self.state_size = cell.state_size
        self.built = True

    def call(self, inputs, states):
        is_inside, real = 1 - inputs[:, -2:-1], inputs[:, -1:] > 0
        states = [state * is_inside for state in states]
        output, new_states = self.cell(inputs[:, :-2], states)
        new_states = keras.tree.flatten(new_states)
        output = ops.where(real, output, ops.zeros_like(output))
        return output, [ops.where(real, new, old) for new, old in zip(new_states, states, strict=True)]
