"""A sequence-to-sequence model together with its decoding: source ids in, target ids out."""

import keras
from keras import ops

from zoo import decoding
from zoo.errors import InputError, check_finite, check_whole
from zoo.models.shared.embeddings import transposed_tables
from zoo.text import END, PAD, START

SYMBOLS = decoding.SpecialIds(start=START, end=END, pad=PAD)

LEAST_LOG_PROB = -1e29
"""Log probabilities below this are of no sequence: a search had fewer sequences than beams."""


def shifted(ids):
    """Returns what predicts `ids` [B, T] under teacher forcing: the start, then all but the last symbol, [B, T]."""
    inputs = ops.concatenate([ops.full_like(ids[:, :1], START), ids[:, :-1]], axis=1)
    return ops.where(ops.equal(ids, PAD), PAD, inputs)  # nothing is predicted behind the end


class Scorer(keras.Model):
    """How probable target ids are, given source ids.

    Args:
        model: A `Seq2SeqModel`.

    Call arguments:
        inputs: Dict with `source` [B, S] and `target` [B, T], int32, each with its end, padded with 0 behind.

    Returns:
        The log probability of each target, float32 [B].
    """

    def __init__(self, model, **kwargs):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        self.model = model
        self.built = True

    def call(self, inputs):
        source, target = inputs["source"], inputs["target"]
        logits = self.model({"source": source, "target": shifted(target)}, training=False)
        return decoding.sequence_log_prob(logits, target, SYMBOLS)


class Translator(keras.Model):
    """Source ids to target ids, the same code in evaluation and in the exported graph.

    Args:
        model: A `Seq2SeqModel`.
        beam_size: 1 for greedy search, more for beam search.
        length_penalty: Exponent of the length penalty of beam search, at least 0.
        coverage_penalty: Factor of the coverage penalty of beam search, at least 0: of a model that attends, the mean
            over layers and heads counts.
        max_length: Largest number of target symbols, the end included. Each sentence is also limited to twice the
            number of its source symbols plus 10.
        no_repeat_ngram: No n symbols come twice in an answer; 0 for no such rule.
        resizes: Whether rows that are done leave the loop; see `zoo.decoding`. Default: where the backend can do that.
        nbest: How many answers to each sentence are wanted, 1 to `beam_size`; the fewer, the sooner search ends.
            Default: `beam_size`.

    Call arguments:
        inputs: Dict with `source` [B, S], int32, padded with 0 at the end; and, where answers are to begin with given
            symbols, `prefix` [B, P], likewise.

    Returns:
        Dict with `ids` [B, K, L], padded, best first, and `log_prob` [B, K], float32, of what follows the prefix; K is
        `nbest`.

    Raises:
        InputError: If an option is out of range.
    """

    def __init__(
        self,
        model,
        beam_size=1,
        length_penalty=0.6,
        coverage_penalty=0.0,
        max_length=256,
        no_repeat_ngram=0,
        resizes=None,
        nbest=None,
        **kwargs,
    ):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        check_whole(beam_size=beam_size, max_length=max_length, no_repeat_ngram=no_repeat_ngram)
        if beam_size < 1 or 2 * beam_size > model.target_vocab_size:
            raise InputError(
                f"`beam_size` must be at least 1 and at most half the vocabulary of {model.target_vocab_size}. "
                f"Received: beam_size={beam_size}."
            )
        if nbest is not None and not 1 <= nbest <= beam_size:
            raise InputError(f"`nbest` must be from 1 to `beam_size`, {beam_size}. Received: nbest={nbest}.")
        check_finite(length_penalty=length_penalty, coverage_penalty=coverage_penalty)
        least = {"length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
        least |= {"no_repeat_ngram": no_repeat_ngram, "max_length": max_length}
        for name, value in least.items():
            lowest = 1 if name == "max_length" else 0
            if value < lowest:
                raise InputError(f"`{name}` must be at least {lowest}. Received: {name}={value}.")
        if coverage_penalty and not model.attends:
            raise InputError(
                f"{type(model).__name__} has no attention that could cover the source. Received: "
                f"coverage_penalty={coverage_penalty}."
            )
        self.model = model
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.coverage_penalty = coverage_penalty if beam_size > 1 else 0.0
        self.max_length = max_length
        self.no_repeat_ngram = no_repeat_ngram
        self.nbest = nbest or beam_size
        self.resizes = decoding.can_resize() if resizes is None else resizes
        self.built = True

    def _constraints(self, source, prefix):
        length = ops.shape(source)[1]
        room = 2 * length + 10
        room = min(room, self.max_length) if isinstance(room, int) else ops.minimum(room, self.max_length)
        lengths = ops.sum(ops.cast(ops.not_equal(source, PAD), "int32"), axis=1)
        limits = ops.minimum(2 * lengths + 10, self.max_length)
        return decoding.Constraints(SYMBOLS, limits, room, prefix, self.no_repeat_ngram)

    def _step(self, last, state, memory):
        options = {"sharing": self.beam_size, "return_attention_scores": bool(self.coverage_penalty)}
        logits, *attention, state = self.model.decode_step(last, state, memory, **options)
        return logits, *(ops.mean(weights, axis=(1, 2)) for weights in attention), state

    def call(self, inputs):
        with transposed_tables(self.model):
            return self._search(inputs)

    def _search(self, inputs):
        source = inputs["source"]
        constraints = self._constraints(source, inputs.get("prefix"))
        memory = self.model.encode(source, training=False)
        state = self.model.initial_state(memory, None if self.resizes else constraints.room, self.beam_size)
        search = {
            "step": self._step,
            "state": state,
            "constraints": constraints,
            "memory": memory,
            "resizes": self.resizes,
        }
        if self.beam_size == 1:
            ids, log_prob = decoding.greedy_search(**search)
            return {"ids": ids[:, None], "log_prob": log_prob[:, None]}
        penalties = {"alpha": self.length_penalty, "nbest": self.nbest}
        if self.coverage_penalty:
            penalties |= {"beta": self.coverage_penalty, "source_mask": ops.not_equal(source, PAD)}
        ids, log_prob = decoding.beam_search(**search, beam_size=self.beam_size, **penalties)
        return {"ids": ids, "log_prob": log_prob}
