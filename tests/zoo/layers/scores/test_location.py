"""The score that depends on the places of keys."""

import functools

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, tensorflow_only, to_numpy
from support.tiers import nightly_unless

from zoo import layers


def test_a_location_score_knows_its_places():
    score = layers.LocationScore(5)
    query, key = random_array((2, 3, 11), 1), random_array((2, 5, 17), 2)
    whole = to_numpy(score(query, key))
    # Fewer keys are the first places; what stands there plays no part, not even if it is no number.
    np.testing.assert_array_equal(to_numpy(score(query, np.full((2, 3, 17), np.nan, "float32"))), whole[..., :3])
    message = "max_length.*5.*7 keys"
    with pytest.raises(ValueError, match=message):
        score(query, random_array((2, 7, 17), 3))
    for shapes in ([(2, 3, 11), (2, 7, 17)], [(2, 13, 3, 11), (2, 13, 7, 17)]):
        with pytest.raises(ValueError, match=message):
            layers.LocationScore(5).build(*shapes)
    with pytest.raises(ValueError, match=message):
        layers.Attention(layers.LocationScore(5))(keras.Input((None, 11)), keras.Input((7, 11)))


def test_a_location_score_takes_keys_of_unknown_number():
    # On PyTorch, Keras traces unknown lengths with numbers of its own, which are larger than these tables.
    query, value = keras.Input((None, 11)), keras.Input((None, 13))
    model = keras.Model([query, value], layers.Attention(layers.LocationScore(5))(query, value))
    assert model([random_array((2, 3, 11), 1), random_array((2, 5, 13), 2)]).shape == (2, 3, 13)


@tensorflow_only("only TensorFlow has graphs of unknown lengths")
@pytest.mark.parametrize(
    "policy", nightly_unless("mixed_float16".__eq__, ["float32", "mixed_bfloat16", "mixed_float16"])
)
def test_nobody_attends_to_places_that_have_no_score(policy):
    import tensorflow as tf

    layer = layers.MultiHeadAttention(7, 19, score=layers.LocationScore(3, dtype=policy), dtype=policy)
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    layer.build((2, None, 11), (2, None, 11))
    shapes = [tf.TensorSpec([None, None, 11]), tf.TensorSpec([None, None, 11]), tf.TensorSpec([None, None], tf.bool)]

    @functools.partial(tf.function, input_signature=shapes)
    def run(query, value, mask):
        return layer(query, value, value_mask=mask, return_attention_scores=True)

    mask = np.array([[True] * 5, [False] * 3 + [True] * 2])
    output, weights = (to_numpy(result) for result in run(query, value, mask))
    assert np.all(np.isfinite(output)) and not np.any(weights[0, ..., 3:])
    expected = to_numpy(layer(query[:1], value[:1, :3]))
    np.testing.assert_allclose(output[:1], expected, atol=1e-6 if policy == "float32" else 1e-2)
    assert not np.any(weights[1]) and not np.any(output[1])  # with nothing to attend to, as everywhere


def _unknown_lengths(layer):
    """Returns a graph of a layer whose sizes are known when it runs."""
    import tensorflow as tf

    layer.build((2, None, 11), (2, None, 11))
    return tf.function(
        lambda query, value, bias: layer(query, value, attention_bias=bias, return_attention_scores=True),
        input_signature=[tf.TensorSpec([None] * 2 + [size]) for size in (11, 11, None)],
        autograph=False,
    )


@tensorflow_only("only TensorFlow has graphs of unknown lengths")
@pytest.mark.parametrize(("implementation", "share_score"), [("dense", False), ("blockwise", True)])
def test_no_bias_moves_weight_to_places_that_have_no_score(implementation, share_score):
    layer = layers.MultiHeadAttention(
        7, 19, score=layers.LocationScore(3), implementation=implementation, share_score=share_score
    )
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    bias = np.where(np.arange(5) < 3, -1e9, 0.0).astype("float32") * np.ones((1, 3, 1), "float32")
    output, weights = (to_numpy(result) for result in _unknown_lengths(layer)(query, value, bias))
    expected = layer(query, value[:, :3], attention_bias=bias[..., :3], return_attention_scores=True)
    assert not np.any(weights[..., 3:])
    np.testing.assert_allclose(output, to_numpy(expected[0]), atol=1e-6)
    np.testing.assert_allclose(weights[..., :3], to_numpy(expected[1]), atol=1e-6)


def test_a_score_in_float32_serves_a_layer_in_half_precision():
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    exact = layers.Attention(layers.LocationScore(7))
    expected = to_numpy(exact(query, value))
    for policy in ("mixed_float16", "mixed_bfloat16"):
        layer = layers.Attention(layers.LocationScore(7), dtype=policy)
        layer.build(query.shape, value.shape)
        layer.set_weights(exact.get_weights())
        output = layer(query, value)
        assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
        np.testing.assert_allclose(to_numpy(output), expected, atol=0.02)
