"""What a case of the layer contract is, and what its checks share. Runs on every backend.

Sizes are distinct primes, so that no transposition passes unseen: B 2, T 3, S 5, N 7, query 11, value 13, key 17,
head 19 (value 23, query 37), output 29, hidden 31.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops


@dataclass(frozen=True)
class Case:
    """A layer with options of its own.

    Args:
        name: Name of the case.
        covers: The public class it stands for.
        make: Returns the layer, given a dtype policy.
        inputs: Shapes of the tensors that `build` and `call` take, in order.
        output: Shape of the output.
        parameters: Number of weights, worked out by hand.
        weights: Shape of the attention weights, for layers that return them.
        hides: For each mask argument, the inputs that it hides; the mask has the first two axes of the first of them.
        flat: Ends of the paths of weights whose gradient is zero by nature.
        whole: Whether the weights of a row sum to 1.
        signed: Whether weights have either sign, and rows any sum.
        sparse: Whether weights may be zero where a query may attend.
        part: Returns the covered layer where `make` wraps it.
    """

    name: str
    covers: type
    make: Callable[[Any], keras.layers.Layer]
    inputs: dict[str, tuple[int, ...]]
    output: tuple[int, ...]
    parameters: int
    weights: tuple[int, ...] | None = None
    hides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    flat: tuple[str, ...] = ()
    whole: bool = True
    signed: bool = False
    sparse: bool = False
    part: Callable[[Any], keras.layers.Layer] = lambda layer: layer


DROPOUT = {"dropout": 0.1, "seed": 41}
QUERY_VALUE_KEY = {"query": (2, 3, 11), "value": (2, 5, 13), "key": (2, 5, 17)}
HIDES = {"query_mask": ("query",), "value_mask": ("value", "key"), "key_mask": ("value", "key")}
ATTENTION = {"inputs": QUERY_VALUE_KEY, "hides": HIDES}
# A constant added to all scores of a row changes nothing, and query · bias of the key is one.
FLAT = ("key/bias",)


def random_array(shape, seed):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype("float32")


def arrays(case, seed=0):
    """Returns random inputs, by name."""
    return {name: random_array(shape, [seed, index]) for index, (name, shape) in enumerate(case.inputs.items())}


def random_mask(shape, seed=0):
    """Returns a boolean mask [B, L] with the first position of every row allowed and another one forbidden."""
    mask = np.random.default_rng(seed).random(shape) < 0.5
    mask[:, 0], mask[:, -1] = True, False
    return mask


def case_masks(case, seed=0):
    """Returns a random mask for each mask argument."""
    return {name: random_mask(case.inputs[hidden[0]][:2], seed) for name, hidden in case.hides.items()}


def own_masks(case):
    """Returns masks of which each hides a place that no other does, and the last one all of the first sequence."""
    masks = {}
    for number, (name, hidden) in enumerate(case.hides.items()):
        masks[name] = np.ones(case.inputs[hidden[0]][:2], bool)
        masks[name][:, -1 - number] = False
    for mask in list(masks.values())[-1:]:
        mask[0] = False
    return masks


def poisoned(case, inputs, masks):
    """Returns inputs with huge random numbers where masks hide them."""
    inputs = dict(inputs)
    for name, mask in masks.items():
        for hidden in case.hides[name]:
            bad = 1e4 * random_array(inputs[hidden].shape, 89)
            inputs[hidden] = np.where(mask[:, :, None], inputs[hidden], bad)
    return inputs


def randomize(layer, seed=0):
    """Gives every weight random values: fresh biases are zero and fresh scales one, which would hide mistakes."""
    layer.set_weights([random_array(weight.shape, [seed, 7, i]) * 0.7 for i, weight in enumerate(layer.weights)])
    return layer


def build(case, policy="float32"):
    """Returns the built layer of a case, with random weights that depend on the case alone."""
    layer = case.make(policy)
    layer.build(*case.inputs.values())
    return randomize(layer)


graph_and_xla = pytest.mark.parametrize(
    "xla", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["graph", "xla"]
)
_built = {}


def tensorflow_only(reason):
    """Returns a mark that skips a test on other backends.

    Args:
        reason: Why it needs TensorFlow.
    """
    return pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=reason)


def few_on_jax(chosen):
    """Skips a test on JAX unless it is among the few chosen: JAX compiles each operation for each size, for minutes."""
    if keras.backend.backend() == "jax" and not chosen:
        pytest.skip("JAX compiles for minutes; others of the kind run")


def built(case):
    """Returns what `build` returns, the same each time: for tests that leave the layer as it is."""
    if case.name not in _built:
        _built[case.name] = build(case)
    return _built[case.name]


def call(case, layer, inputs, scores=None, **options):
    """Calls a layer with its weights asked for where it has any; returns a tuple of NumPy float32 arrays."""
    if case.weights and scores is not False:
        options["return_attention_scores"] = True
    results = layer(*inputs.values(), **options)
    return tuple(to_numpy(result) for result in (results if isinstance(results, tuple) else (results,)))


def to_numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def gradients(loss, variables):
    """Returns the gradients of the scalar `loss()` with respect to Keras variables; every one must have one."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        found = tape.gradient(value, [variable.value for variable in variables])
    elif backend == "jax":
        import jax

        def stateless(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return loss()

        found = jax.grad(stateless)([variable.value for variable in variables])
    else:
        for variable in variables:
            variable.value.grad = None
        loss().backward()
        found = [variable.value.grad for variable in variables]
    assert all(gradient is not None for gradient in found)
    return [ops.convert_to_numpy(gradient) for gradient in found]


def compiled(function, xla):
    """Returns `function` of positional arrays as a graph, with XLA if asked; on PyTorch as it is."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=xla, autograph=False)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function
