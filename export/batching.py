"""Requests that arrive together are answered together, in the graph of the model itself."""

from collections.abc import Callable

import tensorflow as tf

THREADS = 2
LARGEST = 64
TIMEOUT_MICROSECONDS = 2_000
QUEUE = 1_000


def batched(function: Callable[..., dict[str, tf.Tensor]]):
    """Returns a function of strings that answers requests that arrive together at once.

    What is put together are the strings, before anything is as wide as the longest of them; the results must have the
    same sizes whatever the strings, apart from the batch. A request that is larger than the largest batch goes alone,
    and so does an empty one. It works where requests come from several threads, as in a server.

    Args:
        function: Function of string tensors [B] that returns tensors with the batch first.
    """
    # Traced once, for the two ways that there are to it.
    function = tf.function(function, autograph=False)
    names: list[str] = []
    shapes: list[tf.TensorShape] = []

    def flat(*inputs):
        results = function(*inputs)
        names[:] = sorted(results)
        shapes[:] = [results[name].shape for name in names]
        return [results[name] for name in names]

    together = tf.nondifferentiable_batch_function(
        num_batch_threads=THREADS,
        max_batch_size=LARGEST,
        batch_timeout_micros=TIMEOUT_MICROSECONDS,
        max_enqueued_batches=QUEUE,
        autograph=False,
    )(flat)

    def answer(*inputs):
        size = tf.shape(inputs[0])[0]
        fits = tf.logical_and(size > 0, size <= LARGEST)
        results = tf.cond(fits, lambda: list(together(*inputs)), lambda: flat(*inputs))
        # The operation that gathers requests knows no shapes.
        results = [tf.ensure_shape(result, shape) for result, shape in zip(results, shapes, strict=True)]
        return dict(zip(names, results, strict=True))

    return answer
