"""Decoding: turns a step function into sequences. Knows no model.

A step function is `step(last, state) -> (logits, state)`: `last` [R] are the last symbols of R rows, `logits` [R, V]
score the next ones, and `state` is a nested structure of tensors whose first axis is R (scalars are left alone).
Everything here runs eagerly, in a TensorFlow graph and under JAX's jit.
"""

from dataclasses import dataclass

import keras
from keras import ops

LOWEST = -1e30


@dataclass(frozen=True)
class Symbols:
    """The ids that decoding has to know.

    Args:
        start: What every sequence starts with; never produced.
        end: What ends a sequence.
        pad: What fills a row behind its end; never produced.
    """

    start: int
    end: int
    pad: int


def _log_probabilities(logits, symbols):
    """Returns float32 log probabilities [R, V] with start and padding ruled out."""
    ids = ops.arange(logits.shape[-1])
    banned = ops.logical_or(ops.equal(ids, symbols.start), ops.equal(ids, symbols.pad))
    return ops.log_softmax(ops.where(banned, LOWEST, ops.cast(logits, "float32")), axis=-1)


def _one_by_one(step, state, max_lengths, room, symbols, choose, prompt=None):
    """Returns ids [B, room] and the log probability [B] of what was chosen, one symbol after another.

    Args:
        step: The step function.
        state: Its state before the first step.
        max_lengths: Largest number of symbols of each row, int32 [B].
        room: Largest of them, an integer or a scalar tensor.
        symbols: The special ids.
        choose: `choose(log_probs [B, V], index) → symbols [B]`.
        prompt: What rows begin with, int32 [B, P], padded; these symbols are taken instead of chosen ones.
    """
    batch = ops.shape(max_lengths)[0]
    columns = ops.arange(room)
    lengths = 0 if prompt is None else ops.sum(ops.cast(ops.not_equal(prompt, symbols.pad), "int32"), axis=1)

    def going(index, ids, last, finished, log_prob, state):
        return ops.logical_and(index < room, ops.logical_not(ops.all(finished)))

    def body(index, ids, last, finished, log_prob, state):
        logits, state = step(last, state)
        log_probs = _log_probabilities(logits, symbols)
        chosen = ops.cast(choose(log_probs, index), "int32")
        given = index < lengths
        if prompt is not None:
            column = ops.take(prompt, ops.minimum(index, ops.shape(prompt)[1] - 1), axis=1)
            chosen = ops.where(given, column, chosen)
        gained = ops.take_along_axis(log_probs, chosen[:, None], axis=1)[:, 0]
        log_prob = ops.where(ops.logical_or(finished, given), log_prob, log_prob + gained)
        chosen = ops.where(finished, symbols.pad, chosen)
        ids = ops.where(ops.equal(columns, index), chosen[:, None], ids)
        ends = ops.logical_and(ops.equal(chosen, symbols.end), ops.logical_not(given))
        finished = ops.logical_or(finished, ops.logical_or(ends, index + 1 >= max_lengths))
        return index + 1, ids, chosen, finished, log_prob, state

    first = (
        ops.zeros((), dtype="int32"),
        ops.full((batch, room), symbols.pad, dtype="int32"),
        ops.full((batch,), symbols.start, dtype="int32"),
        max_lengths <= 0,
        ops.zeros((batch,), dtype="float32"),
        state,
    )
    _, ids, _, _, log_prob, _ = ops.while_loop(going, body, first)
    return ids, log_prob


def greedy_search(step, state, max_lengths, room, symbols, prompt=None):
    """Takes the most probable symbol at every step.

    Args:
        step: The step function.
        state: Its state before the first step.
        max_lengths: Largest number of symbols of each row, the prompt and the end included, int32 [B].
        room: Largest of them, an integer or a scalar tensor: the width of the result.
        symbols: The special ids.
        prompt: What rows begin with, int32 [B, P], padded behind; P is at least 1.

    Returns:
        Ids [B, room], with the prompt, the end symbol (where it was reached) and then padding, and the float32 sum of
        the log probabilities [B] of what follows the prompt.
    """
    return _one_by_one(step, state, max_lengths, room, symbols, lambda scores, _: ops.argmax(scores, axis=-1), prompt)


