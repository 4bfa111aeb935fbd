"""What sequences may look like, and how probable they are."""

import dataclasses
import functools
from typing import Any

from keras import ops

from zoo.row_selection import take

LOWEST = -1e30  # logit of what must not be chosen


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The ids that decoding has to know.

    Args:
        start: First symbol of every sequence; never produced.
        end: Last symbol of a sequence.
        pad: What fills a row after its end; never produced.
        other_ends: Further symbols that end a sequence; they are written as `end`.
    """

    start: int
    end: int
    pad: int
    other_ends: tuple[int, ...] = ()

    def are_ends(self, symbols: Any) -> Any:
        """Returns which symbols end a sequence, boolean."""
        return functools.reduce(ops.logical_or, [ops.equal(symbols, each) for each in (self.end, *self.other_ends)])

    def with_one_end(self, symbols: Any, ends: Any) -> Any:
        """Returns symbols with `end` where one of them ends a sequence."""
        return ops.where(ends, self.end, symbols) if self.other_ends else symbols


@dataclasses.dataclass(frozen=True)
class Constraints:
    """What the sequences of a batch may look like.

    Args:
        special: The special ids.
        max_lengths: Largest number of symbols of each row, including the prompt and the end, int32 [B].
        room: Largest of them, an integer or a scalar tensor: the width of the result.
        prompt: What rows begin with, int32 [B, P], padded at the end, P at least 1; or `None`.
        no_repeat_ngram: No sequence of n symbols occurs twice, including the prompt's; 0 for no such constraint.
        begins_with_prompt: Whether the first symbol of each prompt takes the place of the start symbol; no row's prompt
            is then empty. Beam search always begins with the start symbol.
        min_length: How many symbols, the prompt's included, come before the end at least; at most `max_lengths`.
        forces_end: Whether the last symbol that a row has room for is the end, unless it is the prompt's. It takes
            nothing from the log probability.

    Reference:
        Paulus et al. 2018, "A Deep Reinforced Model for Abstractive Summarization", section 2.5 (no trigram twice),
        https://arxiv.org/abs/1705.04304
    """

    special: SpecialIds
    max_lengths: Any
    room: Any
    prompt: Any = None
    no_repeat_ngram: int = 0
    begins_with_prompt: bool = False
    min_length: int = 0
    forces_end: bool = False

    def by_row(self) -> dict[str, Any]:
        """Returns the constraints of each row, tensors with the batch first."""
        rows = {"max_length": self.max_lengths}
        if self.prompt is not None:
            batch, length = ops.shape(self.prompt)
            missing = self.room - length
            missing = max(missing, 0) if isinstance(missing, int) else ops.maximum(missing, 0)
            padding = ops.full((batch, missing), self.special.pad, dtype=self.prompt.dtype)
            rows["prompt"] = ops.concatenate([self.prompt, padding], axis=1)  # a column for each step
            rows["prompt_length"] = ops.sum(ops.cast(ops.not_equal(self.prompt, self.special.pad), "int32"), axis=1)
        return rows

    def prompt_symbols(self, rows: dict[str, Any], index: Any) -> tuple[Any, Any]:
        """Returns the prompt's symbols at `index`, [B], and which rows (of `by_row`) have one there, boolean [B]."""
        return take(rows["prompt"], index, axis=1), index < rows["prompt_length"]

    @property
    def changes_choice(self) -> bool:
        """Whether another symbol than the most probable one may be the one to take."""
        return bool(self.no_repeat_ngram) or self.prompt is not None or self.forces_end

    def must_end(self, rows: dict[str, Any], index: Any) -> Any:
        """Returns which rows (of `by_row`) are made to end at `index`, boolean [B]."""
        last = index + 1 >= rows["max_length"]
        if self.prompt is None:
            return last
        return ops.logical_and(last, ops.logical_not(self.prompt_symbols(rows, index)[1]))

    def without_early_end(self, logits: Any, index: Any) -> Any:
        """Returns logits [R, V] of the symbols at `index`, that of the end at `LOWEST` where it would be too early."""
        if not self.min_length:
            return logits
        is_early = ops.logical_and(self.special.are_ends(ops.arange(logits.shape[-1])), index < self.min_length)
        return ops.add(ops.cast(logits, "float32"), ops.where(is_early, LOWEST, 0.0))

    def without_repeats(self, logits: Any, ids: Any, index: Any) -> Any:
        """Returns logits [R, V] of the symbols at `index`, `LOWEST` where they repeat an n-gram of `ids` [R, room]."""
        size = self.no_repeat_ngram
        if not size:
            return logits
        num_rows, room = ops.shape(ids)
        starts = room - size + 1  # of possible n-grams; none, if there is no room for one
        starts = max(starts, 0) if isinstance(starts, int) else ops.maximum(starts, 0)
        matches = ops.broadcast_to((ops.arange(starts) + size - 1 < index)[None], (num_rows, starts))
        for offset in range(size - 1):
            last = ops.take(ids, ops.maximum(index - size + 1 + offset, 0), axis=1)
            matches = ops.logical_and(matches, ops.equal(ids[:, offset : offset + starts], last[:, None]))
        # The symbols that must not follow; elsewhere padding, which never does.
        banned = ops.where(matches, ids[:, size - 1 :], self.special.pad)
        rows = ops.broadcast_to(ops.arange(num_rows, dtype="int32")[:, None], (num_rows, starts))
        indices = ops.reshape(ops.stack([rows, banned], axis=-1), (-1, 2))
        return ops.scatter_update(logits, indices, ops.full((num_rows * starts,), LOWEST, dtype=logits.dtype))


