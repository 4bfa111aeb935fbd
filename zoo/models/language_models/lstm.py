"""A language model of stacked LSTMs."""

import keras
from keras import ops

from zoo.errors import InputError
from zoo.layers.core.dropout import Dropout
from zoo.layers.recurrent.loops import LSTM
from zoo.models.language_models.base import LanguageModel
from zoo.models.shared.checks import check_dropout, check_sizes
from zoo.models.shared.embeddings import ReversibleEmbedding


@keras.saving.register_keras_serializable(package="attention_zoo")
class LSTMLanguageModel(LanguageModel):
    """Stacked LSTMs with dropout on what goes up from layer to layer, and none on what goes on in time.

    Args:
        vocab_size: Number of symbols.
        max_length: Largest number of symbols in a row.
        embedding_dim: Size of the embeddings; with `tied_embeddings` that of the units.
        units: Size of the state of each layer.
        num_layers: Number of layers.
        dropout: Rate of dropout on the embeddings, between the layers and before the output.
        tied_embeddings: Whether one matrix serves for input and output.

    Call arguments and results: see `LanguageModel`.

    Reference:
        Zaremba et al. 2014, "Recurrent Neural Network Regularization", sections 3.1 and 4.1,
        https://arxiv.org/abs/1409.2329; Press and Wolf 2017 (tying), https://arxiv.org/abs/1608.05859
    """

    def __init__(
        self,
        vocab_size,
        max_length=257,
        embedding_dim=650,
        units=650,
        num_layers=2,
        dropout=0.5,
        tied_embeddings=False,
        **kwargs,
    ):
        super().__init__(vocab_size, max_length, **kwargs)
        check_dropout(dropout)
        check_sizes(embedding_dim=embedding_dim, units=units, num_layers=num_layers)
        if tied_embeddings and embedding_dim != units:
            raise InputError(
                "`tied_embeddings` needs `embedding_dim` and `units` of one size. "
                f"Received: embedding_dim={embedding_dim}, units={units}."
            )
        self.embedding_dim = embedding_dim
        self.units = units
        self.num_layers = num_layers
        self.dropout = dropout
        self.tied_embeddings = tied_embeddings
        policy = {"dtype": self.dtype_policy}
        self.embedding = ReversibleEmbedding(vocab_size, embedding_dim, name="embedding", **policy)
        self.recurrent_layers = [
            LSTM(units, return_sequences=True, return_state=True, name=f"lstm_{index}", **policy)
            for index in range(num_layers)
        ]
        self.dropout_layer = Dropout(dropout, name="dropout", **policy)
        self.output_dense = None if tied_embeddings else keras.layers.Dense(vocab_size, name="output", **policy)

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        size = self.embedding_dim
        for layer in self.recurrent_layers:
            layer.build((None, None, size))
            size = self.units
        if self.output_dense is not None:
            self.output_dense.build((None, None, size))
        self.built = True

    def _read(self, tokens, states, training=None):
        """Returns what the top layer says of each symbol, [B, T, units], and the new states."""
        hidden, read = self.embedding(tokens), []
        for layer, state in zip(self.recurrent_layers, states, strict=True):
            dropped = self.dropout_layer(hidden, training=training)
            hidden, *state = layer(dropped, initial_state=state, training=training)
            read.append(state)
        return self.dropout_layer(hidden, training=training), read

    def _logits(self, hidden):
        return self.embedding(hidden, reverse=True) if self.output_dense is None else self.output_dense(hidden)

    def call(self, inputs, training=None):
        tokens = inputs["tokens"]
        states = self.initial_state(ops.shape(tokens)[0])
        return self._logits(self._read(tokens, states["layers"], training)[0])

    def initial_state(self, batch_size, max_length=None):
        def zeros():
            return ops.zeros((batch_size, self.units), dtype=self.compute_dtype)

        return {"layers": [[zeros(), zeros()] for _ in range(self.num_layers)]}

    def prefill(self, tokens, state):
        hidden, states = self._read(tokens, state["layers"])
        return self._logits(hidden[:, -1]), {"layers": states}

    def get_config(self):
        names = ("embedding_dim", "units", "num_layers", "dropout", "tied_embeddings")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
