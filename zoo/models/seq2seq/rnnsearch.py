"""RNNsearch, the first encoder-decoder with attention."""

import keras
from keras import ops

from zoo import layers
from zoo.layers.recurrent.loops import LAYERS
from zoo.models.catalog.recurrent import RNNSearchOptions
from zoo.models.seq2seq.recurrent_base import NUM_STATES, RecurrentSeq2SeqModel, keys_and_values
from zoo.models.seq2seq.recurrent_layers import OneWayEncoder
from zoo.models.shared.base import build_all, padding_mask
from zoo.row_selection import repeat_rows


@keras.saving.register_keras_serializable(package="attention_zoo")
class RNNSearch(RecurrentSeq2SeqModel):
    """Recurrent encoder-decoder with additive attention, or any other score.

    Annotations `h_j = [→h_j; ←h_j]` of a bidirectional GRU; `c_i = Σ_j α_ij h_j`, `α_i = softmax(score(s_{i−1}, h))`;
    `s_i = GRU([E y_{i−1}; c_i], s_{i−1})`; readout `t_i = maxout(U s_{i−1} + V E y_{i−1} + C c_i + b)`, or with
    `readout_state="new"` of s_i; logits `W t_i`. The initial state is `s_0 = tanh(W_s ←h_1)`; the second state of an
    LSTM is computed likewise. With `bidirectional=False`, `h_j = →h_j` and `s_0 = tanh(W_s →h_S)`. With
    `attend="between"`, `s'_i = GRU(E y_{i−1}, s_{i−1})`, `α_i = softmax(score(s'_i, h))`, `s_i = GRU(c_i, s'_i)`. Each
    of the `transitions` then updates `s_i ← GRU(s_i)`.

    Dropout, which the paper does not have, is applied to embeddings, annotations and readout.

    Call arguments and results: see `Seq2SeqModel`; attention has one layer and one head.

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section 3 and appendix A, https://arxiv.org/abs/1409.0473
    """

    options_class = RNNSearchOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        units, policy = self.units, {"dtype": self.dtype_policy}
        self.annotation_dim = self._encoder_units * (1 + self.bidirectional)
        self.encoder = self._make_encoder()
        count = NUM_STATES[self.cell_type]
        self.start_dense = None
        if self.start_state == "encoder":
            self.start_dense = keras.layers.Dense(count * units, activation="tanh", name="start", **policy)
        self._make_start(count)
        self.cell = self._make_decoder_cell()
        self.decoder = layers.AttentionRNN(self.cell, name="decoder", **policy)
        self.readout_dense = keras.layers.Dense(2 * self.readout_units, name="readout", **policy)
        self.maxout = layers.Maxout(name="maxout", **policy)
        self._make_output()

    def _make_decoder_cell(self):
        options = {"memory_dim": self.annotation_dim, "readout_state": self.readout_state, "name": "decoder_cell"}
        attention, cell = self._make_attention(self.annotation_dim), self._make_cell("cell")
        if self.attend == "before":
            return layers.RecurrentAttentionCell(cell, attention, dtype=self.dtype_policy, **options)
        first = keras.layers.GRUCell(self.units, name="first_cell", dtype=self.dtype_policy)
        return layers.ConditionalAttentionCell(first, attention, context_cell=cell, dtype=self.dtype_policy, **options)

    @property
    def _encoder_units(self):
        return self.encoder_units or self.units

    def _make_encoder(self):
        if not self.bidirectional:
            return OneWayEncoder(self._encoder_units, cell_type=self.cell_type, dtype=self.dtype_policy, name="encoder")
        layer = LAYERS[self.cell_type](self._encoder_units, return_sequences=True, dtype=self.dtype_policy)
        return keras.layers.Bidirectional(layer, dtype=self.dtype_policy, name="encoder")

    def build(self, input_shape=None):
        self.encoder.build((None, None, self.embedding_dim))
        build_all([self.start_dense], (None, self._encoder_units))
        self.decoder.build((None, None, self.embedding_dim), (None, None, self.annotation_dim))
        self.readout_dense.build((None, None, self.cell.output_size + self.embedding_dim))
        self.maxout.build((None, None, 2 * self.readout_units))
        self._build_ends(self.readout_units)
        self.built = True

    def encode(self, source, training=None):
        mask = padding_mask(source)
        annotations, last = self._annotate(self._embed(self.source_embedding, source, training), mask, training)
        start = self._start(last, training)
        annotations = self.dropout_layer(annotations, training=training)
        key = self.cell.attention.project_memory(annotations)["key"]
        return {"value": annotations, "key": key, "mask": mask, "start": start}

    def represent(self, source):
        return self.encode(source)["value"]

    def _annotate(self, embedded, mask, training):
        """Returns the annotations, and the state of the encoder after its last step."""
        if not self.bidirectional:
            annotations, states = self.encoder(embedded, mask=mask, return_state=True, training=training)
            return annotations, states[0]
        annotations = self.encoder(embedded, mask=mask, training=training)  # [B, S, 2·units]
        return annotations, annotations[:, 0, self._encoder_units :]

    def _start(self, last, training):
        if self.start_dense is None:
            return self.start(last, training=training)
        return list(ops.split(self.start_dense(last), NUM_STATES[self.cell_type], axis=-1))

    def _logits(self, recurrent, embedded, training=None, readout=None):
        hidden = self.maxout(self.readout_dense(ops.concatenate([recurrent, embedded], axis=-1)))
        return self._output(hidden, training, readout)

    def decode(self, target, memory, training=None):
        embedded, recurrent, weights = self._run(target, memory, training)
        return self._logits(recurrent, embedded, training), weights

    def _run(self, target, memory, training):
        """Returns the embeddings of a target, the outputs of the decoder, and attention weights [B, 1, 1, T, S]."""
        embedded = self._embed(self.target_embedding, target, training)
        recurrent = self.decoder(
            embedded,
            keys_and_values(memory),
            initial_state=memory["start"],
            memory_mask=memory["mask"],
            return_attention_scores=self._returns_weights,
            training=training,
        )
        if not self._returns_weights:
            return embedded, recurrent, self._alignment(recurrent, target, memory)
        recurrent, weights = recurrent
        weights = ops.where(padding_mask(target)[:, :, None], weights, ops.zeros_like(weights))
        return embedded, recurrent, weights[:, None, None]

    @property
    def _returns_weights(self):
        """Whether the loop returns the weights, because they depend on previous weights or on its inner state."""
        return self.cell.attends_in_order or self.attend == "between"

    def _alignment(self, recurrent, target, memory):
        # The outputs of the loop contain its states, from which one call computes all alignments.
        queries = recurrent[..., : self.units]
        if self.readout_state == "new":
            queries = ops.concatenate([memory["start"][0][:, None], queries[:, :-1]], axis=1)
        _, weights = self.cell.attention(
            queries,
            memory=keys_and_values(memory),
            query_mask=padding_mask(target),
            value_mask=memory["mask"],
            return_attention_scores=True,
        )
        return weights[:, None, None]  # [B, 1 layer, 1 head, T, S]

    def initial_state(self, memory, max_length=None, sharing=1):
        return {"inner": repeat_rows(self.cell.own_states(memory["start"], *ops.shape(memory["mask"])), sharing)}

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        embedded, recurrent, weights, state = self._advance(last, state, memory, sharing, return_attention_scores)
        weights = [weights[:, None, None]] if return_attention_scores else []
        return self._logits(recurrent, embedded, readout=readout), *weights, state

    def _advance(self, last, state, memory, sharing, return_attention_scores):
        """Returns the embedding of the last token, the decoder's output, attention weights [B, S] and the state."""
        embedded = self.target_embedding(last)
        recurrent, weights, states = self.cell.advance(
            embedded,
            state["inner"],
            keys_and_values(memory),
            memory["mask"],
            return_attention_scores=return_attention_scores,
            sharing=sharing,
        )
        return embedded, recurrent, weights, {"inner": states}
