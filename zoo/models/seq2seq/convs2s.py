"""The convolutional encoder-decoder."""

import keras
from keras import ops

from zoo import layers
from zoo.layers.core.dropout import Dropout
from zoo.models.catalog.convolutional import ConvS2SOptions
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.shared.base import build_all, padding_mask
from zoo.models.shared.embeddings import Embedding, readout_of
from zoo.models.shared.positions import InputPositions
from zoo.models.shared.scores import model_score
from zoo.row_selection import repeat_rows


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConvS2S(Seq2SeqModel):
    """Encoder and decoder of gated convolutions, with attention in every layer of the decoder.

    Encoder: `h⁰ = W_e e + b_e`, `hˡ = block(hˡ⁻¹)`, `z = W_z h + b_z`, where e are the embeddings with their positions.
    Decoder: likewise from the embeddings g of the target, with causal convolutions, and in each block attention with
    keys z and values z + e. Logits `W_o (W h + b) + b_o`. A block is a `GatedConvolutionBlock`.

    The decoding state contains the last `width − 1` inputs of each layer of the decoder. The gradient of the encoder is
    divided by the number of layers that attend to it; that of the source embeddings in the values is not.

    Unlike in the paper, weights are not normalised, and all layers have the same number of units.

    Call arguments and results: see `Seq2SeqModel`; attention has `decoder_layers` layers with one head each.

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3, https://arxiv.org/abs/1705.03122
    """

    options_class = ConvS2SOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.source_embedding = self._embedding(self.source_vocab_size, "source_embedding")
        self.target_embedding = self._embedding(self.target_vocab_size, "target_embedding")
        self.source_positions, self.target_positions = (
            InputPositions(self.positions, self.max_length, dtype=self.dtype_policy, name=f"{side}_positions")
            for side in ("source", "target")
        )
        self.encoder_input = self._dense(self.units, "encoder_input", after_dropout=True)
        self.encoder_blocks = [self._block("encoder", index, "same") for index in range(self.encoder_layers)]
        self.encoder_output = self._dense(self.embedding_dim, "encoder_output")
        self.decoder_input = self._dense(self.units, "decoder_input", after_dropout=True)
        self.decoder_blocks = [
            self._block("decoder", index, "causal", self._attention()) for index in range(self.decoder_layers)
        ]
        self.decoder_output = self._dense(self.embedding_dim, "decoder_output")
        self.output_dense = self._dense(self.target_vocab_size, "output", after_dropout=True)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")

    def _embedding(self, size, name):
        initializer = keras.initializers.RandomNormal(stddev=0.1)
        return Embedding(
            size, self.embedding_dim, embeddings_initializer=initializer, dtype=self.dtype_policy, name=name
        )

    def _dense(self, size, name, after_dropout=False):
        # Section 3.5: outputs have the variance of the inputs, which dropout has divided by 1 − rate.
        scale = 1.0 - self.dropout if after_dropout else 1.0
        initializer = keras.initializers.VarianceScaling(scale, "fan_in", "untruncated_normal")
        return keras.layers.Dense(size, kernel_initializer=initializer, dtype=self.dtype_policy, name=name)

    def _attention(self):
        score = model_score(self.score, self.dtype_policy)
        return layers.Attention(score, dtype=self.dtype_policy, name="attention")

    def _block(self, side, index, padding, attention=None):
        name = f"{side}_block_{index}"
        return layers.GatedConvolutionBlock(
            self.width, padding, attention, dropout=self.dropout, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape=None):
        embedded, hidden = (None, None, self.embedding_dim), (None, None, self.units)
        build_all([self.source_embedding, self.target_embedding], (None, None))
        build_all([self.source_positions, self.target_positions, self.encoder_input, self.decoder_input], embedded)
        build_all([*self.encoder_blocks, self.encoder_output, self.decoder_output], hidden)
        build_all(self.decoder_blocks, hidden, embedded, embedded)
        self.output_dense.build(embedded)
        self.built = True

    def encode(self, source, training=None):
        hidden, embedded = self._run_encoder(source, training)
        hidden = _scale_gradient(hidden, 1.0 / self.decoder_layers)
        projected = [block.project_memory(hidden, embedded) for block in self.decoder_blocks]
        return {"mask": padding_mask(source), "layers": projected}

    def _run_encoder(self, source, training=None):
        """Returns the outputs of the encoder and the embeddings with their positions, each [B, S, E]."""
        embedded = self.dropout_layer(self.source_positions(self.source_embedding(source)), training=training)
        hidden = self.encoder_input(embedded)
        for block in self.encoder_blocks:
            hidden = block(hidden, mask=padding_mask(source), training=training)
        return self.encoder_output(hidden), embedded

    def represent(self, source):
        return self._run_encoder(source)[0]

    def _embed(self, target, training=None, start_index=0):
        embedded = self.target_positions(self.target_embedding(target), start_index=start_index)
        return self.dropout_layer(embedded, training=training)

    def readout(self, tokens):
        return readout_of(tokens, self.target_embedding, self.output_dense)

    def _logits(self, hidden, training=None, readout=None):
        return (readout or self.output_dense)(self.dropout_layer(self.decoder_output(hidden), training=training))

    def decode(self, target, memory, training=None):
        mask = padding_mask(target)
        embedded = self._embed(target, training)
        hidden, weights = self.decoder_input(embedded), []
        for block, projected in zip(self.decoder_blocks, memory["layers"], strict=True):
            hidden, scores = block(
                hidden,
                embedded,
                projected,
                mask=mask,
                memory_mask=memory["mask"],
                return_attention_scores=True,
                training=training,
            )
            weights.append(scores)
        return self._logits(hidden, training), ops.stack(weights, axis=1)[:, :, None]  # one head

    def initial_state(self, memory, max_length=None, sharing=1):
        batch = ops.shape(memory["mask"])[0] * sharing
        return {
            "index": ops.zeros((), dtype="int32"),
            "caches": [block.create_cache(batch) for block in self.decoder_blocks],
        }

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False, readout=None):
        memory = repeat_rows(memory, sharing)
        embedded = self._embed(ops.expand_dims(last, 1), start_index=state["index"])
        hidden, caches, weights = self.decoder_input(embedded), [], []
        for block, projected, cache in zip(self.decoder_blocks, memory["layers"], state["caches"], strict=True):
            hidden, *scores, cache = block(
                hidden,
                embedded,
                projected,
                memory_mask=memory["mask"],
                return_attention_scores=return_attention_scores,
                cache=cache,
            )
            caches.append(cache)
            weights += scores
        weights = [ops.stack(weights, axis=1)] if return_attention_scores else []  # T = 1 serves as the axis of heads
        logits = ops.squeeze(self._logits(hidden, readout=readout), 1)
        return logits, *weights, {"index": state["index"] + 1, "caches": caches}


def _scale_gradient(tensor, scale):
    """Returns the tensor, with a gradient multiplied by `scale` (section 3.4)."""
    constant = ops.stop_gradient(tensor)
    return constant + scale * (tensor - constant)
