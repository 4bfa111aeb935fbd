"""A language model of stacked LSTMs."""

import keras
from keras import ops

from zoo.layers.core.dropout import Dropout
from zoo.layers.recurrent.loops import LSTM
from zoo.models.catalog.language_models import LSTMLanguageModelOptions
from zoo.models.language_models.base import LanguageModel
from zoo.models.shared.base import build_all
from zoo.models.shared.embeddings import ReversibleEmbedding

EMBEDDING_STDDEV = 0.15
"""Initial standard deviation of the embeddings. Keras' 0.03 is too small compared with states, and for logits."""


@keras.saving.register_keras_serializable(package="attention_zoo")
class LSTMLanguageModel(LanguageModel):
    """Stacked LSTMs with dropout between layers, not between steps.

    Call arguments and results: see `LanguageModel`.

    Reference:
        Zaremba et al. 2014, "Recurrent Neural Network Regularization", sections 3.1 and 4.1,
        https://arxiv.org/abs/1409.2329; Press and Wolf 2017 (tying), https://arxiv.org/abs/1608.05859
    """

    options_class = LSTMLanguageModelOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        policy = {"dtype": self.dtype_policy}
        initializer = keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV)
        table = {"embeddings_initializer": initializer, "name": "embedding", **policy}
        self.embedding = ReversibleEmbedding(self.vocab_size, self.embedding_dim, **table)
        self.recurrent_layers = [
            LSTM(self.units, return_sequences=True, return_state=True, name=f"lstm_{index}", **policy)
            for index in range(self.num_layers)
        ]
        self.dropout_layer = Dropout(self.dropout, name="dropout", **policy)
        self.output_dense = None
        if not self.tied_embeddings:
            self.output_dense = keras.layers.Dense(self.vocab_size, name="output", **policy)

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        build_all(self.recurrent_layers[:1], (None, None, self.embedding_dim))
        build_all([*self.recurrent_layers[1:], self.output_dense], (None, None, self.units))
        self.built = True

    def _run(self, tokens, states, training=None):
        """Returns the outputs of the top layer, [B, T, units], and the new states."""
        hidden, new_states = self.embedding(tokens), []
        for layer, state in zip(self.recurrent_layers, states, strict=True):
            dropped = self.dropout_layer(hidden, training=training)
            hidden, *state = layer(dropped, initial_state=state, training=training)
            new_states.append(state)
        return self.dropout_layer(hidden, training=training), new_states

    def _logits(self, hidden):
        return self.embedding(hidden, reverse=True) if self.output_dense is None else self.output_dense(hidden)

    def represent(self, tokens, training=None):
        states = self.initial_state(ops.shape(tokens)[0])
        return self._run(tokens, states["layers"], training)[0]

    def call(self, inputs, training=None):
        return self._logits(self.represent(inputs["tokens"], training))

    def initial_state(self, batch_size, max_length=None):
        def zeros():
            return ops.zeros((batch_size, self.units), dtype=self.compute_dtype)

        return {"layers": [[zeros(), zeros()] for _ in range(self.num_layers)]}

    def prefill(self, tokens, state):
        hidden, states = self._run(tokens, state["layers"])
        return self._logits(hidden[:, -1]), {"layers": states}
