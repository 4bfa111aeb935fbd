"""Feeds batches to Keras' `fit` and `evaluate`."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from training.data.batching import Batch, Batches
from training.hardware.startup import keep_freed_memory
from zoo.runtime.signals import raise_if_received

AHEAD = 3
"""Number of batches that another thread prepares in advance."""


class Feed(keras.callbacks.Callback):
    """Feeds batches to `fit` or `evaluate`: pass `dataset` as their data, and the feed itself as a callback.

    On TensorFlow, Keras would put the batches into a `tf.data.Dataset` of a Python generator. Its threads require the
    interpreter, and the interpreter waits for them when it exits, so the process might never exit. Here the dataset
    takes tensors from a queue without Python, and before each step the callback waits until the batch is queued.
    Errors in preparing a batch are therefore raised unchanged, and no thread still waits when the loop ends.

    Keras would also derive the shapes from the first two batches, and fix sizes that are equal in both by chance; here,
    the dataset declares that all sizes vary.

    Attributes:
        batches: The batches.
        dataset: The batches as data of `fit` and `evaluate`; on other backends the same as `batches`.
    """

    def __init__(self, batches: Batches):
        super().__init__()
        self.batches = batches
        self.dataset: Any = batches
        self._queue: _Queue | None = None
        if keras.backend.backend() == "tensorflow":
            self._queue = _Queue(batches)
            self.dataset = self._queue.dataset
            self._executor = ThreadPoolExecutor(1)
        self._pending: deque[Future[None]] = deque()

    def begin(self, round: int) -> None:
        """Begins a round."""
        self.batches.round = round
        if self._queue is not None:
            keep_freed_memory()  # must come after TensorFlow's own settings
            self._queue.set_open(True)
            self._remaining = iter(range(len(self.batches)))
            for _ in range(AHEAD):
                self._make_next(self._queue)

    def advance(self) -> None:
        """Waits until the batch of the next step is queued."""
        raise_if_received()  # for a signal whose exception was suppressed, such as while TensorFlow traces
        if self._queue is not None:
            self._make_next(self._queue)
            self._pending.popleft().result()

    def end(self) -> None:
        """Ends a round."""
        if self._queue is not None:
            self._queue.set_open(False)

    def _make_next(self, queue: "_Queue") -> None:
        if (index := next(self._remaining, None)) is not None:
            self._pending.append(self._executor.submit(lambda: queue.append(self.batches[index])))


class TrainingFeed(Feed):
    """The batches of `fit`."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begin(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.advance()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.end()


class ValidationFeed(Feed):
    """The batches of `evaluate`, also within `fit`."""

    def on_test_begin(self, logs: Any = None) -> None:
        self.begin(0)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.advance()

    def on_test_end(self, logs: Any = None) -> None:
        self.end()


class _Queue:
    """A queue of batches, with a TensorFlow dataset of one round that takes them.

    With several devices, Keras takes a batch before each round, to build layers. While the queue is not open, the
    dataset therefore yields batches of zeros.
    """

    def __init__(self, batches: Batches):
        import tensorflow as tf

        inputs, outputs, _ = batches.structure
        types = (dict.fromkeys(inputs, tf.int32), tf.int32, tf.float32)
        ranks = [len(axes) for axes in tf.nest.flatten(batches.structure)]
        rows = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.device("CPU:0"):
            self._queue = tf.queue.FIFOQueue(AHEAD + 1, tf.nest.flatten(types))
            self._opened = tf.queue.FIFOQueue(1, tf.bool) if tf.distribute.has_strategy() else None

        def zeros() -> Any:
            return [
                tf.zeros([rows, *[1] * (rank - 1)], dtype)
                for rank, dtype in zip(ranks, self._queue.dtypes, strict=True)
            ]

        def take(_: Any) -> Any:
            if self._opened is None:
                tensors = self._queue.dequeue()
            else:
                tensors = tf.cond(self._opened.size() > 0, self._queue.dequeue, zeros)
            for tensor, rank in zip(tensors, ranks, strict=True):
                tensor.set_shape([None] * rank)
            return tf.nest.pack_sequence_as(types, tensors)

        self.dataset = tf.data.Dataset.range(len(batches)).map(take)

    def append(self, batch: Batch) -> None:
        """Appends a batch, as soon as the queue is not full."""
        import tensorflow as tf

        arrays = zip(tf.nest.flatten(batch), self._queue.dtypes, strict=True)
        with tf.device("CPU:0"):
            self._queue.enqueue([np.asarray(array, dtype.as_numpy_dtype) for array, dtype in arrays])

    def set_open(self, is_open: bool) -> None:
        """Sets whether the dataset yields batches of the queue; otherwise, it yields zeros."""
        if self._opened is not None and is_open != bool(self._opened.size()):
            self._opened.enqueue(True) if is_open else self._opened.dequeue()
