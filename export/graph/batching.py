"""Requests that arrive together are answered together, in the graph of the model itself, and large ones in parts."""

import uuid
from collections.abc import Callable

import tensorflow as tf

THREADS = 2
# Texts answered at once. Most operations of decoding are too small for several cores: two parts at the same time are
# answered sooner than their sum.
PART = 32
LARGEST = 1024
TIMEOUT_MICROSECONDS = 2_000
QUEUE = 1_000


def batched(function: Callable[..., dict[str, tf.Tensor]], threads: int = THREADS):
    """Returns a function of strings that answers requests that arrive together at once, and large ones in parts.

    What is put together are the strings, before anything is as wide as the longest of them; the results must have the
    same sizes whatever the strings, apart from the batch. An empty request goes alone and whole, as does one of more
    than `LARGEST` strings. It works where requests come from several threads, as in a server.

    Args:
        function: Function of string tensors [B] that returns tensors with the batch first.
        threads: How many batches are answered at the same time.
    """
    # Traced once, for the two ways that there are to it.
    function = tf.function(function, autograph=False)

    def answer(*inputs):
        alone = function.get_concrete_function(*(tf.TensorSpec(each.shape, each.dtype) for each in inputs))

        def together():
            return tf.raw_ops.BatchFunction(
                in_tensors=list(inputs),
                captured_tensors=alone.captured_inputs,
                f=alone,
                Tout=[output.dtype for output in alone.outputs],
                num_batch_threads=threads,
                max_batch_size=LARGEST,
                allowed_batch_sizes=list(range(1, PART + 1)),  # the last is that of a part; none is padded to another
                batch_timeout_micros=TIMEOUT_MICROSECONDS,
                max_enqueued_batches=QUEUE,
                enable_large_batch_splitting=True,
                # The name of the queue. Functions of one name share it, and run what others were asked: those of
                # other signatures, and of other models where a process has all of them in one place.
                shared_name=uuid.uuid4().hex,
            )

        size = tf.shape(inputs[0])[0]
        fits = tf.logical_and(size > 0, size <= LARGEST)
        results = tf.cond(fits, together, lambda: tf.nest.flatten(alone(*inputs)))
        # The operation that gathers requests knows no shapes.
        results = [tf.ensure_shape(result, each.shape) for result, each in zip(results, alone.outputs, strict=True)]
        return tf.nest.pack_sequence_as(alone.structured_outputs, results)

    return answer