def sample(step, state, max_lengths, room, symbols, seeds, rows, temperature=1.0, top_k=0, top_p=1.0, prompt=None):
    """Draws each symbol from the model's distribution, sharpened and cut.

    The draw of a step depends on the row's seed and number and on the step alone: the same on every backend, in
    whatever batch the row stands.

    Args:
        step: The step function.
        state: Its state before the first step.
        max_lengths: See `greedy_search`.
        room: See `greedy_search`.
        symbols: The special ids.
        seeds: Seed of each row, int32 [B].
        rows: Number of each row, int32 [B], so that equal rows with one seed differ.
        temperature: Divides the log probabilities, > 0; a number or a scalar tensor.
        top_k: How many of the most probable symbols may be drawn, an integer; 0 for all.
        top_p: The fewest symbols may be drawn that together have this probability, in (0, 1]; a number or a scalar
            tensor.
        prompt: See `greedy_search`.

    Returns:
        See `greedy_search`; log probabilities are those at temperature 1 with nothing cut.

    Reference:
        Fan et al. 2018 (top-k), section 5.4, https://arxiv.org/abs/1805.04833;
        Holtzman et al. 2020 (top-p), section 3.1, https://arxiv.org/abs/1904.09751
    """

    def choose(log_probs, index):
        size = log_probs.shape[-1]
        kept = min(top_k, size) if top_k else size
        scores, ids = ops.top_k(log_probs / temperature, kept)
        # A softmax of scores in falling order; Keras' own warns where one score is left.
        probabilities = ops.exp(scores - scores[:, :1])
        probabilities = probabilities / ops.sum(probabilities, axis=-1, keepdims=True)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        probabilities = ops.where(before < top_p, probabilities, 0.0)
        sums = ops.cumsum(probabilities, axis=-1)
        drawn = uniform(seeds, rows, index)[:, None] * sums[:, -1:]
        rank = ops.sum(ops.cast(sums <= drawn, "int32"), axis=-1)
        # Rounding may lead behind the last symbol that is left.
        rank = ops.minimum(rank, ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1)
        return ops.take_along_axis(ids, rank[:, None], axis=1)[:, 0]

    return _one_by_one(step, state, max_lengths, room, symbols, choose, prompt)


def _logical_right_shift(x, bits):
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def _mix(x):
    """Returns well-mixed bits of int32 numbers: two rounds of shift, xor and multiply with odd constants."""
    for bits, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = ops.bitwise_xor(x, _logical_right_shift(x, bits)) * factor
    return ops.bitwise_xor(x, _logical_right_shift(x, 15))


def uniform(*numbers):
    """Returns a number in [0, 1) that depends on the given ones alone, as if drawn at random.

    Args:
        *numbers: int32 numbers or tensors that broadcast.
    """
    state = ops.convert_to_tensor(0, "int32")
    for number in numbers:
        state = _mix(ops.bitwise_xor(state, ops.cast(number, "int32")) + 0x1E3779B9)
    return ops.cast(_logical_right_shift(state, 8), "float32") / (1 << 24)


