"""Batches of about equally many symbols, from windows sorted by length. NumPy only."""

import keras
import numpy as np

from zoo.text import END, PAD, START, pad

# Examples sorted together: large enough for little padding, small enough that batches differ between epochs.
WINDOW = 8192


def batch_plan(lengths: np.ndarray, batch_tokens: int, rng: np.random.Generator, round_to: int = 1) -> list[np.ndarray]:
    """Returns the examples of each batch of one epoch, in random order.

    Args:
        lengths: Symbols on the source and target side of each example, [N, 2].
        batch_tokens: Largest number of symbols of a batch on its longer side, padding included; an example that is
            longer stands alone.
        rng: Source of randomness.
        round_to: Lengths are padded to multiples of this.
    """
    padded = -(-lengths // round_to) * round_to
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW):
        window = order[start : start + WINDOW]
        window = window[np.lexsort((padded[window, 0], padded[window, 1]))]
        batches += _cut(window, padded.max(axis=1), batch_tokens)
    return [batches[index] for index in rng.permutation(len(batches))]


def _cut(order: np.ndarray, sizes: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    batches, first, longest = [], 0, 0
    for position, example in enumerate(order):
        longest = max(longest, sizes[example])
        if position > first and longest * (position + 1 - first) > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, sizes[example]
    return [*batches, order[first:]]


class PairBatches(keras.utils.PyDataset):
    """Rounds of batches for `fit`: `({"source", "target"}, next target symbols, weights)`.

    The batch of a step depends on the seed and the number of the step alone, so that a resumed run sees what the
    interrupted one would have seen.

    Args:
        source: Ids of each source sentence, the end included.
        target: Ids of each target sentence, without start and end.
        batch_tokens: See `batch_plan`.
        steps: Batches in a round; `None` for one pass over the data in each round, always the same.
        seed: Seed of the order.
        static_shapes: Pad to few different shapes, for backends that compile each of them.

    Attributes:
        round: Number of the current round, to be set before each.
        target_symbols: Target symbols, the ends included, in the batch of each step that was asked for. (Batches are
            made ahead by another thread, which alone may move the plan.)
    """

    def __init__(self, source, target, batch_tokens, steps=None, seed=0, static_shapes=False):
        super().__init__()
        self.source, self.target = source, target
        self.batch_tokens, self.steps, self.seed = batch_tokens, steps, seed
        self.round = 0
        self.target_symbols: dict[int, int] = {}
        self.round_to = 8 if static_shapes else 1
        self.static_shapes = static_shapes
        self.lengths = np.array([[len(s), len(t) + 1] for s, t in zip(source, target, strict=True)])
        self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)

    def _make_plan(self, epoch):
        return batch_plan(self.lengths, self.batch_tokens, np.random.default_rng([self.seed, epoch]), self.round_to)

    def _seek(self, step):
        """Moves the plan to the epoch that holds a step."""
        if step < self._first_step:
            self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)
        while step >= self._first_step + len(self._plan):
            self._first_step += len(self._plan)
            self._epoch += 1
            self._plan = self._make_plan(self._epoch)

    def __len__(self):
        return self.steps or len(self._plan)

    def __getitem__(self, index):
        step = self.round * len(self) + index
        self._seek(step)
        examples = self._plan[step - self._first_step]
        self.target_symbols[step] = int(self.lengths[examples, 1].sum())
        return self._batch(examples)

    def _batch(self, examples):
        widths = -(-self.lengths[examples].max(axis=0) // self.round_to) * self.round_to
        num_rows = len(examples)
        if self.static_shapes:
            num_rows = max(num_rows, self.batch_tokens // int(widths.max()))
        target = [self.target[index] for index in examples]
        source = pad([self.source[index] for index in examples], widths[0], num_rows)
        inputs = pad([[START, *row] for row in target], widths[1], num_rows)
        outputs = pad([[*row, END] for row in target], widths[1], num_rows)
        return {"source": source, "target": inputs}, outputs, (outputs != PAD).astype(np.float32)


def for_fit(batches: PairBatches):
    """Returns the batches as Keras' `fit` and `evaluate` take them.

    On TensorFlow Keras would read the shapes off the first two batches, and fix the sizes that happen to agree; a
    `tf.data.Dataset` says itself that all sizes vary.

    Args:
        batches: The batches; their `round` may be changed between the epochs.
    """
    if keras.backend.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    def one_round():
        return (batches[index] for index in range(len(batches)))

    ids, weights = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float32)
    dataset = tf.data.Dataset.from_generator(one_round, output_signature=({"source": ids, "target": ids}, ids, weights))
    return dataset.apply(tf.data.experimental.assert_cardinality(len(batches))).prefetch(tf.data.AUTOTUNE)
