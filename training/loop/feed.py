"""How batches reach Keras' `fit` and `evaluate`."""

from collections import deque
from collections.abc import Callable
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
        self._enqueue: Callable[[Batch], None] | None = None
        if keras.backend.backend() == "tensorflow":
            self.dataset, self._enqueue = _queue_for(batches)
            self._maker = ThreadPoolExecutor(1)
        self._coming: deque[Future[None]] = deque()

    def begin(self, round: int) -> None:
        """Begins a round."""
        self.batches.round = round
        if self._enqueue is not None:
            keep_freed_memory()  # here, after TensorFlow's own settings
            self._left = iter(range(len(self.batches)))
            for _ in range(AHEAD):
                self._make_next(self._enqueue)

    def advance(self) -> None:
        """Waits until the batch of the next step is there."""
        raise_if_received()  # a signal that was lost, such as in what TensorFlow traces
        if self._enqueue is not None:
            self._make_next(self._enqueue)
            self._coming.popleft().result()

    def _make_next(self, enqueue: Callable[[Batch], None]) -> None:
        if (index := next(self._left, None)) is not None:
            self._coming.append(self._maker.submit(lambda: enqueue(self.batches[index])))


class TrainingFeed(Feed):
    """The batches of `fit`."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begin(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.advance()


class ValidationFeed(Feed):
    """The batches of `evaluate`, also within `fit`."""

    def on_test_begin(self, logs: Any = None) -> None:
        self.begin(0)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.advance()


def _queue_for(batches: Batches) -> tuple[Any, Callable[[Batch], None]]:
    """Returns a dataset of one round at a time, and the function that appends a batch to what it takes from."""
    import tensorflow as tf

    inputs, outputs, _ = batches.structure
    types = (dict.fromkeys(inputs, tf.int32), tf.int32, tf.float32)
    shapes = [tf.TensorShape([None] * len(axes)) for axes in tf.nest.flatten(batches.structure)]
    with tf.device("CPU:0"):
        queue = tf.queue.FIFOQueue(AHEAD + 1, tf.nest.flatten(types))

    def enqueue(batch: Batch) -> None:
        arrays = zip(tf.nest.flatten(batch), queue.dtypes, strict=True)
        with tf.device("CPU:0"):
            queue.enqueue([np.asarray(array, dtype.as_numpy_dtype) for array, dtype in arrays])

    def take(_: Any) -> Any:
        tensors = queue.dequeue()
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.set_shape(shape)
        return tf.nest.pack_sequence_as(types, tensors)

    return tf.data.Dataset.range(len(batches)).map(take), enqueue