def length_penalty(length, alpha):
    """Returns GNMT's length penalty `((5 + length) / 6)^alpha` (Wu et al. 2016, section 7, equation 14).

    Args:
        length: Number of symbols, the end included.
        alpha: Exponent, ≥ 0; 0 compares plain log probabilities.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def repeat_rows(nested, times):
    """Returns the nested tensors with every row repeated `times` times in place; scalars are left alone."""
    return keras.tree.map_structure(lambda x: ops.repeat(x, times, axis=0) if len(x.shape) else x, nested)


def _take_rows(nested, rows):
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0) if len(x.shape) else x, nested)


def _take_beams(values, beams):
    """Returns, for values [B, M, ...] and beams [B, K], the selected values [B, K, ...]."""
    beams = ops.reshape(beams, (*ops.shape(beams), *(1 for _ in values.shape[2:])))
    return ops.take_along_axis(values, beams, axis=1)


class _Beam:
    """One beam search: its constants, and the steps that map its loop variables to the next ones."""

    def __init__(self, step, max_lengths, room, symbols, beam_size, alpha):
        self.step, self.symbols, self.size, self.alpha = step, symbols, beam_size, alpha
        self.max_lengths, self.room = max_lengths, room
        self.batch = ops.shape(max_lengths)[0]
        self.columns = ops.arange(room)

    def start(self, state):
        empty = ops.full((self.batch, self.size, self.room), self.symbols.pad, dtype="int32")
        # All beams start equal: only the first one counts, or every hypothesis would come K times.
        first = ops.where(ops.arange(self.size) == 0, 0.0, LOWEST)
        lowest = ops.full((self.batch, self.size), LOWEST, dtype="float32")
        return {
            "index": ops.zeros((), dtype="int32"),
            "live_ids": empty,
            "live_scores": lowest * 0.0 + first,
            "last": ops.full((self.batch * self.size,), self.symbols.start, dtype="int32"),
            "done_ids": empty,
            "done_scores": lowest,  # divided by the length penalty
            "state": state,
        }

    def settled(self, loop):
        """Returns which rows [B] can no longer change.

        Log probabilities only fall and the penalty only grows, so a live hypothesis cannot end above its present
        score under the largest penalty.
        """
        bound = loop["live_scores"][:, 0] / length_penalty(self.max_lengths, self.alpha)
        worst = loop["done_scores"][:, -1]  # they are sorted
        return ops.logical_or(loop["index"] >= self.max_lengths, worst >= bound)

    def going(self, loop):
        return ops.logical_not(ops.all(self.settled(loop)))

    def candidates(self, loop):
        """Returns scores, ids, parents and symbols of the 2K best extensions: K of them do not end."""
        logits, state = self.step(loop["last"], loop["state"])
        vocabulary = logits.shape[-1]
        log_probs = ops.reshape(_log_probabilities(logits, self.symbols), (self.batch, self.size, vocabulary))
        scores = ops.reshape(loop["live_scores"][:, :, None] + log_probs, (self.batch, self.size * vocabulary))
        scores, flat = ops.top_k(scores, 2 * self.size)
        flat = ops.cast(flat, "int32")
        parents, chosen = flat // vocabulary, flat % vocabulary
        ids = ops.where(
            ops.equal(self.columns, loop["index"]), chosen[:, :, None], _take_beams(loop["live_ids"], parents)
        )
        return scores, ids, parents, chosen, state

    def advance(self, loop):
        scores, ids, parents, chosen, state = self.candidates(loop)
        settled = self.settled(loop)[:, None]
        length = loop["index"] + 1
        ends = ops.equal(chosen, self.symbols.end)
        # At its maximal length a hypothesis is closed as it is.
        closed = ops.logical_or(ends, (length >= self.max_lengths)[:, None])
        done = ops.where(
            ops.logical_and(closed, ops.logical_not(settled)), scores / length_penalty(length, self.alpha), LOWEST
        )
        done_scores, keep = ops.top_k(ops.concatenate([loop["done_scores"], done], axis=1), self.size)
        done_ids = _take_beams(ops.concatenate([loop["done_ids"], ids], axis=1), ops.cast(keep, "int32"))
        live_scores, keep = ops.top_k(ops.where(ends, LOWEST, scores), self.size)
        keep = ops.cast(keep, "int32")
        rows = ops.arange(self.batch)[:, None] * self.size + ops.take_along_axis(parents, keep, axis=1)
        return {
            "index": length,
            "live_ids": _take_beams(ids, keep),
            "live_scores": live_scores,
            "last": ops.reshape(ops.take_along_axis(chosen, keep, axis=1), (-1,)),
            "done_ids": done_ids,
            "done_scores": done_scores,
            "state": _take_rows(state, ops.reshape(rows, (-1,))),
        }


def beam_search(step, state, max_lengths, room, symbols, beam_size, alpha=0.6):
    """Keeps the `beam_size` best hypotheses at every step.

    Search ends for a row when no live hypothesis can beat the worst of `beam_size` finished ones.

    Args:
        step: The step function, on B · `beam_size` rows, those of one batch row adjacent (see `repeat_rows`).
        state: Its state before the first step, with that many rows.
        max_lengths: Largest number of symbols of each row, the end included, int32 [B].
        room: Largest of them: the width of the result.
        symbols: The special ids.
        beam_size: Number of hypotheses K, at least 1 and at most half the vocabulary.
        alpha: Exponent of the length penalty.

    Returns:
        Ids [B, K, room] and the float32 sum of their log probabilities [B, K], best first by penalised score.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, https://arxiv.org/abs/1609.08144
    """
    beam = _Beam(step, max_lengths, room, symbols, beam_size, alpha)
    names = tuple(first := beam.start(state))

    def unpack(function):
        return lambda *values: function(dict(zip(names, values, strict=True)))

    def body(*values):
        advanced = unpack(beam.advance)(*values)
        return tuple(advanced[name] for name in names)

    last = dict(zip(names, ops.while_loop(unpack(beam.going), body, tuple(first.values())), strict=True))
    lengths = ops.sum(ops.cast(ops.not_equal(last["done_ids"], symbols.pad), "int32"), axis=-1)
    return last["done_ids"], last["done_scores"] * length_penalty(lengths, alpha)
