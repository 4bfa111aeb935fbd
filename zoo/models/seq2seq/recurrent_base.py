"""The base class of the recurrent sequence-to-sequence models, and their initial states."""

import random

import keras
from keras import ops

from zoo import layers
from zoo.errors import InputError
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.saving import SavesOptions
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.seq2seq.recurrent_layers import OneWayEncoder
from zoo.models.shared.base import build_all
from zoo.models.shared.embeddings import ReversibleEmbedding, readout_of
from zoo.models.shared.scores import model_score

# The cells by kind, as in `LAYERS`, and their numbers of states.
CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
NUM_STATES = {"gru": 1, "lstm": 2}
# Standard deviation of random states: large enough that a decoder learns not to depend on its initial state, and
# small beside states of ±1.
NOISE = 0.1


class RecurrentSeq2SeqModel(Seq2SeqModel):
    """Base of the recurrent sequence-to-sequence models: embeddings, initial states and logits.

    The scores are `vᵀ tanh(W₁ s + W₂ h + b)` (additive; with `score_bias=False`, and in concat by default, without
    b), `tanh(W [s; h] + b)` (tanh_concat), `s · h` (dot), `s · h / √H` (scaled_dot), `sᵀ W h` (general), `cos(s, h)`
    (cosine), and `w_j · s` for position j (location). The initial state `s_0` depends on the encoder as defined by each
    model (encoder), is 0 (zero) or a learned vector for all sentences (learned), or is drawn from `N(0, 0.1²)`
    (random): for each sentence in training, in inference from `start_seed`.

    A subclass makes its encoder and decoder between `_make_start` and `_make_output`, and its `build` calls
    `_build_ends`. Its options are derived from `zoo.models.catalog.recurrent.RecurrentOptions`.

    Attributes:
        embedding_stddev: Initial standard deviation of the embeddings. With that of Keras, 0.03, they are too small
            beside states, and as an output matrix they give all tokens similar logits for hundreds of steps.
    """

    embedding_stddev = 0.1

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        if self.tied_embeddings == "all":
            self.source_embedding = self.target_embedding = self._embedding("target", ReversibleEmbedding)
        else:
            tied = self.tied_embeddings == "target"
            self.source_embedding = self._embedding("source", keras.layers.Embedding)
            self.target_embedding = self._embedding("target", ReversibleEmbedding if tied else keras.layers.Embedding)

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
        return self.target_embedding(hidden, reverse=True) if self.output_dense is None else self.output_dense(hidden)


def projected(memory):
    """Returns keys and values of an encoder's memory, the memory of an attention layer."""
    return {"key": memory["key"], "value": memory["value"]}


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
