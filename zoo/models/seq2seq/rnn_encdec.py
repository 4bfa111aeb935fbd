"""The encoder-decoder without attention, with the source as vectors of fixed length."""

import keras
from keras import ops

from zoo import layers
from zoo.layers.recurrent.loops import LAYERS
from zoo.models.catalog.recurrent import RNNEncoderDecoderOptions
from zoo.models.seq2seq.recurrent_base import NUM_STATES, RecurrentSeq2SeqModel
from zoo.models.shared.base import build_all, padding_mask
from zoo.row_selection import repeat_rows


@keras.saving.register_keras_serializable(package="attention_zoo")
class RNNEncoderDecoder(RecurrentSeq2SeqModel):
    """Recurrent encoder-decoder without attention.

    With a summary (Cho et al.), `c = tanh(V h_S)` of the encoder's last state, `s_0 = tanh(V' c)`,
    `s_t = GRU([E y_{t−1}; c], s_{t−1})`; readout `r_t = maxout(O_s s_t + O_y E y_{t−1} + O_c c + b)`; logits `W r_t`.
    Without a summary (Sutskever et al.), the initial states of the decoder are the final states of the encoder; logits
    `W s_t`.

    Dropout, which the papers do not have, is applied to embeddings, between layers, to c and before the output layer.

    Call arguments and results: see `Seq2SeqModel`; the model has no attention weights.

    Reference:
        Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
        Translation", section 2.2 and appendix A, https://arxiv.org/abs/1406.1078;
        Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", sections 2 and 3.4,
        https://arxiv.org/abs/1409.3215
    """

    attends = False
    options_class = RNNEncoderDecoderOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        units, cell_type = self.units, self.cell_type
        self.num_states = self.num_layers * NUM_STATES[cell_type]
        policy = {"dtype": self.dtype_policy}
        self.encoder = self._make_stacked_encoder()
        self._make_summary()
        self._make_start(self.num_states)
        self.recurrent_layers = [
            LAYERS[cell_type](units, return_sequences=True, name=f"decoder_{number}", **policy)
            for number in range(self.num_layers)
        ]
        self.readout_dense = self.maxout = None
        if self.readout_units:
            self.readout_dense = keras.layers.Dense(2 * self.readout_units, name="readout", **policy)
            self.maxout = layers.Maxout(name="maxout", **policy)
        self._make_output()

    def _make_summary(self):
        def dense(units, name):
            return keras.layers.Dense(units, activation="tanh", dtype=self.dtype_policy, name=name)

        self.summary_dense = dense(self.units, "summary") if self.feed_summary else None
        has_start = self.feed_summary and self.start_state == "encoder"
        self.start_dense = dense(self.num_states * self.units, "start") if has_start else None

    def build(self, input_shape=None):
        inputs_dim = self.embedding_dim + self.units * self.feed_summary
        self.encoder.build((None, None, self.embedding_dim))
        build_all([self.summary_dense, self.start_dense], (None, self.units))
        build_all(self.recurrent_layers[:1], (None, None, inputs_dim))
        build_all(self.recurrent_layers[1:], (None, None, self.units))
        build_all([self.readout_dense], (None, None, self.units + inputs_dim))
        build_all([self.maxout], (None, None, 2 * self.readout_units))
        self._build_ends(self.readout_units or self.units)
        self.built = True

    def encode(self, source, training=None):
        embedded = self._embed(self.source_embedding, source, training)
        _, states = self.encoder(embedded, mask=padding_mask(source), return_state=True, training=training)
        memory = {"start": states}
        if self.feed_summary:
            summary = self.summary_dense(states[-NUM_STATES[self.cell_type]])
            memory["summary"] = self.dropout_layer(summary, training=training)
        if self.start is not None:
            memory["start"] = self.start(source, training=training)
        elif self.feed_summary:
            memory["start"] = list(ops.split(self.start_dense(summary), self.num_states, axis=-1))
        return memory

    def represent(self, source):
        return self.encoder(self.source_embedding(source), mask=padding_mask(source))

    def _inputs(self, embedded, memory):
        """Returns the inputs of the decoder: embeddings [B, E] or [B, T, E], concatenated with the summary."""
        if not self.feed_summary:
            return embedded
        summary = memory["summary"]
        if len(embedded.shape) == 3:
            shape = (*ops.shape(embedded)[:2], self.units)
            summary = ops.broadcast_to(summary[:, None], shape)
        return ops.concatenate([embedded, summary], axis=-1)

    def _by_layer(self, states):
        count = NUM_STATES[self.cell_type]
        return [list(states[first : first + count]) for first in range(0, len(states), count)]

    def _logits(self, hidden, inputs, training=None, readout=None):
        if self.readout_dense is not None:
            hidden = self.maxout(self.readout_dense(ops.concatenate([hidden, inputs], axis=-1)))
        return self._output(hidden, training, readout)

    def decode(self, target, memory, training=None):
        hidden = inputs = self._inputs(self._embed(self.target_embedding, target, training), memory)
        for number, (layer, states) in enumerate(
            zip(self.recurrent_layers, self._by_layer(memory["start"]), strict=True)
        ):
            if number:
                hidden = self.dropout_layer(hidden, training=training)
            hidden = layer(hidden, initial_state=states, training=training)
        return self._logits(hidden, inputs, training), None

    def initial_state(self, memory, max_length=None, sharing=1):
        return {"inner": repeat_rows(memory["start"], sharing)}

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        hidden = inputs = self._inputs(self.target_embedding(last), repeat_rows(memory, sharing))
        new_states = []
        for layer, states in zip(self.recurrent_layers, self._by_layer(state["inner"]), strict=True):
            hidden, states = layer.cell(hidden, states)
            new_states += states
        return self._logits(hidden, inputs, readout=readout), {"inner": new_states}
