"""A model as a function of arrays, on any backend."""

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras

from zoo.runtime.cores import computing_cores

MAX_PARALLEL_BATCHES = 8
"""Maximum number of batches that are computed at the same time; each takes memory."""


class Predictor:
    """A model as a function of arrays: `predictor(inputs)`.

    On TensorFlow, one graph is used for arrays of all sizes. Keras' own `predict` traces up to three graphs, and
    tracing decoding takes seconds.

    Args:
        model: The model.

    Call arguments:
        inputs: A dict of arrays with the batch axis first.

    Returns:
        The model's outputs: nested arrays.
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
        shapes = {name: tf.TensorSpec([None] * array.ndim, array.dtype) for name, array in inputs.items()}
        graph = self._graph.get_concrete_function(shapes)
        outputs = graph({name: tf.constant(array) for name, array in inputs.items()})
        return keras.tree.map_structure(lambda tensor: tensor.numpy(), outputs)

    def predict_batches(self, batches: Sequence[dict[str, Any]]) -> Iterator[Any]:
        """Yields the model's outputs for each batch, in order; the slowest batches should come first.

        With TensorFlow on CPUs, each core computes a batch, because most operations of decoding are too small for more
        than one core.
        """
        parallel = min(computing_cores(), MAX_PARALLEL_BATCHES, len(batches))
        if parallel < 2:
            yield from map(self, batches)
            return
        pool = ThreadPoolExecutor(parallel)
        try:
            for future in [pool.submit(self, batch) for batch in batches]:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # also if a batch fails, or the caller stops early
