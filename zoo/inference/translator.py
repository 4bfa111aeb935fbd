"""A sequence-to-sequence model together with its decoding: source ids in, target ids out."""

from typing import Any

import keras
from keras import ops

from zoo import decoding
from zoo.decoding_options import TranslationOptions
from zoo.models.shared.embeddings import transposed_tables
from zoo.vocabulary import END, PAD, START

SYMBOLS = decoding.SpecialIds(start=START, end=END, pad=PAD)

LEAST_LOG_PROB = -1e29
"""Log probabilities below this are of no sequence: a search had fewer sequences than beams."""


def shifted(ids: Any) -> Any:
    """Returns what predicts `ids` [B, T] under teacher forcing: the start, then all but the last symbol, [B, T]."""
    inputs = ops.concatenate([ops.full_like(ids[:, :1], START), ids[:, :-1]], axis=1)
    return ops.where(ops.equal(ids, PAD), PAD, inputs)  # nothing is predicted after the end


class Scorer(keras.Model):
    """How probable target ids are, given source ids.

    Args:
        model: A `Seq2SeqModel`.

    Call arguments:
        inputs: Dict with `source` [B, S] and `target` [B, T], int32, each with its end and then padded with 0.

    Returns:
        The log probability of each target, float32 [B].
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(dtype=model.dtype_policy)
        self.model = model
        self.built = True

    def call(self, inputs: dict[str, Any]) -> Any:
        source, target = inputs["source"], inputs["target"]
        logits = self.model({"source": source, "target": shifted(target)}, training=False)
        return decoding.sequence_log_prob(logits, target, SYMBOLS)


class Translator(keras.Model):
    """Source ids to target ids, the same code in evaluation and in the exported graph.

    Args:
        model: A `Seq2SeqModel`.
        options: How it is decoded, a `TranslationOptions`. Default: with all defaults.
        resizes: Whether rows that are done leave the loop; see `zoo.decoding`. Default: where the backend can do that.

    Call arguments:
        inputs: Dict with `source` [B, S], int32, padded with 0 at the end; and, where answers are to begin with given
            symbols, `prefix` [B, P], likewise.

    Returns:
        Dict with `ids` [B, K, L], padded, best first, and `log_prob` [B, K], float32, of what follows the prefix; K is
        `nbest`.

    Attributes:
        options: The options, resolved for the model.

    Raises:
        InputError: If the model cannot be decoded like this.
    """

    def __init__(
        self, model: keras.Model, options: TranslationOptions | None = None, resizes: bool | None = None
    ) -> None:
        super().__init__(dtype=model.dtype_policy)
        self.model = model
        self.options = (options or TranslationOptions()).resolved(model)
        self.resizes = decoding.can_resize() if resizes is None else resizes
        self.penalizes_coverage = self.options.beam_size > 1 and self.options.coverage_penalty > 0
        self.built = True

    def _constraints(self, source: Any, prefix: Any) -> decoding.Constraints:
        longest = self.options.max_length
        length = ops.shape(source)[1]
        room = 2 * length + 10
        room = min(room, longest) if isinstance(room, int) else ops.minimum(room, longest)
        lengths = ops.sum(ops.cast(ops.not_equal(source, PAD), "int32"), axis=1)
        limits = ops.minimum(2 * lengths + 10, longest)
        return decoding.Constraints(SYMBOLS, limits, room, prefix, self.options.no_repeat_ngram)

    def _step(self, last: Any, state: Any, memory: Any) -> tuple[Any, ...]:
        logits, *attention, state = self.model.decode_step(
            last, state, memory, sharing=self.options.beam_size, return_attention_scores=self.penalizes_coverage
        )
        return logits, *(ops.mean(weights, axis=(1, 2)) for weights in attention), state

    def call(self, inputs: dict[str, Any]) -> Any:
        with transposed_tables(self.model):
            return self._search(inputs["source"], inputs.get("prefix"))

    def _search(self, source: Any, prefix: Any) -> dict[str, Any]:
        options, constraints = self.options, self._constraints(source, prefix)
        memory = self.model.encode(source, training=False)
        state = self.model.initial_state(memory, None if self.resizes else constraints.room, options.beam_size)
        search: dict[str, Any] = {
            "step": self._step,
            "state": state,
            "constraints": constraints,
            "memory": memory,
            "resizes": self.resizes,
        }
        if options.beam_size == 1:
            ids, log_prob = decoding.greedy_search(**search)
            return {"ids": ids[:, None], "log_prob": log_prob[:, None]}
        penalties: dict[str, Any] = {"alpha": options.length_penalty}
        if self.penalizes_coverage:
            penalties |= {"beta": options.coverage_penalty, "source_mask": ops.not_equal(source, PAD)}
        ids, log_prob = decoding.beam_search(**search, **penalties, beam_size=options.beam_size, nbest=options.nbest)
        return {"ids": ids, "log_prob": log_prob}
