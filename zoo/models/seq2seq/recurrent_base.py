"""What the recurrent sequence-to-sequence models share: embeddings, encoder, cells, start and output."""

import keras
from keras import ops

from zoo.errors import InputError
from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.recurrent.loops import GRU, LSTM, deferred_step, deferred_weights
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.shared.checks import check_choice, check_dropout, check_sizes
from zoo.models.shared.embeddings import ReversibleEmbedding

# Each kind of cell as a layer over a sequence, as a cell, and how many states it has.
LAYERS = {"gru": GRU, "lstm": LSTM}
CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
NUM_STATES = {"gru": 1, "lstm": 2}
START_STATES = ("encoder", "zeros", "learned", "random")
# Deviation of random states: enough that a decoder learns not to rely on its start, and little beside states of ±1.
NOISE = 0.1


class RecurrentSeq2SeqModel(Seq2SeqModel):
    """Base of the recurrent sequence-to-sequence models.

    Args:
        source_vocab_size: Number of source symbols.
        target_vocab_size: Number of target symbols.
        embedding_dim: Size of the embeddings, E.
        units: Size of each recurrent state.
        dropout: Rate of dropout on the embeddings, on what the decoder gets of the encoder, before the logits, and
            between layers where there are several.
        cell_type: `"gru"` or `"lstm"`.
        start_state: The decoder's states before its first step: `"encoder"`, made from the encoder's; `"zeros"`;
            `"learned"`, weights that are the same for every sentence; `"random"`, see `StartStates`.
        tied_embeddings: `"none"`; `"target"`: the matrix of the output is that of the target embedding, without bias;
            `"all"`: the source embedding as well, for a shared vocabulary.

    Raises:
        InputError: For an option out of its range.
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        embedding_dim=1000,
        units=1000,
        dropout=0.0,
        cell_type="gru",
        start_state="encoder",
        tied_embeddings="none",
        **kwargs,
    ):
        super().__init__(source_vocab_size, target_vocab_size, **kwargs)
        check_sizes(embedding_dim=embedding_dim, units=units)
        check_dropout(dropout)
        check_choice("cell_type", cell_type, LAYERS)
        check_choice("start_state", start_state, START_STATES)
        check_choice("tied_embeddings", tied_embeddings, ("none", "target", "all"))
        if tied_embeddings == "all" and source_vocab_size != target_vocab_size:
            raise InputError(
                "`tied_embeddings='all'` needs one shared vocabulary; use 'target' for separate ones. Received: "
                f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}."
            )
        self.embedding_dim = embedding_dim
        self.units = units
        self.dropout = dropout
        self.cell_type = cell_type
        self.start_state = start_state
        self.tied_embeddings = tied_embeddings
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        tied = tied_embeddings != "none"
        source, target = (self.source_vocab_size, "source", False), (self.target_vocab_size, "target", tied)
        self.source_embedding = self._embedding(*(target if tied_embeddings == "all" else source))
        self.target_embedding = self.source_embedding if tied_embeddings == "all" else self._embedding(*target)

    def _embedding(self, size, name, reversible):
        if not reversible:
            return keras.layers.Embedding(size, self.embedding_dim, dtype=self.dtype_policy, name=name)
        return ReversibleEmbedding(size, self.embedding_dim, dtype=self.dtype_policy, name=name)

    def _make_start(self, count):
        """Makes what gives `count` states of the decoder, where the encoder does not."""
        self.start = None
        if self.start_state != "encoder":
            self.start = StartStates(count, self.units, self.start_state, dtype=self.dtype_policy, name="start_states")

    def _make_output(self, use_bias=True):
        """Makes the output layer, where it is not the target embedding."""
        self.output_dense = None
        if self.tied_embeddings == "none":
            self.output_dense = keras.layers.Dense(
                self.target_vocab_size, use_bias=use_bias, dtype=self.dtype_policy, name="output"
            )

    def _build_ends(self, output_dim):
        """Builds the embeddings, the start and the output layer.

        Args:
            output_dim: Size of what the logits are made of.
        """
        for layer in {id(layer): layer for layer in (self.source_embedding, self.target_embedding)}.values():
            layer.build((None, None))
        if self.start is not None:
            self.start.build((None, None))
        if self.output_dense is not None:
            self.output_dense.build((None, None, output_dim))

    def _embed(self, embedding, ids, training=None):
        return self.dropout_layer(embedding(ids), training=training)

    def _output(self, hidden, training=None):
        hidden = self.dropout_layer(hidden, training=training)
        return self.target_embedding(hidden, reverse=True) if self.output_dense is None else self.output_dense(hidden)

    def _check_tying(self, name, size):
        """Checks that what the logits are made of is as large as an embedding, if it has to be.

        Args:
            name: The option that is its size.
            size: Its size.

        Raises:
            InputError: If it is not.
        """
        if self.tied_embeddings != "none" and size != self.embedding_dim:
            raise InputError(
                f"`{name}` must equal `embedding_dim` for tied embeddings. Received: {name}={size}, "
                f"embedding_dim={self.embedding_dim}, tied_embeddings={self.tied_embeddings!r}."
            )

    def get_config(self):
        names = ("embedding_dim", "units", "dropout", "cell_type", "start_state", "tied_embeddings")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="attention_zoo")
class StartStates(keras.layers.Layer):
    """States of a decoder before its first step that know nothing of the source.

    Random ones are drawn anew for each sentence in training, from `N(0, 0.1²)`. Out of training they are zero, the mean
    of what was drawn: an answer must not depend on chance, nor on the sentences beside it.

    Args:
        count: Number of states.
        units: Size of each.
        kind: `"zeros"`, `"learned"` (weights, zero at first) or `"random"`.
        seed: Seed of the random ones.

    Call arguments:
        rows: Any tensor with the batch first.
        training: Whether random states are drawn.

    Returns:
        A list of states [B, units].
    """

    def __init__(self, count, units, kind, seed=None, **kwargs):
        super().__init__(**kwargs)
        check_sizes(count=count, units=units)
        check_choice("kind", kind, START_STATES[1:])
        self.count = count
        self.units = units
        self.kind = kind
        self.seed = seed
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
        else:
            states = ops.zeros(shape, dtype=self.compute_dtype)
        return [states[number] for number in range(self.count)]

    def get_config(self):
        names = ("count", "units", "kind", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="attention_zoo")
class OneWayEncoder(keras.layers.Layer):
    """Recurrent encoder that reads in one direction, each layer on top of the other; see also `BidirectionalEncoder`.

    Args:
        units: Size of each state, a positive integer.
        num_layers: Number of layers, a positive integer.
        cell_type: `"gru"` or `"lstm"`.
        dropout: Rate of dropout between the layers.
        reverse: Whether it reads from the last real position of each row to the first one. The outputs stand in the
            order of the inputs all the same, and padding stays behind them.

    Call arguments:
        inputs: [B, S, D].
        mask: Boolean [B, S], True at real positions, which come first.
        return_state: Whether to return the final states as well.
        training: Whether dropout is active.

    Returns:
        [B, S, units]; with `return_state` also the final states, from the bottom layer to the top: h of each layer, and
        for LSTMs c behind it.

    Reference:
        Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", section 3.3 (reversed sources),
        https://arxiv.org/abs/1409.3215
    """

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
        # Backwards, the masked steps of the padding come first and leave the state at zero.
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

    def get_config(self):
        names = ("units", "num_layers", "cell_type", "dropout", "reverse")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="attention_zoo")
class MaskedInputCell(keras.layers.Layer):
    """Recurrent cell behind a mask of dropout that is the same at every step: `s_t = cell(x_t · m, s_{t−1})`.

    The mask is the last of the states, so that a step draws nothing: `Dropout` of ones makes one in training, and ones
    leave the inputs as they are. In a stack this is dropout between the layers.

    Args:
        cell: A recurrent cell.
        input_dim: Last axis of the inputs, a positive integer.

    Call arguments:
        inputs: x_t, [B, D].
        states: Those of the cell, and m [B, D].
        training: Handed to the cell.

    Returns:
        The cell's output and the new states.

    Reference:
        Zaremba et al. 2014, "Recurrent Neural Network Regularization" (dropout between layers only), section 3.2,
        https://arxiv.org/abs/1409.2329;
        Gal and Ghahramani 2016, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks" (one
        mask for all steps), section 4, https://arxiv.org/abs/1512.05287
    """

    def __init__(self, cell, input_dim, **kwargs):
        super().__init__(**kwargs)
        check_size("input_dim", input_dim)
        self.cell = cell
        self.input_dim = input_dim
        inner = cell.state_size
        self.state_size = [*(inner if isinstance(inner, (list, tuple)) else [inner]), input_dim]
        self.output_size = cell.output_size

    def build(self, input_shape):
        if not self.cell.built:  # a reloaded one is
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

    def get_config(self):
        cell = keras.saving.serialize_keras_object(self.cell)
        return {**super().get_config(), "cell": cell, "input_dim": self.input_dim}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "cell": keras.saving.deserialize_keras_object(config["cell"])})
