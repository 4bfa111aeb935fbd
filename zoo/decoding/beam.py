"""Beam search."""

from keras import ops

from zoo.decoding.constraints import LOWEST, allowed
from zoo.decoding.search import Search
from zoo.decoding.top_k import log_total, top_k
from zoo.row_selection import take_from_rows, take_rows

# Attention that a source symbol has got counts as at least this much: the logarithm of zero is no number.
LEAST_COVERAGE = 1e-10


def length_penalty(length, alpha):
    """Returns GNMT's length penalty `((5 + length) / 6)^alpha` (Wu et al. 2016, section 7, equation 14).

    Args:
        length: Number of symbols, the end included.
        alpha: Exponent, ≥ 0; 0 compares plain log probabilities.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def coverage_penalty(coverage, mask, beta):
    """Returns GNMT's coverage penalty `beta · Σ_i log(min(coverage_i, 1))` ≤ 0 (Wu et al. 2016, equation 14).

    Args:
        coverage: Sum of the attention that each source symbol has got, [..., S].
        mask: Which of them are real, boolean, broadcasts to [..., S].
        beta: Factor, ≥ 0.
    """
    got = ops.clip(ops.cast(coverage, "float32"), LEAST_COVERAGE, 1.0)
    return beta * ops.sum(ops.where(mask, ops.log(got), 0.0), axis=-1)


class _Beam(Search):
    """One beam search.

    Args:
        alpha: Exponent of the length penalty.
        beta: Factor of the coverage penalty.
        source_mask: Which source symbols are real, [B, S]; or `None` without coverage penalty.
        nbest: How many hypotheses of each sentence are kept when they end.
        others: See `Search`.
    """

    results = ("done_ids", "done_scores", "done_log_probs")

    def __init__(self, alpha, beta, source_mask, nbest, *others):
        super().__init__(*others)
        self.alpha, self.beta, self.source_mask, self.nbest = alpha, beta, source_mask, nbest

    def first_rows(self, batch):
        size, room = self.width, self.rules.room
        # All beams start equal: only the first one counts, or every hypothesis would come K times.
        first = ops.where(ops.arange(size) == 0, 0.0, LOWEST)
        lowest = ops.full((batch, self.nbest), LOWEST, dtype="float32")
        rows = {
            "live_ids": ops.full((batch, size, room), self.symbols.pad, dtype="int32"),
            "live_scores": ops.zeros((batch, size), dtype="float32") + first,
            "last": ops.full((batch, size), self.symbols.start, dtype="int32"),
            "done_ids": ops.full((batch, self.nbest, room), self.symbols.pad, dtype="int32"),
            "done_scores": lowest,  # with both penalties
            "done_log_probs": lowest,
        }
        if self.source_mask is not None:
            source = ops.cast(self.source_mask, "float32")[:, None]
            rows |= {"source_mask": self.source_mask, "coverage": ops.repeat(source * 0.0, size, axis=1)}
        return rows

    def ended(self, index, rows):
        """Returns which sentences [B] can no longer change.

        Log probabilities only fall, the length penalty only grows and the coverage penalty is never above 0: a live
        hypothesis cannot end above its present log probability under the largest length penalty.
        """
        bound = rows["live_scores"][:, 0] / length_penalty(rows["limit"], self.alpha)
        worst = rows["done_scores"][:, -1]  # they are sorted
        return ops.logical_or(index >= rows["limit"], worst >= bound)

    def extensions(self, index, rows, logits):
        """Returns log probabilities, parents and symbols of the 2K best extensions of each sentence, [B, 2K].

        At most K of them end, so that K can go on.
        """
        size, batch = self.width, ops.shape(rows["limit"])[0]
        each = min(2 * size, logits.shape[-1])  # no more than that of one beam can be among them
        logits = allowed(logits, self.symbols)
        best, symbols = top_k(logits, each)
        # The first column is the largest; but XLA sorts all the logits where a part of what `top_k` found is taken.
        total = log_total(logits, ops.max(best, axis=-1))
        if self.rules.no_repeat_ngram:
            history = ops.reshape(rows["live_ids"], (batch * size, -1))
            best, symbols = top_k(self.rules.without_repeats(logits, history, index), each)
        gains = ops.reshape(best - total[:, None], (batch, size, each))
        symbols = ops.reshape(ops.cast(symbols, "int32"), (batch, size, each))
        if self.rules.prompt is not None:
            gains, symbols = self._prescribe(index, rows, gains, symbols)
        scores = ops.reshape(rows["live_scores"][:, :, None] + gains, (batch, size * each))
        scores, places = ops.top_k(scores, 2 * size)
        places = ops.cast(places, "int32")
        return scores, places // each, take_from_rows(ops.reshape(symbols, (batch, size * each)), places)

    def _prescribe(self, index, rows, gains, symbols):
        """Returns gains and symbols with the prompt's symbol as the only extension where there is one."""
        column, given = self.rules.prescribed(rows, index)
        given = given[:, None, None]
        only = ops.where(ops.arange(gains.shape[-1]) == 0, 0.0, LOWEST)
        return ops.where(given, only, gains), ops.where(given, column[:, None, None], symbols)

    def advance(self, index, rows, state, memory):
        logits, *attention, state = self.step(ops.reshape(rows["last"], (-1,)), state, memory)
        scores, parents, chosen = self.extensions(index, rows, logits)
        settled = self.ended(index, rows)[:, None]
        length = index + 1
        ids = ops.where(ops.equal(self.columns, index), chosen[:, :, None], take_from_rows(rows["live_ids"], parents))
        ends = ops.equal(chosen, self.symbols.end)
        if self.rules.prompt is not None:
            ends = ops.logical_and(ends, ops.logical_not(self.rules.prescribed(rows, index)[1])[:, None])
        # At its maximal length a hypothesis is closed as it is.
        closed = ops.logical_or(ends, (length >= rows["limit"])[:, None])
        final = ops.where(ops.logical_and(closed, ops.logical_not(settled)), scores, LOWEST)
        ranked = final / length_penalty(length, self.alpha)
        if attention:
            coverage = rows["coverage"] + ops.reshape(ops.cast(attention[0], "float32"), ops.shape(rows["coverage"]))
            coverage = take_from_rows(coverage, parents)
            ranked = ranked + coverage_penalty(coverage, rows["source_mask"][:, None], self.beta)
        done_scores, keep = ops.top_k(ops.concatenate([rows["done_scores"], ranked], axis=1), self.nbest)
        keep = ops.cast(keep, "int32")
        new = {
            "done_scores": done_scores,
            "done_ids": take_from_rows(ops.concatenate([rows["done_ids"], ids], axis=1), keep),
            "done_log_probs": take_from_rows(ops.concatenate([rows["done_log_probs"], final], axis=1), keep),
        }
        new["live_scores"], keep = ops.top_k(ops.where(ends, LOWEST, scores), self.width)
        keep = ops.cast(keep, "int32")
        parents = take_from_rows(parents, keep)
        new |= {"live_ids": take_from_rows(ids, keep), "last": take_from_rows(chosen, keep)}
        new |= {"coverage": take_from_rows(coverage, keep)} if attention else {}
        numbers = ops.arange(ops.shape(parents)[0], dtype="int32")[:, None] * self.width + parents
        return {**rows, **new}, take_rows(state, ops.reshape(numbers, (-1,)))


