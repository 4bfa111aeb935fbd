"""Beam search by the rules of GNMT."""

from typing import Any

from keras import ops

from zoo.decoding.constraints import LOWEST, ban_special
from zoo.decoding.search import Rows, Search
from zoo.decoding.top_k import log_sum_exp, top_k
from zoo.row_selection import take_per_row, take_rows

LEAST_COVERAGE = 1e-10  # keeps its logarithm finite


def length_penalty(length: Any, alpha: float) -> Any:
    """Returns GNMT's length penalty `((5 + length) / 6)^alpha` (Wu et al. 2016, section 7, equation 14).

    Args:
        length: Number of tokens, including the end.
        alpha: Exponent, ≥ 0; 0 ranks by log probabilities.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def coverage_penalty(coverage: Any, mask: Any, beta: float) -> Any:
    """Returns GNMT's coverage penalty `beta · Σ_i log(min(coverage_i, 1))` ≤ 0 (Wu et al. 2016, equation 14).

    Args:
        coverage: Sum of the attention to each source token, [..., S].
        mask: `True` for real tokens, boolean, broadcasts to [..., S].
        beta: Factor, ≥ 0.
    """
    coverage = ops.clip(ops.cast(coverage, "float32"), LEAST_COVERAGE, 1.0)
    return beta * ops.sum(ops.where(mask, ops.log(coverage), 0.0), axis=-1)


class BeamSearch(Search):
    """Searches with K live hypotheses per sentence, and stores the N best of those that have ended.

    Args:
        alpha: Exponent of the length penalty.
        beta: Factor of the coverage penalty.
        source_mask: `True` for real source tokens, [B, S]; or `None` without coverage penalty.
        nbest: Number of ended hypotheses stored per sentence, N.
        arguments: See `Search`.

    A subclass implements other rules by overriding `penalty`, `log_total`, `may_end`, `finished` and its variables.
    """

    results = ("done_ids", "done_scores", "done_log_probs")

    def __init__(self, alpha: float, beta: float, source_mask: Any, nbest: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alpha, self.beta, self.source_mask, self.nbest = alpha, beta, source_mask, nbest

    def initial_rows(self, batch: Any) -> Rows:
        size, capacity = self.width, self.constraints.capacity
        # All beams start equal, so only the first one has a score; otherwise every hypothesis would occur K times.
        first = ops.where(ops.arange(size) == 0, 0.0, LOWEST)
        # If the maximum length is 0, the only sequence is the empty one.
        empty = ops.logical_and(self.constraints.max_lengths[:, None] <= 0, ops.arange(self.nbest) == 0)
        lowest = ops.where(empty, 0.0, ops.full((batch, self.nbest), LOWEST, dtype="float32"))
        rows = {
            **self.variables(batch),
            "live_ids": ops.full((batch, size, capacity), self.special.pad, dtype="int32"),
            "live_scores": ops.zeros((batch, size), dtype="float32") + first,
            "last": ops.full((batch, size), self.special.start, dtype="int32"),
            "done_ids": ops.full((batch, self.nbest, capacity), self.special.pad, dtype="int32"),
            "done_scores": lowest,  # with both penalties
            "done_log_probs": lowest,
        }
        if self.source_mask is not None:
            source = ops.cast(self.source_mask, "float32")[:, None]
            rows |= {"source_mask": self.source_mask, "coverage": ops.repeat(source * 0.0, size, axis=1)}
        return rows

    def finished(self, index: Any, rows: Rows) -> Any:
        """Returns which sentences can no longer change, boolean [B].

        Log probabilities only decrease, the length penalty only increases and the coverage penalty is at most 0. The
        score of a live hypothesis is thus bounded by its log probability divided by the largest length penalty.
        """
        bound = rows["live_scores"][:, 0] / self.penalty(rows["max_length"])
        worst = rows["done_scores"][:, -1]  # scores are sorted
        return ops.logical_or(index >= rows["max_length"], worst >= bound)

    def penalty(self, length: Any) -> Any:
        """Returns the divisor of the log probabilities of ended hypotheses of this length."""
        return length_penalty(length, self.alpha)

    def log_total(self, logits: Any, allowed: Any, best: Any) -> Any:
        """Returns the logarithm of the normalizer of the probabilities, [R].

        Args:
            logits: The model's logits, [R, V].
            allowed: The same in float32, with banned tokens at `LOWEST`.
            best: The largest of these, [R, 2K].
        """
        # The maximum is the first column of `best`, but slicing it would make XLA sort all logits.
        return log_sum_exp(allowed, ops.max(best, axis=-1))

    def may_end(self, ends: Any) -> Any:
        """Returns which of the 2K best extensions may end hypotheses, given which are ends; both boolean [B, 2K]."""
        return ends

    def extensions(self, index: Any, rows: Rows, logits: Any) -> tuple[Any, Any, Any]:
        """Returns log probabilities, parents and tokens of the 2K best extensions of each sentence, [B, 2K].

        At most K of them are ends, so that at least K can continue.
        """
        size, batch = self.width, ops.shape(rows["max_length"])[0]
        count = min(2 * size, logits.shape[-1])  # extensions per beam that can be among the 2K best
        logits = self.constraints.without_early_end(logits, index)
        allowed = ban_special(logits, self.special)
        best, tokens = top_k(allowed, count)
        total = self.log_total(logits, allowed, best)
        if self.constraints.no_repeat_ngram:
            history = ops.reshape(rows["live_ids"], (batch * size, -1))
            best, tokens = top_k(self.constraints.without_repeats(allowed, history, index), count)
        log_probs = ops.reshape(best - total[:, None], (batch, size, count))
        tokens = ops.reshape(ops.cast(tokens, "int32"), (batch, size, count))
        if self.constraints.prompt is not None:
            log_probs, tokens = self._force(*self.constraints.prompt_tokens(rows, index), log_probs, tokens)
        if self.constraints.forces_end:
            ends = ops.full_like(rows["max_length"], self.special.end)
            log_probs, tokens = self._force(ends, self.constraints.must_end(rows, index), log_probs, tokens)
        scores = ops.reshape(rows["live_scores"][:, :, None] + log_probs, (batch, size * count))
        scores, indices = ops.top_k(scores, 2 * size)
        indices = ops.cast(indices, "int32")
        return scores, indices // count, take_per_row(ops.reshape(tokens, (batch, size * count)), indices)

    def _force(self, forced: Any, is_forced: Any, log_probs: Any, tokens: Any) -> tuple[Any, Any]:
        """Returns log probabilities and tokens; where `is_forced` [B], the token `forced` [B] is the only extension."""
        is_forced = is_forced[:, None, None]
        first_only = ops.where(ops.arange(log_probs.shape[-1]) == 0, 0.0, LOWEST)
        return ops.where(is_forced, first_only, log_probs), ops.where(is_forced, forced[:, None, None], tokens)

    def advance(self, index: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        logits, *attention, state = self.step(ops.reshape(rows["last"], (-1,)), state, memory)
        scores, parents, chosen = self.extensions(index, rows, logits)
        finished = self.finished(index, rows)[:, None]
        length = index + 1
        ends = self.special.are_ends(chosen)
        if self.constraints.prompt is not None:
            ends = ops.logical_and(ends, ops.logical_not(self.constraints.in_prompt(rows, index))[:, None])
        chosen = self.special.with_one_end(chosen, ends)
        ids = ops.where(ops.equal(self.columns, index), chosen[:, :, None], take_per_row(rows["live_ids"], parents))
        # At its maximum length, a hypothesis ends without an end token.
        closed = ops.logical_or(ends, (length >= rows["max_length"])[:, None])
        closed = ops.logical_and(self.may_end(closed), ops.logical_not(finished))
        final = ops.where(closed, scores, LOWEST)
        ranked = final / self.penalty(length)
        if attention:
            coverage = rows["coverage"] + ops.reshape(ops.cast(attention[0], "float32"), ops.shape(rows["coverage"]))
            coverage = take_per_row(coverage, parents)
            ranked = ranked + coverage_penalty(coverage, rows["source_mask"][:, None], self.beta)
        done_scores, best = ops.top_k(ops.concatenate([rows["done_scores"], ranked], axis=1), self.nbest)
        best = ops.cast(best, "int32")
        changes = {
            "done_scores": done_scores,
            "done_ids": take_per_row(ops.concatenate([rows["done_ids"], ids], axis=1), best),
            "done_log_probs": take_per_row(ops.concatenate([rows["done_log_probs"], final], axis=1), best),
        }
        changes["live_scores"], best = ops.top_k(ops.where(ends, LOWEST, scores), self.width)
        best = ops.cast(best, "int32")
        parents = take_per_row(parents, best)
        changes |= {"live_ids": take_per_row(ids, best), "last": take_per_row(chosen, best)}
        changes |= {"coverage": take_per_row(coverage, best)} if attention else {}
        changes |= self.updated_variables(rows, finished[:, 0], closed)
        state_rows = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * self.width + parents
        return {**rows, **changes}, take_rows(state, ops.reshape(state_rows, (-1,)))

    def variables(self, batch: Any) -> Rows:
        """Returns the initial variables of each sentence that `finished` reads."""
        return {}

    def updated_variables(self, rows: Rows, finished: Any, closed: Any) -> Rows:
        """Returns these variables after a step.

        Args:
            rows: The variables before the step.
            finished: Which sentences were finished before the step, boolean [B].
            closed: Which of the 2K best extensions have ended a hypothesis, boolean [B, 2K].
        """
        return {}
