"""The cases of the layer contract, and what its checks share. Runs on every backend.

Sizes are distinct primes, so that no transposition passes unseen: B 2, T 3, S 5, N 7, query 11, value 13, key 17,
head 19 (value 23), output 29, hidden 31.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo import layers


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class Decoder(keras.layers.Layer):
    """`RecurrentAttentionCell` in `keras.layers.RNN`, with memory and states as arguments like any other layer's."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        self.rnn = keras.layers.RNN(cell, return_sequences=True, dtype=self.dtype_policy)

    def build(self, inputs_shape, memory_shape, state_shape, carry_shape=None):
        self.rnn.build(inputs_shape)

    def call(self, inputs, memory, state, carry=None, memory_mask=None, training=None):
        inner = [state] if carry is None else [state, carry]
        states = self.cell.initial_states(memory, memory_mask, inner)
        return self.rnn(inputs, initial_state=states, training=training)

    def get_config(self):
        return {**super().get_config(), "cell": keras.saving.serialize_keras_object(self.cell)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "cell": keras.saving.deserialize_keras_object(config["cell"])})


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
    part: Callable[[Any], keras.layers.Layer] = lambda layer: layer


_DROPOUT = {"dropout": 0.1, "seed": 41}
_QUERY_VALUE_KEY = {"query": (2, 3, 11), "value": (2, 5, 13), "key": (2, 5, 17)}
_HIDES = {"query_mask": ("query",), "value_mask": ("value", "key"), "key_mask": ("value", "key")}
_ATTENTION = {"inputs": _QUERY_VALUE_KEY, "hides": _HIDES}
_ENCODER = {"inputs": {"inputs": (2, 3, 11)}, "output": (2, 3, 11), "hides": {"mask": ("inputs",)}}
_DECODER = {
    "inputs": {"inputs": (2, 3, 11), "memory": (2, 5, 13)},
    "output": (2, 3, 11),
    "weights": (2, 7, 3, 5),
    "hides": {"mask": ("inputs",), "memory_mask": ("memory",)},
}
_RECURRENT = {
    "output": (2, 3, 7 + 13),
    "hides": {"memory_mask": ("memory",)},
    "part": lambda layer: layer.cell,
}
# A constant added to all scores of a row changes nothing, and query · bias of the key is one.
_FLAT = ("key/bias",)


def _multi_head(policy, name=None):
    return layers.MultiHeadAttention(7, 19, dtype=policy, name=name)


def _feed_forward(policy):
    return layers.FeedForward(31, dtype=policy, name="feed_forward")


def _encoder(attention, policy, **options):
    return layers.TransformerEncoderBlock(attention, _feed_forward(policy), dtype=policy, **options)


def _decoder(policy, **options):
    parts = _multi_head(policy, "self_attention"), _multi_head(policy, "cross_attention"), _feed_forward(policy)
    return layers.TransformerDecoderBlock(*parts, dtype=policy, **options)


def _recurrent(cell_class, policy):
    inner = cell_class(7, dtype=policy)
    attention = layers.AdditiveAttention(31, dtype=policy)
    return Decoder(layers.RecurrentAttentionCell(inner, attention, memory_dim=13, dtype=policy), dtype=policy)


