"""The pointer-generator, a decoder that generates tokens of its vocabulary or copies tokens of the source."""

import keras
from keras import ops

from zoo.models.catalog.recurrent import PointerGeneratorOptions
from zoo.models.seq2seq.base import Seq2SeqModel
from zoo.models.seq2seq.rnnsearch import RNNSearch
from zoo.row_selection import repeat_rows

# Probability of copying a token that is not in the source, so that its logarithm is finite.
MIN_PROBABILITY = 1e-30


@keras.saving.register_keras_serializable(package="attention_zoo")
class PointerGenerator(RNNSearch):
    """`RNNSearch` that can copy: its attention is also a distribution over the tokens of the source.

    `P(y) = p_gen · softmax(W t_i)_y + (1 − p_gen) · Σ_{j: x_j = y} α_ij`, with
    `p_gen = σ(w · [s_{i−1}; c_i; E y_{i−1}] + b)`; the rest is as in `RNNSearch`, with `coverage` as an option.
    The logits are `log P(y)`, so that losses, searches and exports are those of other models.

    Both sides share a vocabulary. A name that is not in the target side of the training data can be copied piece by
    piece. The paper has an extended vocabulary for words outside the vocabulary; here they are the unknown token on
    both sides, because subwords and characters are rarely unknown.

    Call arguments and results: see `Seq2SeqModel`; attention has one layer and one head.

    Reference:
        See et al. 2017, "Get To The Point: Summarization with Pointer-Generator Networks", section 2.2, equations 8 and
        9, https://arxiv.org/abs/1704.04368
    """

    options_class = PointerGeneratorOptions

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.gate_dense = keras.layers.Dense(1, dtype=self.dtype_policy, name="gate")

    def build(self, input_shape=None):
        self.gate_dense.build((None, None, self.cell.output_size + self.embedding_dim))
        super().build(input_shape)

    def encode(self, source, training=None):
        return {**super().encode(source, training), "source": ops.cast(source, "int32")}

    def decode(self, target, memory, training=None):
        embedded, recurrent, weights = self._run(target, memory, training)
        logits = self._logits(recurrent, embedded, training)
        return self._mix(logits, recurrent, embedded, weights[:, 0, 0], memory["source"]), weights

    def decode_step(self, last, state, memory, sharing=1, return_attention_scores=False):
        embedded, recurrent, weights, state = self._advance(last, state, memory, sharing, return_attention_scores=True)
        step = (self._logits(recurrent, embedded), recurrent, embedded, weights)
        source = repeat_rows(memory["source"], sharing)
        logits = self._mix(*(tensor[:, None] for tensor in step), source)[:, 0]
        return logits, *([weights[:, None, None]] if return_attention_scores else []), state

    def readout(self, tokens):
        # Any token of the source may be copied, including those outside a shortlist.
        return Seq2SeqModel.readout(self, tokens)

    def _mix(self, logits, recurrent, embedded, weights, source):
        """Returns log P [B, T, V] in float32, from logits [B, T, V] and attention [B, T, S] to a source [B, S]."""
        gate = ops.cast(self.gate_dense(ops.concatenate([recurrent, embedded], axis=-1)), "float32")
        copied = copied_tokens(ops.cast(weights, "float32"), source, self.target_vocab_size)
        generated = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        copied = ops.log(ops.maximum(copied, MIN_PROBABILITY))
        return ops.logaddexp(ops.log_sigmoid(gate) + generated, ops.log_sigmoid(-gate) + copied)


def copied_tokens(weights, source, tokens):
    """Returns the weight of each token [B, T, V], summed over its positions: `Σ_{j: x_j = y} α_ij`.

    Args:
        weights: [B, T, S].
        source: The tokens x, int32 [B, S].
        tokens: Number of tokens, V.
    """
    batch, steps, length = ops.shape(weights)
    rows = ops.add(ops.arange(batch, dtype="int32")[:, None] * tokens, source)
    by_position = ops.reshape(ops.swapaxes(weights, 1, 2), (batch * length, steps))
    total = ops.segment_sum(by_position, ops.reshape(rows, (-1,)), num_segments=batch * tokens)
    return ops.swapaxes(ops.reshape(total, (batch, tokens, steps)), 1, 2)
