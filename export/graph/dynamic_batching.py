"""Dynamic batching inside the graph: requests that arrive together share a batch, and large ones are split."""

import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Texts in a batch. Most operations of decoding are too small for several cores: two concurrent batches are faster than
# one of twice the size.
MAX_BATCH_SIZE = 32
LARGE_BATCH_SIZE = 128
"""Rows per part of a request that has at least one such part for each thread: only its throughput matters."""
MAX_REQUEST_SIZE = 1024
TIMEOUT_MICROSECONDS = 0
MAX_ENQUEUED_BATCHES = 1_000


def batched(
    function: Callable[..., dict[str, tf.Tensor]], threads: int = 2, large_size: int = LARGE_BATCH_SIZE
) -> Callable[..., Any]:
    """Returns a function of strings that combines concurrent requests into batches and splits large requests.

    `function` takes tensors [B], strings first, and returns tensors with the batch axis first. The sizes of its results
    must not depend on the strings, except for the batch size.

    At most `threads` batches run at the same time. A batch has `large_size` strings if a request has that many for each
    thread, otherwise at most `MAX_BATCH_SIZE`. Strings are combined before padding; the parts of a large request have
    strings of similar length, the longest first. Empty requests and those of more than `MAX_REQUEST_SIZE` strings run
    by themselves, unsplit. Requests must come from several threads, as in a server.
    """
    # It is traced once, for use both inside and outside of batches.
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
                # The last size is that of the parts. Every smaller size is allowed, so that no batch is padded.
                allowed_batch_sizes=list(range(1, largest + 1)),
                batch_timeout_micros=TIMEOUT_MICROSECONDS,
                max_enqueued_batches=MAX_ENQUEUED_BATCHES,
                enable_large_batch_splitting=True,
                # The name of the queue. It must be unique: functions of other signatures or models in the same process
                # would share a queue of the same name.
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
        # The batching operation does not infer the shapes of its results.
        shaped = [tf.ensure_shape(result, output.shape) for result, output in zip(results, traced.outputs, strict=True)]
        return tf.nest.pack_sequence_as(traced.structured_outputs, shaped)

    return answer
