"""A sequence-to-sequence model together with its decoding: source ids in, target ids out."""

import keras
from keras import ops

from zoo import decoding
from zoo.errors import InputError
from zoo.text import END, PAD, START

SYMBOLS = decoding.Symbols(start=START, end=END, pad=PAD)


class Translator(keras.Model):
    """Source ids to target ids, the same code in evaluation and in the exported graph.

    Args:
        model: A `Seq2SeqModel`.
        beam_size: 1 for greedy search, more for beam search.
        length_penalty: Exponent of the length penalty of beam search.
        max_length: Largest number of target symbols, the end included. Each sentence is also limited to twice the
            number of its source symbols plus 10.

    Call arguments:
        source: [B, S], int32, padded with 0 at the end.

    Returns:
        Dict with `ids` [B, K, L], padded, best first, and `log_prob` [B, K], float32; K is `beam_size`.
    """

    def __init__(self, model, beam_size=1, length_penalty=0.6, max_length=256, **kwargs):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        if beam_size < 1 or 2 * beam_size > model.target_vocab_size:
            raise InputError(
                f"`beam_size` must be at least 1 and at most half the vocabulary of {model.target_vocab_size}. "
                f"Received: beam_size={beam_size}."
            )
        if max_length < 1:
            raise InputError(f"`max_length` must be at least 1. Received: max_length={max_length}.")
        self.model = model
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.max_length = max_length
        self.built = True

    def _limits(self, source):
        """Returns the largest number of target symbols of each row [B], and the largest of all."""
        length = ops.shape(source)[1]
        room = 2 * length + 10
        room = min(room, self.max_length) if isinstance(room, int) else ops.minimum(room, self.max_length)
        lengths = ops.sum(ops.cast(ops.not_equal(source, PAD), "int32"), axis=1)
        return ops.minimum(2 * lengths + 10, self.max_length), room

    def call(self, source):
        limits, room = self._limits(source)
        memory = self.model.encode(source, training=False)
        if self.beam_size > 1:
            memory = decoding.repeat_rows(memory, self.beam_size)
        state = self.model.initial_state(memory, room)

        def step(last, state):
            return self.model.decode_step(last, state, memory)

        if self.beam_size == 1:
            ids, log_prob = decoding.greedy_search(step, state, limits, room, SYMBOLS)
            return {"ids": ids[:, None], "log_prob": log_prob[:, None]}
        ids, log_prob = decoding.beam_search(step, state, limits, room, SYMBOLS, self.beam_size, self.length_penalty)
        return {"ids": ids, "log_prob": log_prob}
