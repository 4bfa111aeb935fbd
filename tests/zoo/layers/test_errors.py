"""Options that are refused, and initializers."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo import layers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.MultiHeadAttention(0, 4), "`num_heads` must be a positive integer. Received: num_heads=0."),
        (lambda: layers.MultiHeadAttention(2, 4.0), "`key_dim` must be a positive integer. Received: key_dim=4.0."),
        (
            lambda: layers.MultiHeadAttention(2, 4, value_dim=0),
            "`value_dim` must be a positive integer. Received: value_dim=0.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, output_dim=-1),
            "`output_dim` must be a positive integer. Received: output_dim=-1.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, dropout=1.0),
            r"`dropout` must be in \[0, 1\). Received: dropout=1.0.",
        ),
        (
            lambda: layers.ScaledDotProductAttention(dropout=-0.1),
            r"`dropout` must be in \[0, 1\). Received: dropout=-0.1.",
        ),
        (lambda: layers.AdditiveAttention(0), "`units` must be a positive integer. Received: units=0."),
        (lambda: layers.AdditiveScore("8"), "`units` must be a positive integer. Received: units=8."),
        (
            lambda: layers.FeedForward(-1),
            "`intermediate_dim` must be a positive integer. Received: intermediate_dim=-1.",
        ),
        (lambda: layers.Maxout(0), "`group_size` must be a positive integer. Received: group_size=0."),
        (
            lambda: layers.Maxout(2)(np.zeros((2, 3))),
            r"The last axis must be a multiple of `group_size`=2. Received: input_shape=\(2, 3\).",
        ),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_base_classes_say_what_to_override():
    with pytest.raises(NotImplementedError, match="Score must override `compare`"):
        layers.Score().compare(None, None)
    base = layers.BaseAttention()
    for method in (base.project_query, base.project_memory):
        with pytest.raises(NotImplementedError, match="BaseAttention must override `project_"):
            method(None)
    with pytest.raises(NotImplementedError, match="BaseAttention must override `compare`"):
        base.compare(None, None)


def test_a_layer_of_ones_own_needs_one_method_only():
    class CosineScore(layers.Score):
        def compare(self, query, key):
            return ops.matmul(ops.normalize(query), ops.swapaxes(ops.normalize(key), -1, -2))

    query, value = np.eye(2, dtype="float32")[None], np.array([[[3.0, 0.0], [0.0, 5.0]]], "float32")
    _, weights = layers.Attention(CosineScore())(query, value, return_attention_scores=True)
    expected = np.exp(np.eye(2)) / np.exp(np.eye(2)).sum(axis=1)
    np.testing.assert_allclose(ops.convert_to_numpy(weights)[0], expected, rtol=1e-6)


def test_weights_of_equal_shape_do_not_start_equal():
    glorot = keras.initializers.GlorotUniform()
    for initializer in ("glorot_uniform", glorot):
        score = layers.AdditiveScore(7, kernel_initializer=initializer)
        score.build((2, 3, 5), (2, 3, 5))
        heads = layers.MultiHeadAttention(7, 5, kernel_initializer=initializer)
        heads.build((2, 3, 11), (2, 3, 11))
        for first, second in ((score.query_dense, score.key_dense), (heads.query_dense, heads.key_dense)):
            assert not np.array_equal(ops.convert_to_numpy(first.kernel), ops.convert_to_numpy(second.kernel))


def test_any_callable_initializes():
    layer = layers.MultiHeadAttention(2, 3, kernel_initializer=lambda shape, dtype=None: ops.full(shape, 0.5, dtype))
    layer.build((2, 3, 5), (2, 3, 5))
    assert np.all(ops.convert_to_numpy(layer.output_dense.kernel) == 0.5)


@pytest.mark.parametrize("mode", ["int8", "lora"])
def test_projections_quantize_and_adapt(mode):
    layer = layers.MultiHeadAttention(2, 8)
    values = np.random.default_rng(1).uniform(-1.0, 1.0, (2, 3, 16)).astype("float32")
    expected = ops.convert_to_numpy(layer(values, values))
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        dense.enable_lora(3) if mode == "lora" else dense.quantize(mode)
    # LoRA starts as the identity; int8 costs some accuracy.
    result = ops.convert_to_numpy(layer(values, values))
    np.testing.assert_allclose(result, expected, atol=1e-6 if mode == "lora" else 0.03)
    assert mode == "lora" or not np.array_equal(result, expected)
