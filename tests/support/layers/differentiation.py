"""Functions of two dicts of tensors on each backend: with gradients, without state, as graphs that know no lengths."""

import keras

BACKEND = keras.backend.backend()


def with_unknown_lengths(function):
    """Returns a function of two dicts of tensors as a TensorFlow graph that knows their last axes, at most."""
    import tensorflow as tf

    def run(floats, others):
        specs = [{name: spec(name, each) for name, each in tensors.items()} for tensors in (floats, others)]
        return tf.function(function, autograph=False, input_signature=specs)(floats, others)

    def spec(name, tensor):
        shape = [None] * len(tensor.shape)
        if name in ("query", "value", "key", "earlier"):
            shape[-1] = tensor.shape[-1]
        return tf.TensorSpec(shape, tensor.dtype)

    return run


def call_stateless(layer, function, variables=(), values=()):
    """Returns `function()`; JAX allows no change of a seed while it traces."""
    if BACKEND != "jax":
        return function()
    seeds = layer.non_trainable_variables
    mapping = [*((seed, seed.value) for seed in seeds), *zip(variables, values, strict=True)]
    with keras.StatelessScope(state_mapping=mapping):
        return function()


def _tensorflow_gradients(function, loss, layer):
    import tensorflow as tf

    def run(floats, others):
        with tf.GradientTape() as tape:
            tape.watch(list(floats.values()))
            results = function(floats, others)
            total = loss(results)
        sources = {**floats, **{variable.path: variable.value for variable in layer.trainable_variables}}
        found = tape.gradient(total, list(sources.values()), unconnected_gradients="zero")
        return results, dict(zip(sources, map(tf.convert_to_tensor, found), strict=True))

    return run


def _jax_gradients(function, loss, layer):
    import jax

    variables = layer.trainable_variables

    def run(floats, others):
        def stateless(floats, values):
            results = call_stateless(layer, lambda: function(floats, others), variables, values)
            return loss(results), results

        values = [variable.value for variable in variables]
        found, results = jax.grad(stateless, argnums=(0, 1), has_aux=True)(floats, values)
        return results, {**found[0], **dict(zip([variable.path for variable in variables], found[1], strict=True))}

    return run


def _torch_gradients(function, loss, layer):
    import torch

    def run(floats, others):
        floats = {name: tensor.detach().requires_grad_() for name, tensor in floats.items()}
        results = function(floats, others)
        sources = {**floats, **{variable.path: variable.value for variable in layer.trainable_variables}}
        found = torch.autograd.grad(loss(results), list(sources.values()), allow_unused=True)
        found = [torch.zeros_like(x) if g is None else g for x, g in zip(sources.values(), found, strict=True)]
        return tuple(each.detach() for each in results), dict(zip(sources, found, strict=True))

    return run


# Each makes a function that returns results and their gradients, by names of floats and paths of weights.
DIFFERENTIATED = {"tensorflow": _tensorflow_gradients, "jax": _jax_gradients, "torch": _torch_gradients}
