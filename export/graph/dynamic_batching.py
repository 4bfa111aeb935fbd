"""Dynamic batching inside the graph: requests that arrive together share a batch, and large ones are split."""

import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Texts answered at once. Most operations of decoding are too small for several cores: two batches at the same time are
# answered sooner than one of twice the size.
MAX_BATCH_SIZE = 32
MAX_REQUEST_SIZE = 1024
TIMEOUT_MICROSECONDS = 2_000
MAX_ENQUEUED_BATCHES = 1_000


def batched(function: Callable[..., dict[str, tf.Tensor]], threads: int = 2) -> Callable[..., Any]:
    """Returns a function of strings that answers requests that arrive together as one batch, and large ones in parts.

    The function takes string tensors [B] and returns tensors with the batch first; as many batches as there are
    `threads` are answered at the same time. The strings are what is put together, before anything is padded to the
    longest of them; the sizes of the results must not depend on the strings, apart from the batch. An empty request is
    answered alone and whole, as is one of more than `MAX_REQUEST_SIZE` strings. It works where requests come from
    several threads, as in a server.
    """
    # Traced once, and used both inside and outside of batches.
    graph_function = tf.function(function, autograph=False)

    def answer(*inputs: tf.Tensor) -> Any:
        traced = graph_function.get_concrete_function(*(tf.TensorSpec(texts.shape, texts.dtype) for texts in inputs))

        def in_batches() -> Any:
            return tf.raw_ops.BatchFunction(
                in_tensors=list(inputs),
                captured_tensors=traced.captured_inputs,
                f=traced,
                Tout=[output.dtype for output in traced.outputs],
                num_batch_threads=threads,
                max_batch_size=MAX_REQUEST_SIZE,
                # The last is the size of the parts. Every size is allowed, so that no batch is padded.
                allowed_batch_sizes=list(range(1, MAX_BATCH_SIZE + 1)),
                batch_timeout_micros=TIMEOUT_MICROSECONDS,
                max_enqueued_batches=MAX_ENQUEUED_BATCHES,
                enable_large_batch_splitting=True,
                # The name of the queue. Functions that share a name share the queue and would answer each other's
                # requests: those of other signatures, and of other models in the same process.
                shared_name=uuid.uuid4().hex,
            )

        size = tf.shape(inputs[0])[0]
        fits = tf.logical_and(size > 0, size <= MAX_REQUEST_SIZE)
        results = tf.cond(fits, in_batches, lambda: tf.nest.flatten(traced(*inputs)))
        # The batching operation does not know the shapes of its results.
        shaped = [tf.ensure_shape(result, known.shape) for result, known in zip(results, traced.outputs, strict=True)]
        return tf.nest.pack_sequence_as(traced.structured_outputs, shaped)

    return answer
