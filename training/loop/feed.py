"""How batches reach Keras' `fit` and `evaluate`."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from training.data.batching import Batch, Batches
from training.hardware.memory import keep_freed_memory
from zoo.signals import raise_if_received

AHEAD = 3
"""Batches that are made ahead of time, by another thread."""


class Feed(keras.callbacks.Callback):
    """Batches for `fit` or `evaluate`, which get its `dataset`, and the feed itself among their callbacks.

    On TensorFlow, Keras would put the batches into a `tf.data.Dataset` of a Python generator. Its threads need the
    interpreter, and the interpreter that ends waits for its threads: such a process may never exit. Here the dataset
    takes tensors from a queue and knows no Python; before each step the callback waits until the step's batch is there.
    So an error in making it is raised here as it is, and whatever ends the loop leaves no thread that waits.

    Keras would also derive the shapes from the first two batches and fix the sizes that happen to agree; the dataset
    declares that all sizes vary.

    Attributes:
        batches: The batches.
        dataset: They, as `fit` and `evaluate` take them; on other backends they are taken as they are.
    """

    def __init__(self, batches: Batches):
        super().__init__()
        self.batches = batches
        self.dataset: Any = batches
        self._queue: _Queue | None = None
        if keras.backend.backend() == "tensorflow":
            self._queue = _Queue(batches)
            self.dataset = self._queue.dataset
            self._maker = ThreadPoolExecutor(1)
        self._coming: deque[Future[None]] = deque()

    def begin(self, round: int) -> None:
        """Begins a round."""
        self.batches.round = round
        if self._queue is not None:
            keep_freed_memory()  # here, after TensorFlow's own settings
            self._queue.set_open(True)
            self._left = iter(range(len(self.batches)))
            for _ in range(AHEAD):
                self._make_next(self._queue)

    def advance(self) -> None:
        """Waits until the batch of the next step is there."""
        raise_if_received()  # a signal that was lost, such as in what TensorFlow traces
        if self._queue is not None:
            self._make_next(self._queue)
            self._coming.popleft().result()

    def end(self) -> None:
        """Ends a round."""
        if self._queue is not None:
            self._queue.set_open(False)

    def _make_next(self, queue: "_Queue") -> None:
        if (index := next(self._left, None)) is not None:
            self._coming.append(self._maker.submit(lambda: queue.append(self.batches[index])))


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
    """Batches that wait to be taken by a TensorFlow dataset of one round.

    Spread over devices, Keras takes a batch before each round begins, to build what is not built: while the queue is
    not open, the dataset then has batches of zeros.
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
        """Appends a batch to what the dataset takes, as soon as there is room."""
        import tensorflow as tf

        arrays = zip(tf.nest.flatten(batch), self._queue.dtypes, strict=True)
        with tf.device("CPU:0"):
            self._queue.enqueue([np.asarray(array, dtype.as_numpy_dtype) for array, dtype in arrays])

    def set_open(self, is_open: bool) -> None:
        """Says whether batches are coming."""
        if self._opened is not None and is_open != bool(self._opened.size()):
            self._opened.enqueue(True) if is_open else self._opened.dequeue()