def beam_search(
    step, state, rules, beam_size, alpha=0.6, memory=None, beta=0.0, source_mask=None, resizes=None, nbest=None
):
    """Keeps the `beam_size` best hypotheses at every step.

    Those that have ended are ranked by `log P / length_penalty(length, alpha) + coverage_penalty(coverage, beta)`.
    Search ends for a sentence when no live hypothesis can beat the worst of the `nbest` best finished ones.

    Args:
        step: The step function, on B · `beam_size` rows, those of one sentence adjacent; with a `source_mask` it
            returns `(logits, attention [B · beam_size, S], state)`.
        state: Its state before the first step, with that many rows.
        rules: The `Rules`.
        beam_size: Number of hypotheses K, at least 1 and at most half the vocabulary.
        alpha: Exponent of the length penalty, ≥ 0.
        memory: See `greedy_search`.
        beta: Factor of the coverage penalty, ≥ 0.
        source_mask: Which source symbols are real, boolean [B, S]; `None` for no coverage penalty.
        resizes: See `greedy_search`.
        nbest: How many hypotheses N are wanted, 1 to K; the fewer, the sooner search ends. Default: K.

    Returns:
        Ids [B, N, room] and the float32 sum of the log probabilities [B, N] of what follows the prompt, best first by
        that rank. Where there are fewer than N sequences, the rest has log probabilities below −1e29.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, https://arxiv.org/abs/1609.08144
    """
    found = _Beam(alpha, beta, source_mask, nbest or beam_size, step, rules, resizes, beam_size).run(
        state, memory or {}
    )
    return found["done_ids"], found["done_log_probs"]