def ban_special(logits: Any, special: SpecialIds) -> Any:
    """Returns float32 logits [..., V] with those of start and padding at `LOWEST`."""
    banned = ops.scatter([[special.start], [special.pad]], [LOWEST, LOWEST], (logits.shape[-1],))
    # Adding a vector is fused with the product that the logits come from; a selection would be one more pass.
    return ops.add(ops.cast(logits, "float32"), banned)


def sequence_log_prob(logits: Any, ids: Any, special: SpecialIds) -> Any:
    """Returns the log probability of padded ids [B, T] from logits [B, T, V] under teacher forcing, float32 [B]."""
    return ops.sum(_log_probs_of(ids, _log_probs(logits, special), special), axis=1)


def symbol_log_probs(logits: Any, ids: Any, special: SpecialIds, alternatives: int) -> dict[str, Any]:
    """Returns how probable each symbol of padded ids [B, T] is, and what is most probable in its place.

    Args:
        logits: [B, T, V], under teacher forcing.
        ids: int32 [B, T].
        special: The special ids.
        alternatives: How many, K; at most all V.

    Returns:
        Dict with `log_probs` [B, T], float32, 0 for padding; and, most probable first, the ids of the K symbols and
        their log probabilities, `alternatives` [B, T, K], int32, and `alternative_log_probs` [B, T, K], float32;
        those of padding are padding, with 0.
    """
    log_probs = _log_probs(logits, special)
    values, symbols = ops.top_k(log_probs, min(alternatives, log_probs.shape[-1]))
    is_real = ops.expand_dims(ops.not_equal(ids, special.pad), -1)
    return {
        "log_probs": _log_probs_of(ids, log_probs, special),
        "alternatives": ops.where(is_real, ops.cast(symbols, "int32"), special.pad),
        "alternative_log_probs": ops.where(is_real, values, 0.0),
    }


def _log_probs(logits: Any, special: SpecialIds) -> Any:
    return ops.log_softmax(ban_special(logits, special), axis=-1)


def _log_probs_of(ids: Any, log_probs: Any, special: SpecialIds) -> Any:
    """Returns the log probabilities [B, T] of ids among those of all symbols, [B, T, V]; 0 for padding."""
    chosen = ops.take_along_axis(log_probs, ops.expand_dims(ids, -1), axis=-1)[..., 0]
    return ops.where(ops.not_equal(ids, special.pad), chosen, 0.0)
