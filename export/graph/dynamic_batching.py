"""Dynamic batching inside the graph: requests that arrive together share a batch, and large ones are split."""

import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Texts answered at once. Most operations of decoding are too small for several cores: two batches at the same time are
# answered sooner than one of twice the size.
MAX_BATCH_SIZE = 32
LARGE_BATCH_SIZE = 128
"""Rows of the parts of a request that has one for each thread, where only the sum of all times counts."""
MAX_REQUEST_SIZE = 1024
TIMEOUT_MICROSECONDS = 0
MAX_ENQUEUED_BATCHES = 1_000


def batched(
    function: Callable[..., dict[str, tf.Tensor]], threads: int = 2, large_size: int = LARGE_BATCH_SIZE
) -> Callable[..., Any]:
    """Returns a function of strings that answers requests that arrive together as one batch, and large ones in parts.

    The function takes tensors [B], strings first, and returns tensors with the batch first; as many batches as there
    are `threads` are answered at the same time, of `large_size` strings each where a request has that many for each
    thread, else of `MAX_BATCH_SIZE` at most. The strings are what is put together, before anything is padded to the
    longest of them; the parts of a large request have strings of about equal length, the longest first. The sizes of
    the results must not depend on the strings, apart from the batch. An empty request is answered alone and whole, as
    is one of more than `MAX_REQUEST_SIZE` strings. It works where requests come from several threads, as in a server.
    """
    # Traced once, and used both inside and outside of batches.
    graph_function = tf.function(function, autograph=False)

    def answer(*inputs: tf.Tensor) -> Any:
        traced = graph_function.get_concrete_function(*(tf.TensorSpec(texts.shape, texts.dtype) for texts in inputs))

        def in_batches(largest: int) -> Any:
            order = tf.argsort(tf.strings.length(inputs[0]), direction="DESCENDING", stable=True)
            results = tf.raw_ops.BatchFunction(
                in_tensors=[tf.gather(values, order) for values in inputs],
                captured_tensors=traced.captured_inputs,
                f=traced,
                Tout=[output.dtype for output in traced.outputs],
                num_batch_threads=threads,
                max_batch_size=MAX_REQUEST_SIZE,
                # The last is the size of the parts. Every size is allowed, so that no batch is padded.
                allowed_batch_sizes=list(range(1, largest + 1)),
                batch_timeout_micros=TIMEOUT_MICROSECONDS,
                max_enqueued_batches=MAX_ENQUEUED_BATCHES,
                enable_large_batch_splitting=True,
                # The name of the queue. Functions that share a name share the queue and would answer each other's
                # requests: those of other signatures, and of other models in the same process.
                shared_name=uuid.uuid4().hex,
            )
            places = tf.math.invert_permutation(order)
            return [tf.gather(result, places) for result in results]

        size = tf.shape(inputs[0])[0]
        results = tf.case(
            [
                (tf.logical_or(size == 0, size > MAX_REQUEST_SIZE), lambda: tf.nest.flatten(traced(*inputs))),
                (size >= large_size * threads, lambda: in_batches(large_size)),
            ],
            default=lambda: in_batches(MAX_BATCH_SIZE),
        )
        # The batching operation does not know the shapes of its results.
        shaped = [tf.ensure_shape(result, known.shape) for result, known in zip(results, traced.outputs, strict=True)]
        return tf.nest.pack_sequence_as(traced.structured_outputs, shaped)

    return answer
