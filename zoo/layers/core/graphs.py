"""Sizes and variables in the graphs of the backends."""

import functools
import importlib

import keras
from keras import ops

_NO_GRAPH = object()


def current_graph():
    """Returns an object that identifies the current graph; `None` if the backend has none, as while JAX traces."""
    if keras.backend.backend() == "jax":
        return None
    return importlib.import_module("tensorflow").compat.v1.get_default_graph() if is_tensorflow_graph() else _NO_GRAPH


def is_tensorflow_graph():
    """Returns whether operations become part of a graph of TensorFlow instead of running at once."""
    return keras.backend.backend() == "tensorflow" and not importlib.import_module("tensorflow").executing_eagerly()


def axis_size(tensor, axis):
    """Returns the size of an axis: an integer, or a scalar tensor if it is unknown.

    On TensorFlow `ops.shape` computes all unknown sizes; this function computes one of them, and once for each tensor
    of a graph, so that the three projections of a sequence share the operations that compute its length.
    """
    size = tensor.shape[axis]
    if size is not None:
        return size
    if keras.backend.backend() != "tensorflow" or isinstance(tensor, keras.KerasTensor):
        return ops.shape(tensor)[axis]
    tf = importlib.import_module("tensorflow")
    shape = computed_once("shape", tf.shape, tensor)
    return computed_once(axis % len(tensor.shape), lambda _: shape[axis], tensor)


def computed_once(name, function, *tensors):
    """Returns `function(*tensors)`; in a graph of TensorFlow it is computed once for each name and the same tensors."""
    if not is_tensorflow_graph() or any(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
        return function(*tensors)
    graph = current_graph()
    results = getattr(graph, "_attention_zoo_results", None)
    if results is None:  # an attribute of the graph, so that both are freed together
        results = graph._attention_zoo_results = {}
    key = name, *(None if tensor is None else tensor.ref() for tensor in tensors)
    if key not in results:
        results[key] = function(*tensors)
    return results[key]


class _Autocast(keras.layers.Layer):
    """Makes Keras cast the weights that a function reads, even where it is recomputed outside a layer's call."""

    def call(self, function):
        return function()


def autocasting(dtype, function):
    """Returns `function` with the weights that it reads cast to `dtype`, wherever it is called."""
    autocast = _Autocast(name="autocast", dtype=f"mixed_{dtype}" if dtype in ("float16", "bfloat16") else dtype)
    return lambda *inputs: autocast(function=functools.partial(function, *inputs))