CASES = [
    Case(
        "scaled_dot_score",
        layers.ScaledDotScore,
        lambda policy: layers.ScaledDotScore(dtype=policy),
        {"query": (2, 3, 11), "key": (2, 5, 11)},
        (2, 3, 5),
        0,
    ),
    Case(
        "additive_score",
        layers.AdditiveScore,
        lambda policy: layers.AdditiveScore(31, use_bias=False, kernel_initializer="he_normal", dtype=policy),
        {"query": (2, 3, 11), "key": (2, 5, 17)},
        (2, 3, 5),
        31 * (11 + 17 + 1),
    ),
    Case(
        "additive_attention",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(
            31, use_bias=False, kernel_initializer="he_normal", dtype=policy, **_DROPOUT
        ),
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=31 * (11 + 17 + 1),
        **_ATTENTION,
    ),
    Case(
        "attention",
        layers.Attention,
        lambda policy: layers.Attention(layers.AdditiveScore(31, dtype=policy), dtype=policy, **_DROPOUT),
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=31 * (11 + 1 + 17 + 1),
        **_ATTENTION,
    ),
    Case(
        "scaled_dot_product_attention",
        layers.ScaledDotProductAttention,
        lambda policy: layers.ScaledDotProductAttention(dtype=policy, **_DROPOUT),
        {**_QUERY_VALUE_KEY, "key": (2, 5, 11)},
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=0,
        hides=_HIDES,
    ),
    Case(
        "multi_head_attention",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy),
        output=(2, 3, 11),
        weights=(2, 7, 3, 5),
        parameters=7 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (7 * 19 + 1) * 11,
        flat=_FLAT,
        **_ATTENTION,
    ),
    Case(
        "multi_head_additive_attention",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            num_heads=7,
            key_dim=19,
            value_dim=23,
            output_dim=29,
            score=layers.AdditiveScore(31, dtype=policy),
            use_bias=False,
            kernel_initializer="he_normal",
            dtype=policy,
            **_DROPOUT,
        ),
        output=(2, 3, 29),
        weights=(2, 7, 3, 5),
        parameters=7 * (19 * 11 + 19 * 17 + 23 * 13 + 23 * 29) + 31 * (19 + 1 + 19 + 1),
        **_ATTENTION,
    ),
    Case(
        "feed_forward",
        layers.FeedForward,
        lambda policy: layers.FeedForward(31, activation="gelu", dtype=policy, **_DROPOUT),
        {"inputs": (2, 3, 11)},
        (2, 3, 11),
        (11 + 1) * 31 + (31 + 1) * 11,
    ),
    Case(
        "maxout",
        layers.Maxout,
        lambda policy: layers.Maxout(group_size=3, dtype=policy),
        {"inputs": (2, 5, 33)},
        (2, 5, 11),
        0,
    ),
    Case(
        "sinusoidal_positions",
        layers.SinusoidalPositions,
        lambda policy: layers.SinusoidalPositions(max_wavelength=97.0, dtype=policy),
        {"inputs": (2, 5, 22)},
        (2, 5, 22),
        0,
    ),
    Case(
        "pre_norm_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(_multi_head(policy), policy, normalize_first=True, epsilon=1e-3, **_DROPOUT),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 2 * 22,
        flat=_FLAT,
        **_ENCODER,
    ),
    Case(
        "post_norm_single_head_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(layers.AdditiveAttention(31, dtype=policy), policy),
        weights=(2, 3, 3),
        parameters=31 * (11 + 1 + 11 + 1) + 12 * 31 + 32 * 11 + 2 * 22,
        **_ENCODER,
    ),
    Case(
        "pre_norm_decoder_block",
        layers.TransformerDecoderBlock,
        lambda policy: _decoder(policy, normalize_first=True, epsilon=1e-3, **_DROPOUT),
        parameters=3 * 12 * 133 + 134 * 11 + (12 + 14 + 14) * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 3 * 22,
        flat=_FLAT,
        **_DECODER,
    ),
    Case(
        "post_norm_decoder_block",
        layers.TransformerDecoderBlock,
        lambda policy: _decoder(policy),
        parameters=3 * 12 * 133 + 134 * 11 + (12 + 14 + 14) * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 3 * 22,
        flat=_FLAT,
        **_DECODER,
    ),
    Case(
        "recurrent_attention_cell_gru",
        layers.RecurrentAttentionCell,
        lambda policy: _recurrent(keras.layers.GRUCell, policy),
        {"inputs": (2, 3, 11), "memory": (2, 5, 13), "state": (2, 7)},
        parameters=3 * 7 * (11 + 13 + 7 + 2) + 31 * (7 + 1 + 13 + 1),
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_lstm",
        layers.RecurrentAttentionCell,
        lambda policy: _recurrent(keras.layers.LSTMCell, policy),
        {"inputs": (2, 3, 11), "memory": (2, 5, 13), "state": (2, 7), "carry": (2, 7)},
        parameters=4 * 7 * (11 + 13 + 7 + 1) + 31 * (7 + 1 + 13 + 1),
        **_RECURRENT,
    ),
]
ATTENTION_CASES = [case for case in CASES if issubclass(case.covers, layers.BaseAttention)]
MASKED_CASES = [case for case in CASES if case.hides]


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


def randomize(layer, seed=0):
    """Gives every weight random values: fresh biases are zero and fresh scales one, which would hide mistakes."""
    layer.set_weights([random_array(weight.shape, [seed, 7, i]) * 0.7 for i, weight in enumerate(layer.weights)])
    return layer


def build(case, policy="float32"):
    """Returns the built layer of a case, with random weights that depend on the case alone."""
    layer = case.make(policy)
    layer.build(*case.inputs.values())
    return randomize(layer)


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

        return tf.function(function, jit_compile=xla)
    if backend == "jax":
        import jax

        return jax.jit(function)
    return function
