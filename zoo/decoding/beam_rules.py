"""Beam search by several rules, also of other libraries: how ended hypotheses rank, and when the search ends."""

from typing import Any

from keras import ops

from zoo.decoding.beam import BeamSearch
from zoo.decoding.constraints import LOWEST, Constraints
from zoo.decoding.search import Rows, Step
from zoo.decoding.top_k import log_sum_exp


class _RankByMeanLogProb(BeamSearch):
    """The common rules of Hugging Face and CTranslate2.

    A hypothesis of n tokens, including its end, ranks by `log P / n^alpha`. Of the 2K best extensions, only the first K
    may end hypotheses.
    """

    def penalty(self, length: Any) -> Any:
        return ops.power(ops.cast(length, "float32"), self.alpha)

    def log_total(self, logits: Any, allowed: Any, best: Any) -> Any:
        logits = self.normalized_logits(ops.cast(logits, "float32"))
        return log_sum_exp(logits, ops.max(logits, axis=-1))

    def normalized_logits(self, logits: Any) -> Any:
        """Returns the logits over which probabilities are normalized."""
        return logits

    def may_end(self, ends: Any) -> Any:
        return ops.logical_and(ends, ops.arange(2 * self.width) < self.width)


class HuggingFaceBeamSearch(_RankByMeanLogProb):
    """The rules of `transformers` with `early_stopping=False`.

    K ended hypotheses are stored. Once there are K, the search ends at the first step t after which the worst of them
    ranks no lower than the best live one at its current length, `log P / t^alpha`, even if that could rank higher.
    The start token, which is also the padding token in that library, is excluded from the normalization.

    Reference:
        The documentation of `transformers.GenerationConfig`, early_stopping and length_penalty,
        https://huggingface.co/docs/transformers/main_classes/text_generation
    """

    def __init__(self, alpha: float, beta: float, source_mask: Any, nbest: int, *arguments: Any) -> None:
        super().__init__(alpha, beta, source_mask, nbest, *arguments)
        self.nbest = self.width  # `beam_search` returns only the first `nbest`

    def normalized_logits(self, logits: Any) -> Any:
        return logits + ops.where(ops.equal(ops.arange(logits.shape[-1]), self.special.start), LOWEST, 0.0)

    def variables(self, batch: Any) -> Rows:
        return {"stopped": ops.zeros((batch,), dtype="bool")}

    def updated_variables(self, rows: Rows, finished: Any, closed: Any) -> Rows:
        return {"stopped": finished}

    def finished(self, index: Any, rows: Rows) -> Any:
        bound = rows["live_scores"][:, 0] / self.penalty(self.compared_length(index, rows))
        worst = rows["done_scores"][:, -1]
        is_over = ops.logical_or(rows["stopped"], index >= rows["max_length"])
        return ops.logical_or(is_over, ops.logical_and(self.full(rows), worst >= bound))

    def full(self, rows: Rows) -> Any:
        """Returns whether K hypotheses of each sentence have ended, boolean [B]."""
        return rows["done_log_probs"][:, -1] > LOWEST / 2

    def compared_length(self, index: Any, rows: Rows) -> Any:
        """Returns the length at which the best live hypothesis is compared with those that have ended."""
        return ops.maximum(index, 1)


class EagerHuggingFaceBeamSearch(HuggingFaceBeamSearch):
    """The rules of `transformers` with `early_stopping=True`: the search ends when K hypotheses have ended."""

    def finished(self, index: Any, rows: Rows) -> Any:
        return ops.logical_or(self.full(rows), index >= rows["max_length"])


class PatientHuggingFaceBeamSearch(HuggingFaceBeamSearch):
    """The rules of `transformers` with `early_stopping="never"`: ends when no live hypothesis can rank higher."""

    def compared_length(self, index: Any, rows: Rows) -> Any:
        return rows["max_length"] if self.alpha > 0 else super().compared_length(index, rows)


