"""A model as a function of arrays, whatever the backend."""

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras

from zoo.cores import computing_cores

MOST_AT_A_TIME = 8
"""Batches that are worked on at a time; each takes its memory."""


class Predictor:
    """A model as a function of arrays: `predictor(inputs)`.

    On TensorFlow one graph serves arrays of all sizes; Keras' own `predict` traces up to three, and tracing decoding
    takes seconds.

    Args:
        model: The model.

    Call arguments:
        inputs: A dict of arrays with the batch first.

    Returns:
        What the model makes of them: nested arrays.
    """

    def __init__(self, model: keras.Model):
        self.model = model
        self._graph: Any = None
        if keras.backend.backend() == "tensorflow":
            tf = importlib.import_module("tensorflow")
            self._graph = tf.function(lambda inputs: model.predict_step((inputs,)), autograph=False)

    def __call__(self, inputs: dict[str, Any]) -> Any:
        if self._graph is None:
            return self.model.predict_on_batch(inputs)
        tf = importlib.import_module("tensorflow")
        sizes = {name: tf.TensorSpec([None] * array.ndim, array.dtype) for name, array in inputs.items()}
        found = self._graph.get_concrete_function(sizes)({name: tf.constant(array) for name, array in inputs.items()})
        return keras.tree.map_structure(lambda tensor: tensor.numpy(), found)

    def each(self, batches: Sequence[dict[str, Any]]) -> Iterator[Any]:
        """Yields what the model makes of each of several inputs, in their order.

        On the cores of a processor, TensorFlow works on as many at a time: most operations of decoding are too small
        for more than one core.

        Args:
            batches: The inputs, best with those first that take longest.
        """
        at_a_time = min(computing_cores(), MOST_AT_A_TIME, len(batches))
        if at_a_time < 2:
            yield from map(self, batches)
            return
        pool = ThreadPoolExecutor(at_a_time)
        try:
            for found in [pool.submit(self, batch) for batch in batches]:
                yield found.result()
        finally:
            pool.shutdown(cancel_futures=True)  # when one fails, or nobody wants the others
