"""The base class of the recurrent sequence-to-sequence models."""

import keras

from zoo import layers
from zoo.errors import InputError
from zoo.layers.core.dropout import Dropout
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.seq2seq.recurrent_layers import OneWayEncoder, StartStates
from zoo.models.shared.base import build_all
from zoo.models.shared.embeddings import Embedding, ReversibleEmbedding, readout_of, to_logits
from zoo.models.shared.scores import model_score

# The cells by kind, as in `LAYERS`, and their numbers of states.
CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
NUM_STATES = {"gru": 1, "lstm": 2}


class RecurrentSeq2SeqModel(Seq2SeqModel):
    """Base of the recurrent sequence-to-sequence models: embeddings, initial states and logits.

    The scores are `vᵀ tanh(W₁ s + W₂ h + b)` (additive; with `score_bias=False`, and in concat by default, without
    b), `tanh(W [s; h] + b)` (tanh_concat), `s · h` (dot), `s · h / √H` (scaled_dot), `sᵀ W h` (general), `cos(s, h)`
    (cosine), and `w_j · s` for position j (location). The initial state `s_0` depends on the encoder as defined by each
    model (encoder), is 0 (zero) or a learned vector for all sentences (learned), or is drawn from `N(0, 0.1²)`
    (random), for each sentence in training and from `start_seed` in inference.

    A subclass makes its encoder and decoder between `_make_start` and `_make_output`, and its `build` calls
    `_build_ends`. Its options are derived from `zoo.models.catalog.recurrent.RecurrentOptions`.

    Attributes:
        embedding_stddev: Initial standard deviation of the embeddings. With Keras' 0.03, they are too small beside the
            states, and as an output matrix they give all tokens similar logits for hundreds of steps.
    """

    embedding_stddev = 0.1

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        if self.tied_embeddings == "all":
            self.source_embedding = self.target_embedding = self._embedding("target", ReversibleEmbedding)
        else:
            tied = self.tied_embeddings == "target"
            self.source_embedding = self._embedding("source", Embedding)
            self.target_embedding = self._embedding("target", ReversibleEmbedding if tied else Embedding)

    @classmethod
    def from_config(cls, config):
        if config.get("start_state") == "random":  # saved before `start_seed` existed, with zeros in inference
            config = {"start_seed": None, **config}
        return super().from_config(config)

    def _embedding(self, side, cls):
        size = getattr(self, f"{side}_vocab_size")
        initializer = keras.initializers.RandomNormal(stddev=self.embedding_stddev)
        options = {"embeddings_initializer": initializer, "dtype": self.dtype_policy, "name": side}
        return cls(size, self.embedding_dim, **options)

    def _make_start(self, count):
        """Makes the layer for the `count` initial states of the decoder, unless they depend on the encoder."""
        self.start = None
        if self.start_state != "encoder":
            self.start = StartStates(
                count,
                self.units,
                self.start_state,
                inference_seed=self.start_seed,
                dtype=self.dtype_policy,
                name="start_states",
            )

    def _make_score(self, memory_dim):
        """Returns the score of the decoder's state and annotations of size `memory_dim`."""
        monotonic = self.alignment == "monotonic" and self.score == "additive"
        name = "normalized_additive" if monotonic else self.score
        score = model_score(
            name, self.dtype_policy, self.max_length, self.attention_units or None, self.score_bias, self.coverage
        )
        if score.needs_equal_sizes and memory_dim != self.units:
            raise InputError(
                f"The score {self.score!r} requires vectors of the same size: set encoder_units={self.units // 2}, "
                f"bidirectional=false, or another score, such as general. Received: units={self.units}, and "
                f"annotations of size {memory_dim}."
            )
        return score

    def _make_attention(self, memory_dim):
        """Returns the attention of the decoder's state to annotations of size `memory_dim`."""
        make = layers.MonotonicAttention if self.alignment == "monotonic" else layers.Attention
        return make(self._make_score(memory_dim), dtype=self.dtype_policy, name="attention")

    def _make_cell(self, name):
        """Returns a cell of the decoder, with `transitions` at the end of each step."""
        cell = CELLS[self.cell_type](self.units, name=name, dtype=self.dtype_policy)
        if not self.transitions:
            return cell
        return layers.DeepTransitionCell(cell, self.transitions, name=f"deep_{name}", dtype=self.dtype_policy)

    def _make_stacked_encoder(self):
        """Returns an encoder with as many layers as the decoder, and with outputs and states of the same size."""
        options = {"num_layers": self.num_layers, "cell_type": self.cell_type, "dropout": self.dropout}
        options |= {"dtype": self.dtype_policy, "name": "encoder"}
        if self.bidirectional:
            return layers.BidirectionalEncoder(self.units // 2, **options)
        return OneWayEncoder(self.units, reverse=self.reverse_source, **options)

    def _make_output(self, use_bias=True):
        """Makes the output layer, unless the target embedding computes the logits."""
        self.output_dense = None
        if self.tied_embeddings == "none":
            self.output_dense = keras.layers.Dense(
                self.target_vocab_size, use_bias=use_bias, dtype=self.dtype_policy, name="output"
            )

    def _build_ends(self, output_dim):
        """Builds the embeddings, the initial states and the output layer for vectors of size `output_dim`."""
        build_all([self.source_embedding, self.target_embedding, self.start], (None, None))
        build_all([self.output_dense], (None, None, output_dim))

    def _embed(self, embedding, ids, training=None):
        return self.dropout_layer(embedding(ids), training=training)

    def readout(self, tokens):
        return readout_of(tokens, self.target_embedding, self.output_dense)

    def _output(self, hidden, training=None, readout=None):
        hidden = self.dropout_layer(hidden, training=training)
        if readout is not None:
            return readout(hidden)
        return to_logits(hidden, self.target_embedding, self.output_dense)


def keys_and_values(memory):
    """Returns the part of an encoder's memory that attention layers read."""
    return {"key": memory["key"], "value": memory["value"]}
