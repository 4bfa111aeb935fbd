"""Luong's encoder-decoder: stacked recurrent layers, and attention with the new state."""

import keras
from keras import ops

from zoo import layers
from zoo.models.catalog.recurrent import LuongOptions
from zoo.models.seq2seq.recurrent_base import NUM_STATES, RecurrentSeq2SeqModel, keys_and_values
from zoo.models.seq2seq.recurrent_layers import MaskedInputCell
from zoo.models.shared.base import padding_mask
from zoo.row_selection import repeat_rows

ALIGNMENTS = {"local_m": "monotonic", "local_p": "predictive"}


@keras.saving.register_keras_serializable(package="attention_zoo")
class Luong(RecurrentSeq2SeqModel):
    """Recurrent encoder-decoder whose query is the decoder's new state.

    `h̄` are the states of the encoder's top layer; `s_t = LSTM([E y_{t−1}; h̃_{t−1}], s_{t−1})`; `c_t = attend(s_t)` over
    h̄; `h̃_t = tanh(W_c [c_t; s_t])`, of the size of a state, or of an embedding if these are tied; logits `W_s h̃_t`.
    Both sides are stacks of layers; the initial states of the decoder are the final states of the encoder.

    Dropout is applied to embeddings, between the layers, to h̄ and to h̃ before the output layer. Between the decoder's
    layers it drops the same units at all steps of a sentence, because the loop has no random operations.

    Call arguments and results: see `Seq2SeqModel`; attention has one layer and one head.

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", sections 2 and 3,
        https://arxiv.org/abs/1508.04025
    """

    options_class = LuongOptions
    embedding_stddev = 0.3  # since the logits are computed from h̃, which is within ±1

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.encoder = self._make_stacked_encoder()
        self._make_start(self.num_layers * NUM_STATES[self.cell_type])
        self.cell = layers.LuongAttentionCell(
            self._make_cells(),
            self._make_attention(self.units),
            memory_dim=self.units,
            attentional_dim=self.units if self.tied_embeddings == "none" else self.embedding_dim,
            input_feeding=self.input_feeding,
            dtype=self.dtype_policy,
            name="decoder_cell",
        )
        self.decoder = layers.AttentionRNN(self.cell, dtype=self.dtype_policy, name="decoder")
        self._make_output(use_bias=False)

    def _make_cells(self):
        policy = {"dtype": self.dtype_policy}
        names = [f"layer_{number}" for number in range(self.num_layers)]
        first, *others = [self._make_cell(name) for name in names]
        masked = [MaskedInputCell(cell, self.units, name=f"masked_{cell.name}", **policy) for cell in others]
        return [first, *masked] if masked else first

    def _make_attention(self, memory_dim):
        if self.alignment not in ALIGNMENTS:
            return super()._make_attention(memory_dim)
        options = {"dtype": self.dtype_policy, "name": "attention"}
        return layers.LocalAttention(self.window, ALIGNMENTS[self.alignment], self._make_score(memory_dim), **options)

    def build(self, input_shape=None):
        embedded = (None, None, self.embedding_dim)
        self.encoder.build(embedded)
        self.decoder.build(embedded, (None, None, self.units))
        self._build_ends(self.cell.step_size)
        self.built = True

    def encode(self, source, training=None):
        mask = padding_mask(source)
        embedded = self._embed(self.source_embedding, source, training)
        annotations, start = self.encoder(embedded, mask=mask, return_state=True, training=training)
        if self.start is not None:
            start = self.start(source, training=training)
        annotations = self.dropout_layer(annotations, training=training)
        return {**self.cell.project_memory(annotations, mask), "mask": mask, "start": start}

    def represent(self, source):
        return self.encode(source)["value"]

    def _cell_states(self, memory, training=None):
        """Returns the initial states of the decoder's cells, including their dropout masks."""
        states, count = memory["start"], NUM_STATES[self.cell_type]
        ones = ops.ones_like(states[0])
        masked = list(states[:count])
        for first in range(count, len(states), count):
            masked += [*states[first : first + count], self.dropout_layer(ones, training=training)]
        return masked

    def _run_decoder(self, target, memory, training=None, **options):
        return self.decoder(
            self._embed(self.target_embedding, target, training),
            keys_and_values(memory),
            initial_state=self._cell_states(memory, training),
            memory_mask=memory["mask"],
            training=training,
            **options,
        )

    def call(self, inputs, training=None):
        # Training does not require the weights, which would be an output of each step.
        memory = self.encode(inputs["source"], training=training)
        return self._output(self._run_decoder(inputs["target"], memory, training), training)

    def decode(self, target, memory, training=None):
        hidden, weights = self._run_decoder(target, memory, training, return_attention_scores=True)
        weights = ops.where(padding_mask(target)[:, :, None], weights, ops.zeros_like(weights))
        return self._output(hidden, training), weights[:, None, None]  # [B, 1 layer, 1 head, T, S]

    def initial_state(self, memory, max_length=None, sharing=1):
        states = self.cell.own_states(self._cell_states(memory), *ops.shape(memory["mask"]))
        return {"inner": repeat_rows(states, sharing)}

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        hidden, weights, states = self.cell.advance(
            self.target_embedding(last),
            state["inner"],
            keys_and_values(memory),
            memory["mask"],
            return_attention_scores=return_attention_scores,
            sharing=sharing,
        )
        weights = [weights[:, None, None]] if return_attention_scores else []
        return self._output(hidden, readout=readout), *weights, {"inner": states}
