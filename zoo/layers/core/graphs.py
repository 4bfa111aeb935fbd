"""Sizes and variables in the graphs of each backend: where operations go, and what is read once."""

import contextlib
import functools
import importlib

import keras
from keras import ops

_NO_GRAPH = object()


def graph_here():
    """Returns what tells apart where operations go; `None` if nothing does, as while JAX traces."""
    if keras.backend.backend() == "jax":
        return None
    if keras.backend.backend() != "tensorflow":
        return _NO_GRAPH
    tf = importlib.import_module("tensorflow")
    return _NO_GRAPH if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def axis_size(tensor, axis):
    """Returns the size of an axis: an integer, or if it is unknown a scalar tensor.

    `ops.shape` computes all unknown sizes on TensorFlow; here it is this one alone, and once for each tensor of a
    graph: the three projections of one sequence share the operations that find out its length.
    """
    size = tensor.shape[axis]
    if size is not None:
        return size
    if keras.backend.backend() != "tensorflow" or isinstance(tensor, keras.KerasTensor):
        return ops.shape(tensor)[axis]
    tf = importlib.import_module("tensorflow")
    if tf.executing_eagerly():
        return tf.shape(tensor)[axis]
    graph = tf.compat.v1.get_default_graph()
    known = getattr(graph, "_attention_zoo_sizes", None)
    if known is None:  # it lives as long as the graph
        known = graph._attention_zoo_sizes = {}
    key, axis = tensor.ref(), axis % len(tensor.shape)
    if (key, None) not in known:
        known[key, None] = tf.shape(tensor)
    if (key, axis) not in known:
        known[key, axis] = known[key, None][axis]
    return known[key, axis]


def as_tensor(value):
    """Returns the value of TensorFlow's own variables, which an export holds, and anything else as it is."""
    if value is None or keras.backend.backend() != "tensorflow":
        return value
    tf = importlib.import_module("tensorflow")
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


def read_once(variables):
    """Returns a context in which variables are what they are now: a loop in a graph reads them before it begins."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    tf = importlib.import_module("tensorflow")

    def read():
        return [(variable, tf.convert_to_tensor(variable.value)) for variable in variables]

    class ReadOnce(keras.StatelessScope):
        """Reads what was read before; what is assigned is assigned, and read anew."""

        def add_update(self, update):
            variable, value = update
            self.state_mapping.pop(id(variable), None)
            variable._direct_assign(value)

    # Whatever the layer around this computes in, variables are read in their own dtype, and cast where they are used.
    return ReadOnce(state_mapping=autocasting("float32", read)())


class _Autocast(keras.layers.Layer):
    """Makes Keras cast the weights that a function reads, when recomputed outside of the layer's call as inside it."""

    def call(self, function):
        return function()


def autocasting(dtype, function):
    """Returns `function` with the weights that it reads cast to `dtype`, wherever it is called."""
    autocast = _Autocast(name="autocast", dtype=f"mixed_{dtype}" if dtype in ("float16", "bfloat16") else dtype)
    return lambda *inputs: autocast(function=functools.partial(function, *inputs))
