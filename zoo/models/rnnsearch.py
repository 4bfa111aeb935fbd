"""RNNsearch: the encoder-decoder that learned to align."""

import keras
from keras import ops

from zoo import layers
from zoo.models.checks import check_dropout, check_sizes
from zoo.models.ids import real
from zoo.models.seq2seq import Seq2SeqModel


@keras.saving.register_keras_serializable(package="attention_zoo")
class RNNSearch(Seq2SeqModel):
    """Recurrent encoder-decoder with additive attention.

    Annotations `h_j = [→h_j; ←h_j]` of a bidirectional GRU; `c_i = attend(s_{i−1})`; `s_i = GRU([E y_{i−1}; c_i],
    s_{i−1})`; readout `t_i = maxout(U s_{i−1} + V E y_{i−1} + C c_i + b)`; logits `W t_i`. The decoder starts from
    `s_0 = tanh(W_s ←h_1)`.

    Args:
        source_vocab_size: Number of source symbols.
        target_vocab_size: Number of target symbols.
        embedding_dim: Size of the embeddings, E.
        units: Size of each recurrent state.
        attention_units: Size of the hidden layer of the alignment model.
        readout_units: Size of the maxout layer, l.
        dropout: Rate of dropout on embeddings, annotations and readout (the paper has none).

    Call arguments and results: see `Seq2SeqModel`; attention has one layer and one head.

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section 3 and appendix A, https://arxiv.org/abs/1409.0473
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        embedding_dim=620,
        units=1000,
        attention_units=1000,
        readout_units=500,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(source_vocab_size, target_vocab_size, **kwargs)
        check_dropout(dropout)
        check_sizes(
            embedding_dim=embedding_dim, units=units, attention_units=attention_units, readout_units=readout_units
        )
        self.embedding_dim = embedding_dim
        self.units = units
        self.attention_units = attention_units
        self.readout_units = readout_units
        self.dropout = dropout
        policy = {"dtype": self.dtype_policy}
        self.source_embedding = keras.layers.Embedding(source_vocab_size, embedding_dim, name="source", **policy)
        self.target_embedding = keras.layers.Embedding(target_vocab_size, embedding_dim, name="target", **policy)
        self.encoder = keras.layers.Bidirectional(
            keras.layers.GRU(units, return_sequences=True, **policy), name="encoder", **policy
        )
        self.start_dense = keras.layers.Dense(units, activation="tanh", name="start", **policy)
        self.cell = layers.RecurrentAttentionCell(
            keras.layers.GRUCell(units, name="cell", **policy),
            layers.AdditiveAttention(attention_units, name="attention", **policy),
            memory_dim=2 * units,
            name="decoder_cell",
            **policy,
        )
        self.decoder = keras.layers.RNN(self.cell, return_sequences=True, name="decoder", **policy)
        self.readout_dense = keras.layers.Dense(2 * readout_units, name="readout", **policy)
        self.maxout = layers.Maxout(name="maxout", **policy)
        self.output_dense = keras.layers.Dense(target_vocab_size, name="output", **policy)
        self.dropout_layer = keras.layers.Dropout(dropout, name="dropout", **policy)

    def build(self, input_shape=None):
        self.source_embedding.build((None, None))
        self.target_embedding.build((None, None))
        self.encoder.build((None, None, self.embedding_dim))
        self.start_dense.build((None, self.units))
        self.decoder.build((None, None, self.embedding_dim))
        self.readout_dense.build((None, None, self.cell.output_size + self.embedding_dim))
        self.output_dense.build((None, None, self.readout_units))
        self.built = True

    def encode(self, source, training=None):
        mask = real(source)
        embedded = self.dropout_layer(self.source_embedding(source), training=training)
        annotations = self.encoder(embedded, mask=mask, training=training)  # [B, S, 2·units]
        start = self.start_dense(annotations[:, 0, self.units :])
        annotations = self.dropout_layer(annotations, training=training)
        key = self.cell.attention.project_memory(annotations)["key"]
        return {"annotations": annotations, "key": key, "mask": mask, "start": start}

    def _states(self, inner, memory):
        projected = {"key": memory["key"], "value": memory["annotations"]}
        return self.cell.initial_states(projected, memory["mask"], inner)

    def _logits(self, recurrent, embedded, training=None):
        readout = self.maxout(self.readout_dense(ops.concatenate([recurrent, embedded], axis=-1)))
        return self.output_dense(self.dropout_layer(readout, training=training))

    def decode(self, target, memory, training=None):
        embedded = self.dropout_layer(self.target_embedding(target), training=training)
        recurrent = self.decoder(embedded, initial_state=self._states([memory["start"]], memory), training=training)
        return self._logits(recurrent, embedded, training), self._alignment(recurrent, target, memory)

    def _alignment(self, recurrent, target, memory):
        # The loop returns its queries, so that all alignments come from one call behind it.
        _, weights = self.cell.attention(
            recurrent[..., : self.units],
            memory={"key": memory["key"], "value": memory["annotations"]},
            query_mask=real(target),
            value_mask=memory["mask"],
            return_attention_scores=True,
        )
        return weights[:, None, None]  # [B, 1 layer, 1 head, T, S]

    def initial_state(self, memory, max_length):
        return {"inner": [memory["start"]]}

    def decode_step(self, last, state, memory):
        embedded = self.target_embedding(last)
        recurrent, states = self.cell(embedded, self._states(state["inner"], memory))
        return self._logits(recurrent, embedded), {"inner": states[: len(state["inner"])]}

    def get_config(self):
        names = ("embedding_dim", "units", "attention_units", "readout_units", "dropout")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
