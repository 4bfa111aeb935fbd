"""Constraints on sequences, and the log probabilities of sequences."""

import dataclasses
import functools
from typing import Any

from keras import ops

from zoo.row_selection import take, take_per_row

LOWEST = -1e30  # logit of a token that must not be chosen


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The special ids for decoding.

    Args:
        start: First token of every sequence; never generated.
        end: Last token of a sequence.
        pad: The padding after the end of a row; never generated.
        other_ends: Further tokens that end a sequence; they are replaced by `end`.
    """

    start: int
    end: int
    pad: int
    other_ends: tuple[int, ...] = ()

    def are_ends(self, tokens: Any) -> Any:
        """Returns which tokens end a sequence, boolean."""
        return functools.reduce(ops.logical_or, [ops.equal(tokens, end) for end in (self.end, *self.other_ends)])

    def with_one_end(self, tokens: Any, ends: Any) -> Any:
        """Returns tokens with `end` in place of those that end a sequence, which `ends` marks."""
        return ops.where(ends, self.end, tokens) if self.other_ends else tokens


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Constraints on the sequences of a batch.

    Args:
        special: The special ids.
        max_lengths: Maximum number of tokens of each row, including the prompt and the end, int32 [B].
        capacity: Capacity of the result in tokens, at least all of `max_lengths`; an integer or a scalar tensor.
        prompt: The tokens with which rows begin, int32 [B, P], padded at the end, P at least 1; or `None`.
        no_repeat_ngram: Size of n-grams, including the prompt's, none of which occurs twice; 0 allows repetitions.
        num_begun: Number of tokens of the prompts that rows contain before the first step, an integer or an int32
            scalar, at most the length of the shortest prompt and the smallest of `max_lengths`. The initial state must
            contain all tokens before the last one of these. With 0, rows begin with the start token; beam search
            requires 0.
        min_length: Minimum number of tokens before the end, including the prompt; at most `max_lengths`.
        forces_end: Whether the last token of a row of maximum length is the end, unless it belongs to the prompt. Its
            log probability is then not counted.

    Reference:
        Paulus et al. 2018, "A Deep Reinforced Model for Abstractive Summarization", section 2.5 (no trigram twice),
        https://arxiv.org/abs/1705.04304
    """

    special: SpecialIds
    max_lengths: Any
    capacity: Any
    prompt: Any = None
    no_repeat_ngram: int = 0
    num_begun: Any = 0
    min_length: int = 0
    forces_end: bool = False

    @property
    def room(self) -> Any:
        """The former name of `capacity`."""
        return self.capacity

    def by_row(self) -> dict[str, Any]:
        """Returns the constraints of each row, tensors with the batch axis first."""
        rows = {"max_length": self.max_lengths}
        if self.prompt is not None:
            batch, length = ops.shape(self.prompt)
            missing = self.capacity - length
            missing = max(missing, 0) if isinstance(missing, int) else ops.maximum(missing, 0)
            padding = ops.full((batch, missing), self.special.pad, dtype=self.prompt.dtype)
            rows["prompt"] = ops.concatenate([self.prompt, padding], axis=1)  # one column per step
            rows["prompt_length"] = ops.sum(ops.cast(ops.not_equal(self.prompt, self.special.pad), "int32"), axis=1)
        return rows

    def prompt_tokens(self, rows: dict[str, Any], index: Any) -> tuple[Any, Any]:
        """Returns the prompts' tokens at `index`, [B], and which rows (of `by_row`) have one, boolean [B].

        If `index` is [B, T], so are the results.
        """
        if isinstance(index, int) or len(index.shape) < 2:
            return take(rows["prompt"], index, axis=1), self.in_prompt(rows, index)
        return take_per_row(rows["prompt"], ops.minimum(index, self.capacity - 1)), self.in_prompt(rows, index)

    def in_prompt(self, rows: dict[str, Any], index: Any) -> Any:
        """Returns which rows (of `by_row`) have a token of the prompt at `index`, boolean [B]."""
        return index < rows["prompt_length"]

    def must_end(self, rows: dict[str, Any], index: Any) -> Any:
        """Returns which rows (of `by_row`) must end at `index`, boolean [B]."""
        last = index + 1 >= rows["max_length"]
        if self.prompt is None:
            return last
        return ops.logical_and(last, ops.logical_not(self.in_prompt(rows, index)))

    def without_early_end(self, logits: Any, index: Any) -> Any:
        """Returns logits [R, V] of the tokens at `index`, in which ends are `LOWEST` before `min_length`."""
        if not self.min_length:
            return logits
        is_early = ops.logical_and(self.special.are_ends(ops.arange(logits.shape[-1])), index < self.min_length)
        return ops.add(ops.cast(logits, "float32"), ops.where(is_early, LOWEST, 0.0))

    def without_repeats(self, logits: Any, ids: Any, index: Any) -> Any:
        """Returns logits [R, V] of the tokens at `index`, `LOWEST` where they repeat an n-gram of `ids` [R, L]."""
        size = self.no_repeat_ngram
        if not size:
            return logits
        num_rows, length = ops.shape(ids)
        starts = length - size + 1  # number of positions at which n-grams may start
        starts = max(starts, 0) if isinstance(starts, int) else ops.maximum(starts, 0)
        matches = ops.broadcast_to((ops.arange(starts) + size - 1 < index)[None], (num_rows, starts))
        for offset in range(size - 1):
            last = take(ids, ops.maximum(index - size + 1 + offset, 0), axis=1)
            matches = ops.logical_and(matches, ops.equal(ids[:, offset : offset + starts], last[:, None]))
        # The banned tokens, or padding, which is always banned.
        banned = ops.where(matches, ids[:, size - 1 :], self.special.pad)
        rows = ops.broadcast_to(ops.arange(num_rows, dtype="int32")[:, None], (num_rows, starts))
        indices = ops.reshape(ops.stack([rows, banned], axis=-1), (-1, 2))
        return ops.scatter_update(logits, indices, ops.full((num_rows * starts,), LOWEST, dtype=logits.dtype))


