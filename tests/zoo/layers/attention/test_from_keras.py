"""Attention layers of Keras, and those that `from_keras` makes of them."""

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, random_mask, randomize, to_numpy
from support.layers.refusals import check_refusals

from zoo import layers

QUERY, VALUE, KEY = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2), random_array((2, 5, 17), 3)
SAME_SIZE = QUERY, VALUE, random_array((2, 5, 11), 3)
SINGLE = {
    "dot": (lambda **o: keras.layers.Attention(**o), layers.DotAttention),
    "scaled": (lambda **o: keras.layers.Attention(use_scale=True, **o), layers.GeneralAttention),
    "concat": (lambda **o: keras.layers.Attention(score_mode="concat", **o), layers.AdditiveAttention),
    "scaled_concat": (
        lambda **o: keras.layers.Attention(score_mode="concat", use_scale=True, **o),
        layers.AdditiveAttention,
    ),
    "additive": (lambda **o: keras.layers.AdditiveAttention(**o), layers.AdditiveAttention),
    "unscaled_additive": (lambda **o: keras.layers.AdditiveAttention(use_scale=False, **o), layers.AdditiveAttention),
}
HEADS = {
    "multi_head": (lambda **o: keras.layers.MultiHeadAttention(7, 19, **o), layers.MultiHeadAttention),
    "of_other_sizes": (
        lambda **o: keras.layers.MultiHeadAttention(7, 19, value_dim=23, output_shape=29, use_bias=False, **o),
        layers.MultiHeadAttention,
    ),
    "grouped": (lambda **o: keras.layers.GroupQueryAttention(19, 6, 2, **o), layers.GroupedQueryAttention),
}


def _assert_equal(results, expected, tolerance=2e-6):
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), to_numpy(reference), atol=tolerance, rtol=1e-5)


@pytest.mark.parametrize(("make", "wanted"), SINGLE.values(), ids=SINGLE)
def test_single_heads(make, wanted):
    value_mask = random_mask((2, 5))
    for inputs in (SAME_SIZE, (QUERY, SAME_SIZE[2])):
        theirs = make(dropout=0.1, seed=3, name="reader")
        theirs(list(inputs))
        ours = layers.from_keras(randomize(theirs))
        assert (type(ours), ours.name, ours.dropout, ours.seed) == (wanted, "reader", 0.1, 3)
        for masks in ({}, {"value_mask": value_mask}):
            mask = [None, *masks.values()] if masks else None
            expected = theirs(list(inputs), mask=mask, return_attention_scores=True)
            _assert_equal(ours(*inputs, **masks, return_attention_scores=True), expected)


@pytest.mark.parametrize(("make", "wanted"), HEADS.values(), ids=HEADS)
def test_heads(make, wanted):
    theirs = make(dropout=0.1, seed=3, name="reader")
    theirs(QUERY, VALUE, KEY)
    ours = layers.from_keras(randomize(theirs))
    assert (type(ours), ours.name, ours.dropout, ours.seed) == (wanted, "reader", 0.1, 3)
    assert ours.count_params() == theirs.count_params()
    pairs = np.broadcast_to(random_mask((2, 5))[:, None], (2, 3, 5))
    for masks in ({}, {"attention_mask": pairs}):
        options = {**masks, "return_attention_scores": True}
        _assert_equal(ours(QUERY, VALUE, KEY, **options), theirs(QUERY, VALUE, KEY, **options))
    inputs, theirs = random_array((2, 5, 11), 4), make(dtype="mixed_bfloat16")
    expected = theirs(inputs, inputs, use_causal_mask=True)
    ours = layers.from_keras(theirs)
    assert ours.dtype_policy.name == "mixed_bfloat16"
    _assert_equal([ours(inputs, inputs, use_causal_mask=True)], [expected], tolerance=0.05)


def test_what_differs():
    theirs = keras.layers.MultiHeadAttention(2, 19)
    mask = np.ones((2, 1, 3, 5), bool)
    mask[0, :, 1] = False
    options = {"attention_mask": mask, "return_attention_scores": False}
    expected = to_numpy(theirs(QUERY, VALUE, **options))
    output = to_numpy(layers.from_keras(theirs)(QUERY, VALUE, **options))
    assert not np.any(output[0, 1]) and np.any(expected[0, 1])
    seen = mask.any(axis=-1)[:, 0]
    np.testing.assert_allclose(output[seen], expected[seen], atol=2e-6)


def _called(layer):
    layer(QUERY, VALUE)
    return layer


class _Own(keras.layers.MultiHeadAttention):
    pass


def test_what_cannot_be_carried_over_is_refused():
    check_refusals(
        (lambda make=make: layers.from_keras(make()), *words)
        for make, *words in (
            (lambda: keras.layers.MultiHeadAttention(2, 3), "`layer`", "build or call it"),
            (lambda: keras.layers.Dense(3), "`layer`", "keras.layers.Attention", "<Dense"),
            (lambda: _called(_Own(2, 3)), "`layer`", "keras.layers.Attention", "<_Own"),
            (lambda: _called(keras.layers.MultiHeadAttention(2, 3, use_gate=True)), "use_gate=True"),
            (lambda: _called(keras.layers.GroupQueryAttention(3, 2, 1, sliding_window=2)), "sliding_window=2"),
            (
                lambda: _called(keras.layers.MultiHeadAttention(2, 3, output_shape=(3, 5))),
                "`output_shape`",
                "(3, 5)",
            ),
        )
    )