class CTranslate2BeamSearch(_RankByMeanLogProb):
    """The rules of CTranslate2 with `patience=1`.

    The search ends when K hypotheses have ended; with `alpha=0`, when `nbest` have ended and an end was the best
    extension of a step. Probabilities are normalized over the whole vocabulary, including banned tokens. (The library's
    `min_decoding_length` of 1 is `Constraints.min_length`.)

    Reference:
        The documentation of `ctranslate2.Translator.translate_batch`, beam_size, patience and length_penalty,
        https://opennmt.net/CTranslate2/python/ctranslate2.Translator.html
    """

    def variables(self, batch: Any) -> Rows:
        return {"ended": ops.zeros((batch,), dtype="int32"), "best_ended": ops.zeros((batch,), dtype="bool")}

    def updated_variables(self, rows: Rows, finished: Any, closed: Any) -> Rows:
        return {
            "ended": rows["ended"] + ops.sum(ops.cast(closed, "int32"), axis=1),
            "best_ended": ops.logical_or(rows["best_ended"], closed[:, 0]),
        }

    def finished(self, index: Any, rows: Rows) -> Any:
        if self.alpha == 0:
            has_enough = ops.logical_and(rows["best_ended"], rows["ended"] >= self.nbest)
        else:
            has_enough = rows["ended"] >= self.width
        return ops.logical_or(has_enough, index >= rows["max_length"])


BEAM_RULES: dict[str, type[BeamSearch]] = {
    "gnmt": BeamSearch,
    "huggingface": HuggingFaceBeamSearch,
    "huggingface_early": EagerHuggingFaceBeamSearch,
    "huggingface_never": PatientHuggingFaceBeamSearch,
    "ctranslate2": CTranslate2BeamSearch,
}
"""The class of the search for each set of rules."""


def beam_search(
    step: Step,
    state: Any,
    constraints: Constraints,
    beam_size: int,
    alpha: float = 0.6,
    memory: Any = None,
    beta: float = 0.0,
    source_mask: Any = None,
    resizes: bool | None = None,
    nbest: int | None = None,
    rules: str = "gnmt",
) -> tuple[Any, Any]:
    """Searches with the `beam_size` best hypotheses at every step.

    Ended hypotheses rank by `log P / length_penalty(length, alpha) + coverage_penalty(coverage, beta)`. The search of a
    sentence ends when no live hypothesis can rank above the worst of its `nbest` ended ones.

    Args:
        step: The step function, on B · `beam_size` rows, with those of one sentence adjacent; with a `source_mask` it
            returns `(logits, attention [B · beam_size, S], state)`.
        state: The initial state, with B · `beam_size` rows.
        constraints: The `Constraints`.
        beam_size: Number of hypotheses K, at least 1 and at most half the vocabulary.
        alpha: Exponent of the length penalty, ≥ 0.
        memory: See `greedy_search`.
        beta: Factor of the coverage penalty, ≥ 0.
        source_mask: `True` for real source tokens, boolean [B, S]; `None` for no coverage penalty.
        resizes: See `greedy_search`.
        nbest: Number of returned hypotheses, N, from 1 to K; with fewer, the search ends sooner. Default: K.
        rules: The rules of ranking and ending, a key of `BEAM_RULES`. The description above is that of `"gnmt"`.

    Returns:
        Ids [B, N, capacity], by rank, and the float32 sums of the log probabilities [B, N] of the tokens after the
        prompt. If there are fewer than N sequences, the others have log probabilities below −1e29.

    Raises:
        ValueError: If `constraints.num_begun` is not 0.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, https://arxiv.org/abs/1609.08144
    """
    if not isinstance(constraints.num_begun, int) or constraints.num_begun:
        raise ValueError(
            f"Beam search begins with the start token. Received: constraints.num_begun={constraints.num_begun}."
        )
    nbest = nbest or beam_size
    search = BEAM_RULES[rules](alpha, beta, source_mask, nbest, step, constraints, resizes, beam_size)
    results = search.run(state, memory or {})
    return results["done_ids"][:, :nbest], results["done_log_probs"][:, :nbest]
