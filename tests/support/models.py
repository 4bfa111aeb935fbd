"""What the tests of the models share."""

import functools
import json
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

import zoo

# A constant added to all scores of a row changes nothing, and query · bias of the key is one.
FLAT = "key/bias"


def names_of(task):
    """Returns the registered names of a task."""
    return [name for name in zoo.list_models() if zoo.get_spec(name).task == task]


class Case(NamedTuple):
    """A small model with random weights.

    Args:
        name: Its name.
        options: What it was made with.
        model: The model.
        expected: What it answers to the batch of the file of tests.
    """

    name: str
    options: dict
    model: keras.Model
    expected: np.ndarray


def fixtures(small, chosen, make, answer, every=None):
    """Returns two fixtures of cases, each made once: all of them, and for thorough tests those that are chosen.

    Those that are not are slow there.

    Args:
        small: Rows of options by the name of the model.
        chosen: Names and numbers of the rows that between them go all the ways that there are through the code.
        make: Returns the model of a name and options.
        answer: Returns what a model answers to the batch.
        every: Those that are not slow in the fixture of all. Default: all.
    """

    @functools.cache
    def case(name, number):
        model = make(name, small[name][number])
        return Case(name, small[name][number], model, answer(model))

    def fixture(fast):
        rows = [
            pytest.param((name, number), marks=() if fast is None or (name, number) in fast else pytest.mark.nightly)
            for name, options in small.items()
            for number in range(len(options))
        ]
        return pytest.fixture(scope="module", params=rows, ids="{0[0]}-{0[1]}".format)(
            lambda request: case(*request.param)
        )

    return fixture(every), fixture(chosen)


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


def check_config(model):
    """Checks that the configuration of a model makes one like it, and returns the configuration."""
    config = json.loads(json.dumps(model.get_config()))
    again = type(model).from_config(config)
    again.build()
    assert again.get_config() == config
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]
    return config


def check_gradients(outputs, model, weights=1.0):
    """Checks that `outputs()`, weighted at random, has a gradient in every weight."""
    direction = np.random.default_rng(5).normal(size=outputs().shape) * weights
    direction = ops.convert_to_tensor(direction, "float32")
    for path, gradient in gradients(lambda: ops.sum(outputs() * direction), model).items():
        assert np.all(np.isfinite(gradient)), path
        assert np.abs(gradient).max() > 1e-5 or path.endswith(FLAT), path


def check_dropout(outputs, expected):
    """Checks that `outputs(training)` are as expected out of training, and others in it."""
    np.testing.assert_array_equal(outputs(False), expected)
    trained = outputs(True)
    assert np.all(np.isfinite(trained)) and not np.allclose(trained, expected, atol=1e-3)


def compiled(function):
    """Returns a function of ids as a graph that knows no sizes, or where that cannot be, as it is compiled there."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return function
