"""Makes batches with similar numbers of tokens, from rows in flat arrays, with NumPy only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.data.order import ByLength, Order, SortedWindows, Strata, padded
from training.data.sampling import SubwordSampler
from training.data.shards.rows import Rows
from zoo.vocabulary import PAD, START

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array, Array]
"""Inputs, outputs and their weights."""

AnyRows = Rows | Sequence[Sequence[int]]
"""Rows of ids, as flat arrays or as lists."""

# Approximate number of tokens of a side to read at once if rows are in many parts.
_TOKENS_READ = 1 << 18


@dataclass(frozen=True)
class Share:
    """The rows of every batch that one process makes: all of them, unless there are several processes.

    The rows of a batch are divided between `parts` devices or cores. To make their number a multiple of `parts`, the
    last row is repeated with weight 0. A process makes the parts from `first` up to `end`.

    Example:
        >>> Share(parts=4, first=2, end=4).rows(5).tolist()  # of the rows 0 1 2 3 4 4 4 4
        [4, 4, 4, 4]
    """

    parts: int = 1
    first: int = 0
    end: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the process makes all rows."""
        return self.first == 0 and self.end in (None, self.parts)

    def rows(self, count: int) -> Array:
        """Returns the indices of the process's rows in a batch of `count` rows; repeated rows have the last index."""
        return np.minimum(self._own_rows(count), count - 1)

    def real(self, count: int) -> Array:
        """Returns a mask of the rows that are not repetitions, [own rows]."""
        return self._own_rows(count) < count

    def _own_rows(self, count: int) -> Array:
        rows_of_part = -(-count // self.parts)
        return np.arange(self.first * rows_of_part, (self.end or self.parts) * rows_of_part)


class Batches(keras.utils.PyDataset):
    """Rounds of batches for `fit`: `(inputs, outputs, weights)`.

    The batch of a step depends only on the seed and the number of the step, so a resumed run has the same batches as an
    uninterrupted one.

    Args:
        steps: Batches in a round; `None` for one pass over the data in each round.
        share: The rows of each batch that are made.

    Attributes:
        round: Number of the current round, to be set before each.
        skip: Batches of the current round to skip, after a run was stopped within it.
        tokens: Number of real tokens in the batch of each requested step. (Another thread prepares batches in
            advance.)
        structure: The axes of a batch, a letter each.
    """

    structure: tuple[dict[str, str], str, str]

    def __init__(self, steps: int | None = None, share: Share | None = None):
        super().__init__()
        self.steps, self.share = steps, share or Share()
        self.round = self.skip = 0
        self.tokens: dict[int, int] = {}

    def pass_length(self) -> int:
        """Returns the number of batches in one pass over the data."""
        raise NotImplementedError

    def batch_of(self, step: int) -> tuple[Batch, int]:
        """Returns the batch of a step, counted from the start of the run, and its number of real tokens.

        The batch has the rows of the share only; the tokens of all rows are counted.
        """
        raise NotImplementedError

    def __len__(self) -> int:
        return (self.steps or self.pass_length()) - self.skip

    def __getitem__(self, index: int) -> Batch:
        step = self.round * (len(self) + self.skip) + self.skip + index
        batch, self.tokens[step] = self.batch_of(step)
        return batch


class _LoadedRows(NamedTuple):
    """The rows of the batches of some steps, in memory."""

    block: int
    firsts: Array  # index of the first row of each step
    sides: Sequence[Rows]


class PlannedBatches(Batches):
    """Batches of examples of about equal length; each epoch has another order.

    Args:
        sides: The rows of each side of the examples.
        batch_tokens: Largest number of tokens of a batch on its longest side, padding included; a longer example is
            a batch of its own.
        steps: See `Batches`; with `None` all rounds are the same.
        seed: Seed of the order.
        static_shapes: Pad to few different shapes, for backends that compile each of them; see `padded`.
        corpus: The examples in the order of their lengths, for `Strata`. Default: `SortedWindows`.
        share: See `Batches`.
        samplers: Draw the segmentation of each side anew at each step; see `SubwordSampler`. A batch may then have more
            tokens than `batch_tokens`, which counts the best segmentations.
    """

    def __init__(
        self,
        sides: Sequence[Rows],
        batch_tokens: int,
        steps: int | None = None,
        seed: int = 0,
        static_shapes: bool = False,
        corpus: ByLength | None = None,
        share: Share | None = None,
        samplers: Sequence[SubwordSampler] | None = None,
    ):
        super().__init__(steps, share)
        self.sides, self.batch_tokens, self.static_shapes = sides, batch_tokens, static_shapes
        self.seed, self.samplers = seed, samplers
        self.order: Order
        if corpus is None:
            lengths = np.stack([rows.all_lengths() for rows in sides], axis=1)
            self.order = SortedWindows(lengths, batch_tokens, seed, static_shapes)
        else:
            self.order = Strata(corpus, batch_tokens, seed, static_shapes, sides[0].limit)
        self._steps_read = max(1, _TOKENS_READ // batch_tokens)
        self._read: _LoadedRows | None = None

    def make(self, sides: Sequence[Rows], places: Array, examples: Array, widths: Array, rows: Array) -> Batch:
        """Returns some rows of a batch.

        Args:
            sides: The rows of each side.
            places: The indices of the batch's examples in `sides`.
            examples: Their indices in the data.
            widths: Tokens in a row, padding included, on each side.
            rows: The indices of the rows in the batch, ascending; those beyond the examples are padding.
        """
        raise NotImplementedError

    def pass_length(self) -> int:
        return self.order.pass_length()

    def batch_of(self, step: int) -> tuple[Batch, int]:
        examples = self.order.examples_of(step)
        sides, places = self._resampled(step, *self._rows_of(step, examples))
        lengths = np.stack([rows.lengths(places) for rows in sides], axis=1)
        (widths,) = padded(lengths.max(axis=0, keepdims=True), self.static_shapes)
        num_rows = len(examples)
        if self.static_shapes:
            num_rows = max(num_rows, self.batch_tokens // int(widths.max()))
        inputs, outputs, weights = self.make(sides, places, examples, widths, self.share.rows(num_rows))
        return (inputs, outputs, _zero_repeated(weights, self.share, num_rows)), int(lengths[:, -1].sum())

    def _rows_of(self, step: int, examples: Array) -> tuple[Sequence[Rows], Array]:
        """Returns rows of each side that contain those of a step, and the indices of its examples in them.

        Rows in many parts are read for several steps at once, unless other processes read some of them.
        """
        reads_together = isinstance(self.order, Strata) and self.share.is_whole
        if not reads_together or all(len(rows.parts) == 1 for rows in self.sides):
            return self.sides, examples
        block, offset = divmod(step, self._steps_read)
        read = self._read  # read once, since another thread may replace it
        if read is None or read.block != block:
            batches = [self.order.examples_of(step - offset + number) for number in range(self._steps_read)]
            firsts = np.cumsum([0, *map(len, batches)])
            sides = [rows.select(np.concatenate(batches)) for rows in self.sides]
            read = self._read = _LoadedRows(block, firsts, sides)
        return read.sides, read.firsts[offset] + np.arange(len(examples))

    def _resampled(self, step: int, sides: Sequence[Rows], places: Array) -> tuple[Sequence[Rows], Array]:
        """Returns the sides with segmentations drawn for a step, and the indices of its examples in them."""
        if self.samplers is None:
            return sides, places
        drawn = [
            Rows.of(sampler(rows.lists(places), [self.seed, step, number]))
            for number, (rows, sampler) in enumerate(zip(sides, self.samplers, strict=True))
        ]
        limited = [
            rows if side.limit is None else rows.cut(side.limit) for side, rows in zip(sides, drawn, strict=True)
        ]
        return limited, np.arange(len(places))


def _as_rows(rows: AnyRows) -> Rows:
    return rows if isinstance(rows, Rows) else Rows.of(rows)


def _zero_repeated(weights: Array, share: Share, num_rows: int) -> Array:
    """Returns weights [rows, ...] with 0 in the repeated rows of a share."""
    real = share.real(num_rows).astype(weights.dtype)
    counted: Array = weights * real.reshape(-1, *[1] * (weights.ndim - 1))
    return counted


def _own_examples(examples: Array, rows: Array) -> Array:
    """Returns the examples in some rows of a batch, without padding rows."""
    chosen: Array = examples[rows[rows < len(examples)]]
    return chosen


def _next_tokens(text: Rows, examples: Array, width: int, rows: int) -> tuple[Array, Array, Array]:
    """Returns rows that begin with the start token, the next tokens, and weights that are 0 for padding."""
    outputs = text.gather(examples, width, rows)
    inputs = np.full_like(outputs, START)
    inputs[:, 1:] = outputs[:, :-1]
    inputs[outputs == PAD] = PAD
    return inputs, outputs, (outputs != PAD).astype(np.float32)


class PairBatches(PlannedBatches):
    """Parallel text: `({"source", "target"}, next target tokens, weights)`.

    Args:
        source: Ids of each source sentence, the end included.
        target: Ids of each target sentence, the end included.
        links: Positions of aligned tokens, [links, 2] of each pair, source first: batches then have an `alignment`
            [B, T, S] that is 1 for them. Or `None`.
        **plan: See `PlannedBatches`.
    """

    structure = ({"source": "bs", "target": "bt"}, "bt", "bt")

    def __init__(self, source: AnyRows, target: AnyRows, links: Sequence[Array] | None = None, **plan: Any):
        super().__init__([_as_rows(source), _as_rows(target)], **plan)
        self.links = links
        if links is not None:
            self.structure = ({"source": "bs", "target": "bt", "alignment": "bts"}, "bt", "bt")

    def make(self, sides: Sequence[Rows], places: Array, examples: Array, widths: Array, rows: Array) -> Batch:
        own = _own_examples(places, rows)
        source = sides[0].gather(own, widths[0], len(rows))
        target, outputs, weights = _next_tokens(sides[1], own, widths[1], len(rows))
        inputs = {"source": source, "target": target}
        if self.links is not None:
            links = [self.links[example] for example in _own_examples(examples, rows)]
            inputs["alignment"] = self._alignment(links, (*outputs.shape, source.shape[1]))
        return inputs, outputs, weights

    @staticmethod
    def _alignment(links: Sequence[Array], shape: tuple[int, ...]) -> Array:
        alignment = np.zeros(shape, np.int32)
        for row, positions in enumerate(links):
            inside = positions[(positions[:, 0] < shape[2]) & (positions[:, 1] < shape[1])]  # long examples are cut
            alignment[row, inside[:, 1], inside[:, 0]] = 1
        return alignment


class LabelledBatches(PlannedBatches):
    """Labelled text: `({"tokens"}, classes, weights)`.

    Args:
        rows: Ids of each text, the end included.
        classes: The class of each text, an integer.
        **plan: See `PlannedBatches`.
    """

    structure = ({"tokens": "bs"}, "b", "b")

    def __init__(self, rows: AnyRows, classes: ArrayLike, **plan: Any):
        super().__init__([_as_rows(rows)], **plan)
        self.classes = np.asarray(classes, np.int32)

    def make(self, sides: Sequence[Rows], places: Array, examples: Array, widths: Array, rows: Array) -> Batch:
        # Models do not accept texts without tokens, so the last text is repeated instead of padding rows.
        chosen = np.minimum(rows, len(examples) - 1)
        weights = (rows < len(examples)).astype(np.float32)
        return {"tokens": sides[0].gather(places[chosen], widths[0])}, self.classes[examples[chosen]], weights


class DocumentBatches(PlannedBatches):
    """Separate texts of a language: `({"tokens"}, next tokens, weights)`.

    Args:
        rows: Ids of each text, the end included, or of parts of texts.
        **plan: See `PlannedBatches`.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(self, rows: AnyRows, **plan: Any):
        super().__init__([_as_rows(rows)], **plan)

    def make(self, sides: Sequence[Rows], places: Array, examples: Array, widths: Array, rows: Array) -> Batch:
        tokens, outputs, weights = _next_tokens(sides[0], _own_examples(places, rows), widths[0], len(rows))
        return {"tokens": tokens}, outputs, weights


class WindowBatches(Batches):
    """Windows of a continuous text: `({"tokens"}, next tokens, weights)`; each begins with the start token.

    In training they begin at random positions. In one pass over the data they are consecutive and overlap by one token,
    which has weight 0 in the second window. So every token counts once, and all but the first have some context.

    Args:
        stream: Ids of the text, or of its consecutive parts.
        length: Tokens in a window, without the start token.
        batch_tokens: Largest number of tokens in a batch, without start tokens.
        steps: See `Batches`.
        seed: Seed of the windows' positions.
        share: See `Batches`.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(
        self,
        stream: Rows | Sequence[int],
        length: int,
        batch_tokens: int,
        steps: int | None = None,
        seed: int = 0,
        share: Share | None = None,
    ):
        super().__init__(steps, share)
        self.stream = stream if isinstance(stream, Rows) else Rows.of([stream])
        self.size = self.stream.num_values
        self.length = min(length, self.size - 1)
        self.rows, self.seed = max(1, batch_tokens // max(self.length, 1)), seed

    def pass_length(self) -> int:
        return -(-self._num_windows() // self.rows)

    def batch_of(self, step: int) -> tuple[Batch, int]:
        if self.steps:
            places = np.random.default_rng([self.seed, step]).integers(self.size - self.length, size=self.rows)
        else:
            first = step % len(self) * self.rows
            places = np.arange(first, min(first + self.rows, self._num_windows())) * self.length
        num_tokens, num_rows = self._count(places), len(places)
        places = places[self.share.rows(num_rows)]
        positions = places[:, None] + np.arange(self.length + 1)
        inside = positions < self.size
        outputs = np.where(inside, self.stream.take(np.minimum(positions, self.size - 1)), PAD).astype(np.int32)
        tokens = np.concatenate([np.full((len(places), 1), START, np.int32), outputs[:, :-1]], axis=1)
        weights = _zero_repeated(inside.astype(np.float32), self.share, num_rows)
        if not self.steps:
            weights[places > 0, 0] = 0.0
        return ({"tokens": tokens}, outputs, weights), num_tokens

    def _count(self, starts: Array) -> int:
        """Returns the number of tokens with weight 1 in windows at some positions."""
        counted = np.minimum(self.size - starts, self.length + 1)
        return int(counted.sum() - (0 if self.steps else np.count_nonzero(starts)))

    def _num_windows(self) -> int:
        return max(1, -(-(self.size - 1) // max(self.length, 1)))
