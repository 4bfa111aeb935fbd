"""What the tests of the models share."""

import keras
import numpy as np
from keras import ops

import zoo

# A constant added to all scores of a row changes nothing, and query · bias of the key is one.
FLAT = "key/bias"


def names_of(task):
    """Returns the registered names of a task."""
    return [name for name in zoo.list_models() if zoo.get_spec(name).task == task]


def create(name, dtype="float32", seed=0, **options):
    """Returns a model whose weights are all random, biases included."""
    model = zoo.create_model(name, dtype=dtype, **options)
    chance = np.random.default_rng(seed)
    model.set_weights([chance.uniform(-0.7, 0.7, weight.shape).astype("float32") for weight in model.weights])
    return model


def numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def gradients(loss, model):
    """Returns the gradients of the scalar `loss()` by the path of the weight; every weight must have one."""
    variables = model.trainable_variables
    values = [variable.value for variable in variables]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        found = tape.gradient(value, values)
    elif keras.backend.backend() == "jax":
        import jax

        def stateless(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return loss()

        found = jax.grad(stateless)(values)
    else:
        import torch

        found = torch.autograd.grad(loss(), values, allow_unused=True)
    assert all(gradient is not None for gradient in found)
    return {variable.path: ops.convert_to_numpy(g) for variable, g in zip(variables, found, strict=True)}


def check_gradients(outputs, model, weights=1.0):
    """Checks that `outputs()`, weighted at random, has a gradient in every weight."""

    def loss():
        found = outputs()
        direction = np.random.default_rng(5).normal(size=tuple(found.shape)) * weights
        return ops.sum(ops.cast(found, "float32") * ops.convert_to_tensor(direction, "float32"))

    for path, gradient in gradients(loss, model).items():
        assert np.all(np.isfinite(gradient)), path
        assert np.abs(gradient).max() > 1e-5 or path.endswith(FLAT), path


def compiled(function, count=1):
    """Returns a function of ids as a graph that knows no sizes, or where that cannot be, as it is compiled there.

    Args:
        function: Takes so many arrays of ids.
        count: How many.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, input_signature=[tf.TensorSpec([None, None], tf.int32)] * count, autograph=False)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function
