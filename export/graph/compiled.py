"""Graphs of few sizes, which XLA compiles: `export.saved_model … --xla`."""

import itertools
from collections.abc import Callable, Iterator

import tensorflow as tf

from zoo.text import PAD

BATCHES = (1, 8, 64)
LENGTHS = (16, 32, 64)


class Buckets:
    """Numbers of texts and of symbols that there is compiled code for: XLA compiles anew for every other size.

    Args:
        limit: Largest number of symbols that there can be.
        largest: Largest number of texts that there is. Default: any.
    """

    def __init__(self, limit: int, largest: int = BATCHES[-1]):
        self.batches = sorted({min(batch, largest) for batch in BATCHES})
        self.lengths = sorted({min(length, limit) for length in LENGTHS})

    def warm_up(self, read: Callable[[list[str]], tf.Tensor]) -> Iterator[list[str]]:
        """Yields a batch of texts for each bucket.

        Args:
            read: Function of texts that returns their ids [B, S].
        """
        texts: list[str] = []
        shorter = 0
        for length in self.lengths:
            longer = ("a" + " a" * number for number in range(shorter // 2, length))
            texts += itertools.islice((text for text in longer if read([text]).shape[1] > shorter), 1)
            shorter = length
        for batch, text in itertools.product(self.batches, texts):
            yield [text] * batch

    def compiled(self, function: Callable, otherwise: Callable) -> Callable:
        """Returns a function of ids [B, S], S ≥ 1, that pads them to the smallest bucket that holds them.

        What no bucket holds is answered without XLA.

        Args:
            function: Function of ids that returns nested tensors with the batch first, which XLA can compile: none of
                its tensors changes its size in a loop.
            otherwise: The same for ids of any size; results may differ in how far they are padded.
        """

        def padded(ids):
            # Made anew for each graph: it holds on to tensors of the graph that it is first called in.
            ids_of_any_size = tf.TensorSpec([None, None], tf.int32)
            compiled = tf.function(function, input_signature=[ids_of_any_size], jit_compile=True, autograph=False)
            batch, length = tf.unstack(tf.shape(ids))
            room = [[0, _smallest(self.batches, batch) - batch], [0, _smallest(self.lengths, length) - length]]
            results = compiled(tf.pad(ids, room, constant_values=PAD))
            return tf.nest.map_structure(lambda result: result[:batch], results)

        def answer(ids):
            batch, length = tf.unstack(tf.shape(ids))
            fits = (batch > 0) & (batch <= self.batches[-1]) & (length <= self.lengths[-1])
            return tf.cond(fits, lambda: padded(ids), lambda: otherwise(ids))

        return answer


def _smallest(sizes, needed):
    """Returns the smallest of some sizes that is at least as large as is needed."""
    return tf.gather(sizes, tf.searchsorted(sizes, needed[None])[0])
