"""Keras: attention layers on TensorFlow or JAX, also those of this library, and turns within `fit`."""

import functools
import importlib
import sys
from collections.abc import Mapping

import keras

from benchmarks.peers.attention_pass import random_arrays, serve_attention, shapes
from benchmarks.peers.batches import WARM_UP, number_of_weights
from benchmarks.runner.worker import Unavailable

CALLED_WITH_A_LIST = ("keras.layers.Attention", "keras.layers.AdditiveAttention")
CALLED_WITH_A_SEQUENCE = ("zoo.layers.AttentionPooling", "keras.layers.GRU", "keras.layers.Conv1D")


class SeparateHeads(keras.layers.Layer):
    """Multi-head attention with a layer for each head: `Σ_i head_i W_O⁽ⁱ⁾ = [head_1; …; head_h] W_O`."""

    def __init__(self, num_heads, key_dim, **options):
        super().__init__(**options)
        attention = find("zoo.layers.MultiHeadAttention")
        self.heads = [attention(1, key_dim, dtype=self.dtype_policy) for _ in range(num_heads)]

    def call(self, query, value):
        return sum(head(query, value) for head in self.heads)


def find(path):
    """Returns the object of a path such as `keras.layers.Attention`; raises `Unavailable` if there is none."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise Unavailable(f"{module} has no {name}") from None


def make_layer(description, sizes, policy):
    """Returns a layer from its `class` and options: a number, the name of a size, or the description of a layer."""
    options = {
        name: make_layer(value, sizes, policy) if isinstance(value, Mapping) else sizes.get(value, value)
        for name, value in description.items()
        if name != "class"
    }
    return find(description["class"])(**options, dtype=policy)


def apply(path, function, tensors, **options):
    """Returns the output of a layer, or of a function of query, key and value.

    Args:
        path: The path of the layer or function.
        function: The layer or function.
        tensors: Query, key and value, or one sequence.
        options: Further arguments of a layer that takes query and value.
    """
    if path in CALLED_WITH_A_SEQUENCE or path.startswith("keras.ops."):
        return function(*tensors)
    query, key, value = tensors if len(tensors) == 3 else (tensors[0], None, tensors[0])
    if path in CALLED_WITH_A_LIST:
        return function([query, value] if key is None else [query, value, key])
    return function(query, value, **options) if key is None else function(query, value, key, **options)


def tensorflow_pass(function, input_shapes, apply, half=False):
    """Returns the pass of a layer or a function in a TensorFlow graph.

    Args:
        function: The layer or function.
        input_shapes: The shapes of its inputs, with the length on axis 1.
        apply: Function that calls `function` with a list of tensors.
        half: Whether inputs are bfloat16.
    """
    import tensorflow as tf

    inputs = [tf.cast(array, "bfloat16" if half else "float32") for array in random_arrays(input_shapes)]
    built = apply(function, [tensor[:, :2] for tensor in inputs])  # builds the layer, with little memory
    has_length = len(built.shape) == len(input_shapes[0])  # pooling removes it
    shape = (built.shape[0], input_shapes[0][1], *built.shape[2:]) if has_length else built.shape
    direction = tf.cast(random_arrays([shape])[0], built.dtype)

    @tf.function
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = apply(function, list(tensors))
        sources = [*tensors, *(variable.value for variable in getattr(function, "trainable_variables", ()))]
        return tape.gradient(output, sources, direction)

    graph = run.get_concrete_function(*inputs)  # traced here, since tracing is not part of the pass
    return lambda: graph(*inputs)[0].numpy()


def attend(channel):
    """Runs passes of the `layer` of the task, or of its `function`, on TensorFlow.

    A layer of this library is that of the `checkout`, if the task has one.
    """
    if "checkout" in channel.task:
        sys.path.insert(0, channel.task["checkout"])

    def make_pass(sizes):
        policy = "mixed_bfloat16" if sizes["half"] else "float32"
        if "layer" in channel.task:
            path, function = channel.task["layer"]["class"], make_layer(channel.task["layer"], sizes, policy)
        else:
            path, function = channel.task["function"], find(channel.task["function"])
        input_shapes, options = shapes(sizes, channel.task["axes"]), channel.task.get("call", {})
        return tensorflow_pass(function, input_shapes, functools.partial(apply, path, **options), sizes["half"])

    serve_attention(channel, make_pass)


def attend_eagerly(channel):
    """Calls the `layer` of the task eagerly and without gradients, `calls` times."""
    import tensorflow as tf

    def make_pass(sizes):
        path, layer = channel.task["layer"]["class"], make_layer(channel.task["layer"], sizes, "float32")
        inputs = [tf.constant(array) for array in random_arrays(shapes(sizes, channel.task["axes"]))]

        def run():
            for _ in range(channel.task["calls"]):
                output = apply(path, layer, inputs)
            output.numpy()

        return run

    serve_attention(channel, make_pass)


def attend_on_jax(channel):
    """Runs passes of a layer without weights on JAX, on a GPU unless sizes are tiny."""
    import jax

    if not channel.task.get("tiny") and jax.default_backend() != "gpu":
        raise Unavailable("there is no GPU for JAX")

    def make_pass(sizes):
        dtype = "bfloat16" if sizes["half"] else "float32"
        layer = make_layer(channel.task["layer"], sizes, "mixed_bfloat16" if sizes["half"] else "float32")
        input_shapes = shapes(sizes, channel.task["axes"])
        inputs = [jax.numpy.asarray(array, dtype) for array in random_arrays(input_shapes)]
        direction = jax.numpy.asarray(random_arrays([input_shapes[0]])[0], dtype)

        @jax.jit
        def run(tensors, direction):
            _, backward = jax.vjp(lambda query, key, value: layer(query, value, key), *tensors)
            return backward(direction)

        return lambda: jax.block_until_ready(run(inputs, direction))

    serve_attention(channel, make_pass)


def fit_on_text(channel, model, read, packages):
    """Trains an epoch of a text at each request; `read` returns the arguments of `fit`."""

    def train(limit=None):
        return model.fit(**read(), steps_per_epoch=limit, verbose=0, shuffle=False).history["loss"][0]

    loss = train(WARM_UP)
    channel.introduce(packages, parameters=number_of_weights(model), loss=loss)
    channel.serve(train, lambda loss: {"loss": loss})


class StepsOnRequest(keras.callbacks.Callback):
    """Makes each batch of `fit` wait for a request; the first one, which compiles, is the introduction."""

    def __init__(self, channel, packages):
        super().__init__()
        self.channel, self.packages = channel, packages

    def on_train_batch_begin(self, batch, logs=None):
        if batch and self.channel.receive() is None:
            self.channel.leave()  # without the remaining batches of `fit`
        self.channel.begin()

    def on_train_batch_end(self, batch, logs=None):
        loss = float(logs["loss"])
        if batch:
            self.channel.send(**self.channel.taken(), loss=loss)
        else:
            self.channel.introduce(self.packages, parameters=number_of_weights(self.model), loss=loss)
