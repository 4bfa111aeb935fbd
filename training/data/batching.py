"""Batches of about equally many symbols, from windows sorted by length. NumPy only."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoo.vocabulary import END, PAD, START, pad

# Examples sorted together: large enough for little padding, small enough that batches differ between epochs.
WINDOW = 8192

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array, Array]
"""Inputs, outputs and their weights."""


def batch_plan(lengths: Array, batch_tokens: int, rng: np.random.Generator, round_to: int = 1) -> list[Array]:
    """Returns the examples of each batch of one epoch, in random order.

    Args:
        lengths: Symbols on each side of each example, [N, sides].
        batch_tokens: Largest number of symbols of a batch on its longest side, padding included; a longer example is
            a batch of its own.
        rng: Source of randomness.
        round_to: Lengths are padded to multiples of this.
    """
    padded = -(-lengths // round_to) * round_to
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW):
        window = order[start : start + WINDOW]
        window = window[np.lexsort(padded[window].T)]
        batches += _split_into_batches(window, padded.max(axis=1), batch_tokens)
    return [batches[index] for index in rng.permutation(len(batches))]


def _split_into_batches(order: Array, sizes: Array, batch_tokens: int) -> list[Array]:
    batches, first, longest = [], 0, 0
    for position, example in enumerate(order):
        longest = max(longest, sizes[example])
        if position > first and longest * (position + 1 - first) > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, sizes[example]
    return [*batches, order[first:]]


class Batches(keras.utils.PyDataset):
    """Rounds of batches for `fit`: `(inputs, outputs, weights)`.

    The batch of a step depends on the seed and the number of the step alone, so that a resumed run sees what the
    interrupted one would have seen.

    Args:
        steps: Batches in a round; `None` for one pass over the data in each round.

    Attributes:
        round: Number of the current round, to be set before each.
        symbols: Number of real symbols in the batch of each step that was asked for. (Another thread makes batches
            ahead of time.)
        structure: The axes of a batch, a letter each.
    """

    structure: tuple[dict[str, str], str, str]

    def __init__(self, steps: int | None = None):
        super().__init__()
        self.steps = steps
        self.round = 0
        self.symbols: dict[int, int] = {}

    def pass_length(self) -> int:
        """Returns how many batches one pass over the data has."""
        raise NotImplementedError

    def batch_of(self, step: int) -> tuple[Batch, int]:
        """Returns the batch of a step, counted from the start of the run, and its number of real symbols."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps or self.pass_length()

    def __getitem__(self, index: int) -> Batch:
        step = self.round * len(self) + index
        batch, self.symbols[step] = self.batch_of(step)
        return batch


