"""Beam search."""

from typing import Any

from keras import ops

from zoo.decoding.constraints import LOWEST, Constraints, ban_special
from zoo.decoding.search import Rows, Search, Step
from zoo.decoding.top_k import log_sum_exp, top_k
from zoo.row_selection import take_per_row, take_rows

LEAST_COVERAGE = 1e-10  # so that its logarithm is finite


def length_penalty(length: Any, alpha: float) -> Any:
    """Returns GNMT's length penalty `((5 + length) / 6)^alpha` (Wu et al. 2016, section 7, equation 14).

    Args:
        length: Number of symbols, including the end.
        alpha: Exponent, ≥ 0; 0 compares plain log probabilities.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def coverage_penalty(coverage: Any, mask: Any, beta: float) -> Any:
    """Returns GNMT's coverage penalty `beta · Σ_i log(min(coverage_i, 1))` ≤ 0 (Wu et al. 2016, equation 14).

    Args:
        coverage: Sum of the attention to each source symbol, [..., S].
        mask: Which of them are real, boolean, broadcasts to [..., S].
        beta: Factor, ≥ 0.
    """
    coverage = ops.clip(ops.cast(coverage, "float32"), LEAST_COVERAGE, 1.0)
    return beta * ops.sum(ops.where(mask, ops.log(coverage), 0.0), axis=-1)


class _BeamSearch(Search):
    """Keeps K live hypotheses of each sentence, and the best N that have ended.

    Args:
        alpha: Exponent of the length penalty.
        beta: Factor of the coverage penalty.
        source_mask: Which source symbols are real, [B, S]; or `None` without coverage penalty.
        nbest: How many ended hypotheses of each sentence are kept, N.
        arguments: See `Search`.
    """

    results = ("done_ids", "done_scores", "done_log_probs")

    def __init__(self, alpha: float, beta: float, source_mask: Any, nbest: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alpha, self.beta, self.source_mask, self.nbest = alpha, beta, source_mask, nbest

    def initial_rows(self, batch: Any) -> Rows:
        size, room = self.width, self.constraints.room
        # All beams start equal: only the first one counts, or every hypothesis would occur K times.
        first = ops.where(ops.arange(size) == 0, 0.0, LOWEST)
        lowest = ops.full((batch, self.nbest), LOWEST, dtype="float32")
        rows = {
            "live_ids": ops.full((batch, size, room), self.special.pad, dtype="int32"),
            "live_scores": ops.zeros((batch, size), dtype="float32") + first,
            "last": ops.full((batch, size), self.special.start, dtype="int32"),
            "done_ids": ops.full((batch, self.nbest, room), self.special.pad, dtype="int32"),
            "done_scores": lowest,  # with both penalties
            "done_log_probs": lowest,
        }
        if self.source_mask is not None:
            source = ops.cast(self.source_mask, "float32")[:, None]
            rows |= {"source_mask": self.source_mask, "coverage": ops.repeat(source * 0.0, size, axis=1)}
        return rows

    def finished(self, index: Any, rows: Rows) -> Any:
        """Returns which sentences can no longer change, boolean [B].

        Log probabilities only fall, the length penalty only grows and the coverage penalty is never above 0: a live
        hypothesis cannot end with more than its present log probability divided by the largest length penalty.
        """
        bound = rows["live_scores"][:, 0] / length_penalty(rows["max_length"], self.alpha)
        worst = rows["done_scores"][:, -1]  # they are sorted
        return ops.logical_or(index >= rows["max_length"], worst >= bound)

    def extensions(self, index: Any, rows: Rows, logits: Any) -> tuple[Any, Any, Any]:
        """Returns log probabilities, parents and symbols of the 2K best extensions of each sentence, [B, 2K].

        At most K of them end, so that K can go on.
        """
        size, batch = self.width, ops.shape(rows["max_length"])[0]
        count = min(2 * size, logits.shape[-1])  # of each beam, which can have no more of the 2K best
        logits = ban_special(logits, self.special)
        best, symbols = top_k(logits, count)
        # The maximum is the first column of `best`, but taking that would make XLA sort all logits.
        total = log_sum_exp(logits, ops.max(best, axis=-1))
        if self.constraints.no_repeat_ngram:
            history = ops.reshape(rows["live_ids"], (batch * size, -1))
            best, symbols = top_k(self.constraints.without_repeats(logits, history, index), count)
        log_probs = ops.reshape(best - total[:, None], (batch, size, count))
        symbols = ops.reshape(ops.cast(symbols, "int32"), (batch, size, count))
        if self.constraints.prompt is not None:
            log_probs, symbols = self._force_prompt(index, rows, log_probs, symbols)
        scores = ops.reshape(rows["live_scores"][:, :, None] + log_probs, (batch, size * count))
        scores, indices = ops.top_k(scores, 2 * size)
        indices = ops.cast(indices, "int32")
        return scores, indices // count, take_per_row(ops.reshape(symbols, (batch, size * count)), indices)

    def _force_prompt(self, index: Any, rows: Rows, log_probs: Any, symbols: Any) -> tuple[Any, Any]:
        """Returns log probabilities and symbols with the prompt's symbol, if there is one, as the only extension."""
        prompt_symbols, in_prompt = self.constraints.prompt_symbols(rows, index)
        in_prompt = in_prompt[:, None, None]
        first_only = ops.where(ops.arange(log_probs.shape[-1]) == 0, 0.0, LOWEST)
        forced = prompt_symbols[:, None, None]
        return ops.where(in_prompt, first_only, log_probs), ops.where(in_prompt, forced, symbols)

    def advance(self, index: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        logits, *attention, state = self.step(ops.reshape(rows["last"], (-1,)), state, memory)
        scores, parents, chosen = self.extensions(index, rows, logits)
        finished = self.finished(index, rows)[:, None]
        length = index + 1
        ids = ops.where(ops.equal(self.columns, index), chosen[:, :, None], take_per_row(rows["live_ids"], parents))
        ends = ops.equal(chosen, self.special.end)
        if self.constraints.prompt is not None:
            ends = ops.logical_and(ends, ops.logical_not(self.constraints.prompt_symbols(rows, index)[1])[:, None])
        # At its maximal length a hypothesis ends as it is.
        closed = ops.logical_or(ends, (length >= rows["max_length"])[:, None])
        final = ops.where(ops.logical_and(closed, ops.logical_not(finished)), scores, LOWEST)
        ranked = final / length_penalty(length, self.alpha)
        if attention:
            coverage = rows["coverage"] + ops.reshape(ops.cast(attention[0], "float32"), ops.shape(rows["coverage"]))
            coverage = take_per_row(coverage, parents)
            ranked = ranked + coverage_penalty(coverage, rows["source_mask"][:, None], self.beta)
        done_scores, keep = ops.top_k(ops.concatenate([rows["done_scores"], ranked], axis=1), self.nbest)
        keep = ops.cast(keep, "int32")
        changes = {
            "done_scores": done_scores,
            "done_ids": take_per_row(ops.concatenate([rows["done_ids"], ids], axis=1), keep),
            "done_log_probs": take_per_row(ops.concatenate([rows["done_log_probs"], final], axis=1), keep),
        }
        changes["live_scores"], keep = ops.top_k(ops.where(ends, LOWEST, scores), self.width)
        keep = ops.cast(keep, "int32")
        parents = take_per_row(parents, keep)
        changes |= {"live_ids": take_per_row(ids, keep), "last": take_per_row(chosen, keep)}
        changes |= {"coverage": take_per_row(coverage, keep)} if attention else {}
        state_rows = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * self.width + parents
        return {**rows, **changes}, take_rows(state, ops.reshape(state_rows, (-1,)))


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

    Returns:
        Ids [B, N, room] and the float32 sum of the log probabilities [B, N] of what follows the prompt, best first by
        that rank. If there are fewer than N sequences, the others have log probabilities below −1e29.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, https://arxiv.org/abs/1609.08144
    """
    if constraints.begins_with_prompt:
        raise ValueError("Beam search begins with the start symbol. Received: constraints.begins_with_prompt=True.")
    search = _BeamSearch(alpha, beta, source_mask, nbest or beam_size, step, constraints, resizes, beam_size)
    results = search.run(state, memory or {})
    return results["done_ids"], results["done_log_probs"]
