"""Beam search, also by the rules of others: what has ended, how it ranks, and when search ends."""

from typing import Any

from keras import ops

from zoo.decoding.beam import BeamSearch
from zoo.decoding.constraints import LOWEST, Constraints
from zoo.decoding.search import Rows, Step
from zoo.decoding.top_k import log_sum_exp


class _RulesOfOthers(BeamSearch):
    """What Hugging Face and CTranslate2 have in common.

    A hypothesis of n symbols, its end included, ranks by `log P / n^alpha`. Of the 2K best extensions only the first K
    end hypotheses.
    """

    def penalty(self, length: Any) -> Any:
        return ops.power(ops.cast(length, "float32"), self.alpha)

    def log_total(self, logits: Any, allowed: Any, best: Any) -> Any:
        counted = self.counted(ops.cast(logits, "float32"))
        return log_sum_exp(counted, ops.max(counted, axis=-1))

    def counted(self, logits: Any) -> Any:
        """Returns the logits over which probabilities are normalised."""
        return logits

    def may_end(self, ends: Any) -> Any:
        return ops.logical_and(ends, ops.arange(2 * self.width) < self.width)


class HuggingFaceBeamSearch(_RulesOfOthers):
    """The rules of `transformers` with `early_stopping=False`.

    K hypotheses are kept. Once there are as many, search ends at the first step t after which the worst of them ranks
    above the best live one at its present length, `log P / t^alpha`, though it may rank higher when it is longer. The
    symbol that a text begins with is the one of padding there, which counts as often as it is there: once.

    Reference:
        The documentation of `transformers.GenerationConfig`, early_stopping and length_penalty,
        https://huggingface.co/docs/transformers/main_classes/text_generation
    """

    def __init__(self, alpha: float, beta: float, source_mask: Any, nbest: int, *arguments: Any) -> None:
        super().__init__(alpha, beta, source_mask, nbest, *arguments)
        self.nbest = self.width  # of which the caller takes the first

    def counted(self, logits: Any) -> Any:
        return logits + ops.where(ops.equal(ops.arange(logits.shape[-1]), self.special.start), LOWEST, 0.0)

    def variables(self, batch: Any) -> Rows:
        return {"stopped": ops.zeros((batch,), dtype="bool")}

    def noted(self, rows: Rows, finished: Any, closed: Any) -> Rows:
        return {"stopped": finished}

    def finished(self, index: Any, rows: Rows) -> Any:
        bound = rows["live_scores"][:, 0] / self.penalty(self.hoped_length(index, rows))
        worst = rows["done_scores"][:, -1]
        over = ops.logical_or(rows["stopped"], index >= rows["max_length"])
        return ops.logical_or(over, ops.logical_and(self.full(rows), worst >= bound))

    def full(self, rows: Rows) -> Any:
        """Returns for which sentences K hypotheses have ended, boolean [B]."""
        return rows["done_log_probs"][:, -1] > LOWEST / 2

    def hoped_length(self, index: Any, rows: Rows) -> Any:
        """Returns the length at which the best live hypothesis is compared with those that have ended."""
        return ops.maximum(index, 1)


class EagerHuggingFaceBeamSearch(HuggingFaceBeamSearch):
    """The rules of `transformers` with `early_stopping=True`: search ends when K hypotheses have ended."""

    def finished(self, index: Any, rows: Rows) -> Any:
        return ops.logical_or(self.full(rows), index >= rows["max_length"])


class PatientHuggingFaceBeamSearch(HuggingFaceBeamSearch):
    """The rules of `transformers` with `early_stopping="never"`: no live hypothesis could rank above the kept ones."""

    def hoped_length(self, index: Any, rows: Rows) -> Any:
        return rows["max_length"] if self.alpha > 0 else super().hoped_length(index, rows)


class CTranslate2BeamSearch(_RulesOfOthers):
    """The rules of CTranslate2 with `patience=1`.

    Search ends when K hypotheses have ended; with `alpha=0` when as many have ended as are asked for, and the best
    extension of some step was an end. Every symbol of the vocabulary counts, those that are never written too. (Its
    `min_decoding_length` of 1 is `Constraints.min_length`.)

    Reference:
        The documentation of `ctranslate2.Translator.translate_batch`, beam_size, patience and length_penalty,
        https://opennmt.net/CTranslate2/python/ctranslate2.Translator.html
    """

    def variables(self, batch: Any) -> Rows:
        return {"ended": ops.zeros((batch,), dtype="int32"), "best_ended": ops.zeros((batch,), dtype="bool")}

    def noted(self, rows: Rows, finished: Any, closed: Any) -> Rows:
        return {
            "ended": rows["ended"] + ops.sum(ops.cast(closed, "int32"), axis=1),
            "best_ended": ops.logical_or(rows["best_ended"], closed[:, 0]),
        }

    def finished(self, index: Any, rows: Rows) -> Any:
        if self.alpha == 0:
            enough = ops.logical_and(rows["best_ended"], rows["ended"] >= self.nbest)
        else:
            enough = rows["ended"] >= self.width
        return ops.logical_or(enough, index >= rows["max_length"])


BEAM_RULES: dict[str, type[BeamSearch]] = {
    "gnmt": BeamSearch,
    "huggingface": HuggingFaceBeamSearch,
    "huggingface_early": EagerHuggingFaceBeamSearch,
    "huggingface_never": PatientHuggingFaceBeamSearch,
    "ctranslate2": CTranslate2BeamSearch,
}
"""The search by whose rules it is."""


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
    """Keeps the `beam_size` best hypotheses at every step.

    Those that have ended are ranked by `log P / length_penalty(length, alpha) + coverage_penalty(coverage, beta)`.
    Search ends for a sentence when no live hypothesis can beat the worst of its `nbest` finished ones.

    Args:
        step: The step function, on B · `beam_size` rows, with those of one sentence adjacent; with a `source_mask` it
            returns `(logits, attention [B · beam_size, S], state)`.
        state: Its state before the first step, with that many rows.
        constraints: The `Constraints`.
        beam_size: Number of hypotheses K, at least 1 and at most half the vocabulary.
        alpha: Exponent of the length penalty, ≥ 0.
        memory: See `greedy_search`.
        beta: Factor of the coverage penalty, ≥ 0.
        source_mask: Which source symbols are real, boolean [B, S]; `None` for no coverage penalty.
        resizes: See `greedy_search`.
        nbest: Number of hypotheses returned, N, 1 to K; with fewer, search ends sooner. Default: K.
        rules: Whose rules rank what has ended and say when search ends: a key of `BEAM_RULES`. What is said here is
            true of `"gnmt"`.

    Returns:
        Ids [B, N, room] and the float32 sum of the log probabilities [B, N] of what follows the prompt, best first by
        that rank. If there are fewer than N sequences, the others have log probabilities below −1e29.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, https://arxiv.org/abs/1609.08144
    """
    if constraints.begins_with_prompt:
        raise ValueError("Beam search begins with the start symbol. Received: constraints.begins_with_prompt=True.")
    nbest = nbest or beam_size
    search = BEAM_RULES[rules](alpha, beta, source_mask, nbest, step, constraints, resizes, beam_size)
    results = search.run(state, memory or {})
    return results["done_ids"][:, :nbest], results["done_log_probs"][:, :nbest]
