"""Attention that other layers of Keras call, and attention that is not built yet."""

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, to_numpy
from support.layers.refusals import check_refusals

from zoo import layers

MASK = np.array([[[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]] * 2, bool)
OF_ONE_INPUT = {
    "self": lambda: layers.SelfAttention(7),
    "lightweight": lambda: layers.LightweightConvolution(2, 3),
    "dynamic": lambda: layers.DynamicConvolution(2, 3),
    "average": layers.AverageAttention,
    "ssru": layers.SSRU,
}


@pytest.mark.parametrize("name", OF_ONE_INPUT)
def test_time_distributed_hands_on_the_mask(name):
    layer, inputs = OF_ONE_INPUT[name](), random_array((2, 3, 5, 8), 1)
    found = to_numpy(keras.layers.TimeDistributed(layer)(inputs, mask=MASK))
    masks = ("query_mask", "value_mask") if name == "self" else ("query_mask",)
    for row in range(3):
        expected = to_numpy(layer(inputs[:, row], **dict.fromkeys(masks, MASK[:, row])))
        np.testing.assert_allclose(found[:, row], expected, rtol=1e-5, atol=1e-6)
        assert not np.any(expected[~MASK[:, row]])
        for given in ([inputs[:, row]], [inputs[:, row]] * 2):
            np.testing.assert_array_equal(to_numpy(layer(*given, mask=MASK[:, row])), expected)
    embedded = keras.layers.Embedding(11, 8, mask_zero=True)(np.array([[3, 4, 0, 0, 0]]))
    explicit = {mask: np.array([[1, 1, 0, 0, 0]], bool) for mask in masks}
    np.testing.assert_allclose(to_numpy(layer(embedded)), to_numpy(layer(to_numpy(embedded), **explicit)), atol=1e-6)


def test_time_distributed_attention_needs_a_value():
    wrapped = keras.layers.TimeDistributed(layers.DotAttention())
    with pytest.raises(ValueError, match="`value` is missing"):
        wrapped(random_array((2, 3, 5, 8), 1))


MAKERS = [
    lambda: layers.AdditiveAttention(7),
    lambda: layers.SelfAttention(7),
    lambda: layers.MultiHeadAttention(2, 3),
    lambda: layers.GroupedQueryAttention(4, 2, 3),
    lambda: layers.MultiHeadLatentAttention(2, 8, latent_dim=5, rope_dim=4),
    lambda: layers.DifferentialAttention(2, 3),
    lambda: layers.GatedLinearAttention(2, 3),
    lambda: layers.LocalAttention(2),
]


def test_a_memory_is_projected_by_a_layer_that_is_built():
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    for make in MAKERS:
        layer = make()
        name = type(layer).__name__
        check_refusals([(lambda layer=layer: layer.project_memory(value), "Build", name)])
        expected = to_numpy(layer(query, value))  # what was refused has spoilt nothing
        memory = layer.project_memory(value)
        found = layer(query, memory=memory, start_index=0 if name == "LocalAttention" else None)
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-5)


def test_a_cell_that_is_not_built_has_states():
    """It knows the size of its memory."""
    memory, inputs, first = random_array((2, 5, 3), 1), random_array((2, 4, 7), 2), random_array((2, 5), 3)
    for attention in (layers.AdditiveAttention(7), layers.MultiHeadAttention(2, 3)):
        cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(5), attention, memory_dim=3)
        states = cell.initial_states(memory, None, [first])
        output = keras.layers.RNN(cell)(inputs, initial_state=states)
        again = keras.layers.RNN(cell)(inputs, initial_state=cell.initial_states(memory, None, [first]))
        np.testing.assert_array_equal(to_numpy(output), to_numpy(again))
