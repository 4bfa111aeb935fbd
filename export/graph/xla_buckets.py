"""Graphs of a few fixed sizes for XLA: `export.saved_model … --xla`."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from zoo.vocabulary import PAD

BATCH_SIZES = (1, 8, 64)
LENGTHS = (16, 32, 64)


class Buckets:
    """The batch sizes and lengths to which inputs are padded, because XLA compiles code for every new size.

    `max_length` is the maximum number of tokens of a text, `max_batch_size` that of texts; `None` means no limit.
    """

    def __init__(self, max_length: int, max_batch_size: int | None = None):
        self.batch_sizes = sorted({min(size, max_batch_size or size) for size in BATCH_SIZES})
        self.lengths = sorted({min(length, max_length) for length in LENGTHS})

    def warm_up(self, read: Callable[[list[str]], tf.Tensor]) -> Iterator[list[str]]:
        """Yields a batch of texts for each bucket; `read` is a function of texts that returns their ids [B, S]."""
        texts: list[str] = []
        shorter = 0
        for length in self.lengths:
            candidates = ("a" + " a" * number for number in range(shorter // 2, length))
            texts += itertools.islice((text for text in candidates if read([text]).shape[1] > shorter), 1)
            shorter = length
        for batch_size, text in itertools.product(self.batch_sizes, texts):
            yield [text] * batch_size

    def compiled(self, function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of ids [B, S], S ≥ 1, that pads them to the smallest bucket that fits.

        Ids that fit no bucket are processed by `otherwise`, without XLA; its results may be padded to another length.
        Both functions return nested tensors with the batch axis first. Tensors in loops of the compiled function must
        not change their size.
        """

        def compiled_and_padded(ids: tf.Tensor) -> Any:
            # It is created for each graph, because it captures tensors of the graph in which it is first called.
            ids_of_any_size = tf.TensorSpec([None, None], tf.int32)
            compiled = tf.function(function, input_signature=[ids_of_any_size], jit_compile=True, autograph=False)
            batch_size, length = tf.unstack(tf.shape(ids))
            rows, columns = _smallest(self.batch_sizes, batch_size), _smallest(self.lengths, length)
            padded = tf.pad(ids, [[0, rows - batch_size], [0, columns - length]], constant_values=PAD)
            return tf.nest.map_structure(lambda result: result[:batch_size], compiled(padded))

        def answer(ids: tf.Tensor) -> Any:
            batch_size, length = tf.unstack(tf.shape(ids))
            fits = (batch_size > 0) & (batch_size <= self.batch_sizes[-1]) & (length <= self.lengths[-1])
            return tf.cond(fits, lambda: compiled_and_padded(ids), lambda: otherwise(ids))

        return answer


def _smallest(sizes: list[int], needed: tf.Tensor) -> tf.Tensor:
    """Returns the smallest of the sorted sizes that is at least `needed`."""
    return tf.gather(sizes, tf.searchsorted(sizes, needed[None])[0])
