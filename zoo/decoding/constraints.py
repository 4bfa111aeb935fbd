"""What sequences may look like, and how probable they are."""

import dataclasses
from typing import Any

from keras import ops

LOWEST = -1e30


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the sequences of a batch may look like.

    Args:
        symbols: The special ids.
        max_lengths: Largest number of symbols of each row, the prompt and the end included, int32 [B].
        room: Largest of them, an integer or a scalar tensor: the width of the result.
        prompt: What rows begin with, int32 [B, P], padded behind, P at least 1; or `None`.
        no_repeat_ngram: No n symbols in a row come twice, the prompt's included; 0 for no such rule.

    Reference:
        Paulus et al. 2018, "A Deep Reinforced Model for Abstractive Summarization", section 2.5 (no trigram twice),
        https://arxiv.org/abs/1705.04304
    """

    symbols: Symbols
    max_lengths: Any
    room: Any
    prompt: Any = None
    no_repeat_ngram: int = 0

    def rows(self):
        """Returns what the rules know of each row, a dict of tensors."""
        rows = {"limit": self.max_lengths}
        if self.prompt is not None:
            rows["prompt"] = self.prompt
            rows["prompt_length"] = ops.sum(ops.cast(ops.not_equal(self.prompt, self.symbols.pad), "int32"), axis=1)
        return rows

    def prescribed(self, rows, index):
        """Returns the prompt's symbols at a place, [B], and whether a row has one there, [B].

        Args:
            rows: From `rows`.
            index: The place, int32 scalar.
        """
        prompt = rows["prompt"]
        column = ops.take(prompt, ops.minimum(index, ops.shape(prompt)[1] - 1), axis=1)
        return column, index < rows["prompt_length"]

    def without_repeats(self, logits, ids, index):
        """Returns the logits [R, V] with those at `LOWEST` that would make the last symbols come a second time.

        Args:
            logits: [R, V], of the symbols at `index`.
            ids: What stands before, int32 [R, `room`].
            index: Its length, int32 scalar.
        """
        size = self.no_repeat_ngram
        if not size:
            return logits
        shape = ops.shape(ids)
        places = shape[1] - size + 1  # where n symbols may stand; nowhere, where there is no room for them
        places = max(places, 0) if isinstance(places, int) else ops.maximum(places, 0)
        same = ops.broadcast_to((ops.arange(places) + size - 1 < index)[None], (shape[0], places))
        for offset in range(size - 1):
            last = ops.take(ids, ops.maximum(index - size + 1 + offset, 0), axis=1)
            same = ops.logical_and(same, ops.equal(ids[:, offset : offset + places], last[:, None]))
        # What must not follow; padding, which never does, elsewhere.
        ruled_out = ops.where(same, ids[:, size - 1 :], self.symbols.pad)
        rows = ops.broadcast_to(ops.arange(shape[0], dtype="int32")[:, None], (shape[0], places))
        where = ops.reshape(ops.stack([rows, ruled_out], axis=-1), (-1, 2))
        return ops.scatter_update(logits, where, ops.full((shape[0] * places,), LOWEST, dtype=logits.dtype))


def allowed(logits, symbols):
    """Returns float32 logits [..., V] with those of start and padding at `LOWEST`."""
    ids = ops.arange(logits.shape[-1])
    banned = ops.logical_or(ops.equal(ids, symbols.start), ops.equal(ids, symbols.pad))
    # This sum with a vector is fused with the product that the logits come from; a selection is one more pass.
    return ops.add(ops.cast(logits, "float32"), ops.where(banned, LOWEST, 0.0))


def score(logits, ids, symbols):
    """Returns the log probability of sequences under teacher forcing, float32 [B].

    Args:
        logits: [B, T, V], where those at t are of the symbol at t.
        ids: [B, T], padded.
        symbols: The special ids.
    """
    log_probs = ops.log_softmax(allowed(logits, symbols), axis=-1)
    found = ops.take_along_axis(log_probs, ops.expand_dims(ids, -1), axis=-1)[..., 0]
    return ops.sum(ops.where(ops.not_equal(ids, symbols.pad), found, 0.0), axis=1)