def ban_special(logits: Any, special: SpecialIds) -> Any:
    """Returns float32 logits [..., V] in which start and padding are `LOWEST`."""
    places = ops.convert_to_tensor([[special.start], [special.pad]], "int32")
    banned = ops.scatter(places, ops.convert_to_tensor([LOWEST, LOWEST], "float32"), (logits.shape[-1],))
    # Compilers fuse adding a vector with the matrix product of the logits; `where` would be an additional pass.
    return ops.add(ops.cast(logits, "float32"), banned)


def sequence_log_prob(logits: Any, ids: Any, special: SpecialIds) -> Any:
    """Returns the log probability of padded ids [B, T] from logits [B, T, V] under teacher forcing, float32 [B]."""
    return ops.sum(_log_probs_of(ids, _log_probs(logits, special), special), axis=1)


def token_log_probs(logits: Any, ids: Any, special: SpecialIds, alternatives: int) -> dict[str, Any]:
    """Returns the log probability of each of the padded ids [B, T], and the most probable ids at each position.

    Args:
        logits: Logits [B, T, V] under teacher forcing.
        ids: Ids, int32 [B, T].
        special: The special ids.
        alternatives: Number of alternatives, K; at most V.

    Returns:
        Dict with `log_probs` [B, T], float32, 0 for padding; and the K most probable ids and their log probabilities,
        most probable first: `alternatives` [B, T, K], int32, and `alternative_log_probs` [B, T, K], float32. At
        padding, these are padding and 0.
    """
    log_probs = _log_probs(logits, special)
    values, tokens = ops.top_k(log_probs, min(alternatives, log_probs.shape[-1]))
    is_real = ops.expand_dims(ops.not_equal(ids, special.pad), -1)
    return {
        "log_probs": _log_probs_of(ids, log_probs, special),
        "alternatives": ops.where(is_real, ops.cast(tokens, "int32"), special.pad),
        "alternative_log_probs": ops.where(is_real, values, 0.0),
    }


def _log_probs(logits: Any, special: SpecialIds) -> Any:
    return ops.log_softmax(ban_special(logits, special), axis=-1)


def _log_probs_of(ids: Any, log_probs: Any, special: SpecialIds) -> Any:
    """Selects the log probabilities [B, T] of ids from those of all tokens, [B, T, V]; 0 for padding."""
    chosen = ops.take_along_axis(log_probs, ops.expand_dims(ids, -1), axis=-1)[..., 0]
    return ops.where(ops.not_equal(ids, special.pad), chosen, 0.0)