class PlannedBatches(Batches):
    """Batches of examples of about equal length, each epoch in another order.

    Args:
        lengths: See `batch_plan`.
        batch_tokens: See `batch_plan`.
        steps: See `Batches`; with `None` all rounds are the same.
        seed: Seed of the order.
        static_shapes: Pad to few different shapes, for backends that compile each of them.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        batch_tokens: int,
        steps: int | None = None,
        seed: int = 0,
        static_shapes: bool = False,
    ):
        super().__init__(steps)
        self.lengths, self.batch_tokens, self.seed = np.asarray(lengths), batch_tokens, seed
        self.round_to = 8 if static_shapes else 1
        self.static_shapes = static_shapes
        self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        """Returns a batch.

        Args:
            examples: The numbers of its examples.
            widths: Symbols in a row, padding included, on each side.
            num_rows: Rows, at least as many as there are examples; the others are padding.
        """
        raise NotImplementedError

    def pass_length(self) -> int:
        return len(self._plan)

    def batch_of(self, step: int) -> tuple[Batch, int]:
        self._seek(step)
        examples = self._plan[step - self._first_step]
        widths = -(-self.lengths[examples].max(axis=0) // self.round_to) * self.round_to
        num_rows = len(examples)
        if self.static_shapes:
            num_rows = max(num_rows, self.batch_tokens // int(widths.max()))
        return self.make(examples, widths, num_rows), int(self.lengths[examples, -1].sum())

    def _make_plan(self, epoch: int) -> list[Array]:
        return batch_plan(self.lengths, self.batch_tokens, np.random.default_rng([self.seed, epoch]), self.round_to)

    def _seek(self, step: int) -> None:
        """Moves the plan to the epoch that holds a step."""
        if step < self._first_step:
            self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)
        while step >= self._first_step + len(self._plan):
            self._first_step += len(self._plan)
            self._epoch += 1
            self._plan = self._make_plan(self._epoch)


def _next_symbols(rows: list[list[int]], width: int, num_rows: int) -> tuple[Array, Array, Array]:
    """Returns rows that begin with the start symbol, the symbols that follow, and which of them are real."""
    inputs = pad([[START, *row[:-1]] for row in rows], width, num_rows)
    outputs = pad(rows, width, num_rows)
    return inputs, outputs, (outputs != PAD).astype(np.float32)


class PairBatches(PlannedBatches):
    """Parallel text: `({"source", "target"}, next target symbols, weights)`.

    Args:
        source: Ids of each source sentence, the end included.
        target: Ids of each target sentence, without start and end.
        links: Places of symbols that belong together, [links, 2] of each pair, source first: batches then have an
            `alignment` [B, T, S], 1 for those. Or `None`.
        **plan: See `PlannedBatches`.
    """

    structure = ({"source": "bs", "target": "bt"}, "bt", "bt")

    def __init__(
        self, source: list[list[int]], target: list[list[int]], links: Sequence[Array] | None = None, **plan: Any
    ):
        super().__init__([[len(s), len(t) + 1] for s, t in zip(source, target, strict=True)], **plan)
        self.source, self.target, self.links = source, target, links
        if links is not None:
            self.structure = ({"source": "bs", "target": "bt", "alignment": "bts"}, "bt", "bt")

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        source = pad([self.source[index] for index in examples], widths[0], num_rows)
        target, outputs, weights = _next_symbols([[*self.target[i], END] for i in examples], widths[1], num_rows)
        inputs = {"source": source, "target": target}
        if self.links is not None:
            inputs["alignment"] = self._alignment([self.links[i] for i in examples], (*outputs.shape, source.shape[1]))
        return inputs, outputs, weights

    @staticmethod
    def _alignment(links: Sequence[Array], shape: tuple[int, ...]) -> Array:
        alignment = np.zeros(shape, np.int32)
        for row, places in enumerate(links):
            inside = places[(places[:, 0] < shape[2]) & (places[:, 1] < shape[1])]  # long examples are cut
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

    def __init__(self, rows: list[list[int]], classes: Sequence[int], **plan: Any):
        super().__init__([[len(row)] for row in rows], **plan)
        self.rows, self.classes = rows, np.asarray(classes, np.int32)

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        # A row of padding would be a text without symbols, which no model accepts: the last text is repeated instead.
        chosen = np.concatenate([examples, np.repeat(examples[-1:], num_rows - len(examples))])
        weights = (np.arange(num_rows) < len(examples)).astype(np.float32)
        tokens = pad([self.rows[index] for index in chosen], widths[0])
        return {"tokens": tokens}, self.classes[chosen], weights


class DocumentBatches(PlannedBatches):
    """Separate texts of a language: `({"tokens"}, next symbols, weights)`.

    Args:
        rows: Ids of each text, the end included, or of parts of texts.
        **plan: See `PlannedBatches`.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(self, rows: list[list[int]], **plan: Any):
        super().__init__([[len(row)] for row in rows], **plan)
        self.rows = rows

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        tokens, outputs, weights = _next_symbols([self.rows[index] for index in examples], widths[0], num_rows)
        return {"tokens": tokens}, outputs, weights


class WindowBatches(Batches):
    """Windows of a running text: `({"tokens"}, next symbols, weights)`; each begins with the start symbol.

    In training they begin anywhere. In one pass over the data they follow each other, overlapping by one symbol, which
    the second one does not predict: so every symbol counts once, all but the first after at least one other.

    Args:
        stream: Ids of the text.
        length: Symbols in a window, without the start symbol.
        batch_tokens: Largest number of symbols in a batch, without start symbols.
        steps: See `Batches`.
        seed: Seed of the windows' places.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(self, stream: ArrayLike, length: int, batch_tokens: int, steps: int | None = None, seed: int = 0):
        super().__init__(steps)
        self.stream = np.asarray(stream, np.int32)
        self.length = min(length, len(self.stream) - 1)
        self.rows, self.seed = max(1, batch_tokens // max(self.length, 1)), seed

    def pass_length(self) -> int:
        return -(-self._num_windows() // self.rows)

    def batch_of(self, step: int) -> tuple[Batch, int]:
        if self.steps:
            places = np.random.default_rng([self.seed, step]).integers(len(self.stream) - self.length, size=self.rows)
        else:
            first = step % len(self) * self.rows
            places = np.arange(first, min(first + self.rows, self._num_windows())) * self.length
        positions = places[:, None] + np.arange(self.length + 1)
        inside = positions < len(self.stream)
        outputs = np.where(inside, self.stream[np.minimum(positions, len(self.stream) - 1)], PAD).astype(np.int32)
        tokens = np.concatenate([np.full((len(places), 1), START, np.int32), outputs[:, :-1]], axis=1)
        weights = inside.astype(np.float32)
        if not self.steps:
            weights[places > 0, 0] = 0.0
        return ({"tokens": tokens}, outputs, weights), int(weights.sum())

    def _num_windows(self) -> int:
        return max(1, -(-(len(self.stream) - 1) // max(self.length, 1)))
