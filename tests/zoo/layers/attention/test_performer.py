"""Random features: their distribution, and how well they estimate the softmax."""

import math

import numpy as np
import pytest
from keras import ops
from support.layers.contract import (
    random_array,
    randomize,
    to_numpy,
)
from support.layers.efficient import (
    B,
    D,
    H,
    N,
)

from zoo import layers
from zoo.layers.attention.performer import orthogonal_features


@pytest.mark.parametrize(("size", "count"), [(7, 7), (7, 17), (7, 3)])
def test_random_features_are_orthogonal_and_as_long_as_normal_vectors(size, count):
    vectors = to_numpy(orthogonal_features(size, count, seed=1, dtype="float32")).T
    assert vectors.shape == (count, size)
    for start in range(0, count, size):
        block = vectors[start : start + size]
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)
    # The mean square of a normal vector is its size, and each of its features has mean 0 and variance 1.
    many = to_numpy(orthogonal_features(size, 7000, seed=2, dtype="float32")).T
    np.testing.assert_allclose(np.mean(many**2, axis=0), 1.0, atol=0.07)
    np.testing.assert_allclose(np.mean(many, axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(np.var((many**2).sum(axis=1)), 2 * size, rtol=0.1)


def test_the_seed_decides_the_features_and_they_are_saved():
    first, second, other = (layers.PerformerAttention(2, 5, 13, seed=seed) for seed in (3, 3, 4))
    for layer in (first, second, other):
        layer.build((B, 3, D), (B, 3, D))
    features = [to_numpy(layer.random_features) for layer in (first, second, other)]
    np.testing.assert_array_equal(features[0], features[1])
    assert not np.array_equal(features[0], features[2])
    assert len(first.non_trainable_weights) == 1 and first.get_config()["seed"] == 3


@pytest.mark.nightly
def test_random_features_estimate_the_softmax_without_bias():
    """Averaged over many draws, the product of the features is the kernel; the error falls with 1 / √M."""
    rng, size, draws = np.random.default_rng(1), 7, 60
    query, keys = (rng.normal(size=(1, 1, length, size)).astype("float32") / 2 for length in (1, 11))
    exact = np.exp(query[0, 0] @ keys[0, 0].T / math.sqrt(size))
    # The relative variance with one vector, where no two of them are orthogonal (the paper's lemma 2).
    variance = np.exp(np.sum((query + keys)[0, 0] ** 2, axis=-1) / math.sqrt(size)) - 1
    for count in (28, 448):
        layer, estimates = layers.PerformerAttention(1, size, count, seed=1), []
        layer.build((1, 1, size), (1, 11, size))
        for seed in range(draws):
            vectors = orthogonal_features(size, count, seed=seed, dtype="float32")
            layer.random_features.assign(vectors)
            products = ops.matmul(layer.query_features(query), ops.swapaxes(layer.key_features(keys), -1, -2))
            # The largest feature of the query is made 1; here that factor counts.
            scaled = query[0, 0, 0] / size**0.25
            factor = math.exp(np.max(scaled @ to_numpy(vectors)) - scaled @ scaled / 2)
            estimates.append(to_numpy(products)[0, 0, 0] * factor / count)
        errors = np.array(estimates) / exact[0] - 1
        assert np.all(np.abs(errors.mean(axis=0)) < 4 * errors.std(axis=0) / math.sqrt(draws))
        assert 0.4 < np.sqrt(np.mean(errors**2) / np.mean(variance / count)) < 1.1


def test_many_features_come_close_to_softmax_attention():
    inputs, errors = random_array((B, 19, D), 1), {}
    exact = layers.MultiHeadAttention(N, H)
    exact.build(inputs.shape, inputs.shape)
    randomize(exact).set_weights([weight / 3 for weight in exact.get_weights()])
    expected, weights = exact(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
    for count in (16, 4096):
        layer = layers.PerformerAttention(N, H, count, seed=1)
        layer.build(inputs.shape, inputs.shape)
        for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
            getattr(layer, name).set_weights(getattr(exact, name).get_weights())
        found, estimate = layer(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
        errors[count] = np.abs(to_numpy(estimate) - to_numpy(weights)).max()
    assert errors[4096] < 0.05 and errors[4096] < errors[16] / 4
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=0.1)
