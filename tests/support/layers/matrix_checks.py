"""All that the attention contract promises of a layer in a situation."""

import dataclasses

import keras
import numpy as np
import pytest
from hypothesis import note
from support.layers import references
from support.layers.contract import arrays, random_array
from support.layers.matrix import BACKEND, RATE, Matrix, layer_of

TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 0.06, "mixed_float16": 0.01}

SUM_TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2**-8, "mixed_float16": 2**-11}  # weights rounded once

# What hidden positions are filled with; in float16, larger numbers leave the range in the projections.
HUGE = {"float32": 1e4, "mixed_bfloat16": 1e4, "mixed_float16": 1e2}


def _check_weights(matrix, weights):
    situation = matrix.situation
    shape = matrix.shape if matrix.layer.has_heads else (matrix.shape[0], *matrix.shape[2:])
    assert weights.shape == shape
    weights = weights.reshape(matrix.shape)
    assert np.all(np.isfinite(weights)), "weights are finite"
    np.testing.assert_array_equal(weights[~matrix.allowed], 0.0, "weights are zero where the mask forbids")
    if not situation.large:
        clear = matrix.allowed & (matrix.weights > 1e-5)
        if matrix.case.sparse:  # what has a little weight in float32 has none in half precision
            clear &= matrix.weights > TOLERANCE[situation.policy]
        assert np.all(weights[clear] > 0), "weights are positive where the mask allows"
        _assert_near(weights, matrix.weights, TOLERANCE[situation.policy], "weights of the reference, without dropout")
    if matrix.case.whole:
        sums, seen = weights.sum(axis=-1), matrix.allowed.any(axis=-1)
        np.testing.assert_allclose(
            sums, seen, atol=SUM_TOLERANCE[situation.policy], err_msg="weights of a row sum to 1"
        )


def _check_output(matrix, output):
    situation = matrix.situation
    assert output.shape == matrix.output.shape
    assert np.all(np.isfinite(output)), "output is finite"
    empty = ~matrix.allowed.any(axis=(1, 3))
    np.testing.assert_array_equal(output[empty], 0.0, "output is zero where a query sees nothing")
    if situation.training and matrix.layer.dropout:
        if not matrix.layer.has_heads and situation.policy == "float32":
            _check_dropped(matrix, output)
    elif not situation.large:
        _assert_near(output, matrix.output, TOLERANCE[situation.policy], "output of the reference")


def _check_dropped(matrix, output):
    """Checks that each weight has been dropped, or divided by the rate of those that are kept."""
    for b in range(len(output)):
        # Values are longer than there are keys: the output tells with which weights they were added.
        values = references.values(matrix.exact, matrix.floats["value"][b].astype("float64"))
        kept = output[b] @ np.linalg.pinv(values)
        full = matrix.weights[b, 0] / (1 - RATE)
        either = np.minimum(np.abs(kept), np.abs(kept - full))
        assert np.all(either < 1e-4), "weights are dropped or scaled up"


def _check_gradients(matrix, gradients):
    situation = matrix.situation
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), f"gradient of {name} is finite"
    seen_keys, seen_queries = matrix.allowed.any(axis=(1, 2)), matrix.allowed.any(axis=(1, 3))
    for name, seen in (("query", seen_queries), ("value", seen_keys), ("key", seen_keys)):
        if name == "query" or not situation.cached:
            np.testing.assert_array_equal(gradients[name][~seen], 0.0, f"gradient of a {name} without effect is zero")
    if situation.policy == "float32" and not (situation.training or situation.large):
        dense = dataclasses.replace(situation, mode="eager", implementation="dense", cached=False)
        dense = Matrix(matrix.case, dense)
        _, expected = dense.function(scores=matrix.has_weights, backward=True)(dense.floats)
        for name in expected:
            _assert_near(gradients[name], expected[name], 1e-4, f"gradient of {name} as of the dense path")


def _check_poison(matrix, function, before, gradients):
    """Checks that what masks hide has no effect, not on a single bit."""
    situation = matrix.situation
    poisoned, hidden_key = _poisoned(matrix)
    results, changed = function(poisoned)
    same = np.ones(matrix.shape[:3], bool) if hidden_key is None else ~matrix.visible[..., hidden_key]
    if matrix.layer.is_recurrent:
        same = np.logical_and.accumulate(same, axis=2)
    what = f"hidden positions ({situation.poison}) change nothing"
    rows = same.all(axis=1)
    np.testing.assert_array_equal(results[0][rows], before[0][rows], f"{what} in the output")
    if matrix.has_weights:
        weights, expected = (each[1].reshape(matrix.shape) for each in (results, before))
        np.testing.assert_array_equal(weights[same], expected[same], f"{what} in the weights")
    if hidden_key is None:
        for name, gradient in changed.items():
            np.testing.assert_array_equal(gradient, gradients[name], f"{what} in the gradient of {name}")


def _poisoned(matrix):
    """Returns the inputs with hidden positions replaced, and the key that only pairs hide, or `None`."""
    situation = matrix.situation
    hidden = {"query": ~matrix.full["query_mask"], "key": ~(matrix.full["value_mask"] & matrix.full["key_mask"])}
    hidden["value"] = hidden["key"]
    key = None
    if situation.poison == "huge" and not matrix.visible.all():
        key = int(np.argmin(matrix.visible.sum(axis=(0, 1, 2))))  # the one that the fewest queries see
    floats = dict(matrix.floats)
    for name, mask in hidden.items():
        if key is not None and name != "query":
            mask = mask | (np.arange(mask.shape[1]) == key)
        bad = np.float32(np.nan if situation.poison == "nan" else HUGE[situation.policy])
        bad = bad * random_array(floats[name].shape, 89)
        floats[name] = np.where(mask[:, :, None], bad, floats[name])
    return floats, key


def _check_unasked(matrix, output):
    (unasked,), _ = matrix.function(scores=False)(matrix.floats)
    told = "asking for the weights changes nothing"
    if matrix.situation.mode == "eager" and BACKEND != "jax":
        np.testing.assert_array_equal(unasked, output, told)
    else:  # another program, which a compiler arranges in another way; JAX compiles loops in any mode
        _assert_near(unasked, output, TOLERANCE[matrix.situation.policy], told)


def _check_symbolic(matrix, results):
    inputs = (keras.KerasTensor(matrix.floats[name].shape) for name in ("query", "value", "key"))
    told = {name: keras.KerasTensor(each.shape, "int32") for name, each in matrix.told.items()}
    specs = matrix.layer(*inputs, use_causal_mask=matrix.situation.causal, return_attention_scores=True, **told)
    for spec, result in zip(specs, results, strict=False):
        assert spec.shape == result.shape, "symbolic shapes are the true ones"


def _assert_near(result, expected, tolerance, told):
    atol = tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol, err_msg=told)


def _check_additive_masks(case):
    layer, shapes = layer_of(case, "float32"), {"query_mask": (2, 3), "value_mask": (2, 5), "key_mask": (2, 5)}
    for name, shape in {**shapes, "attention_mask": (2, 3, 5)}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be boolean"):
            layer(*arrays(case).values(), **{name: np.full(shape, -1e9, "float32")})


def _rows(mask):
    """Returns a mask in a form that can be read: nested lists of rows such as 110."""
    return "".join(str(int(each)) for each in mask) if mask.ndim == 1 else [_rows(each) for each in mask]


def check(case, situation):
    """Checks all that the contract says of a layer in a situation."""
    if situation.attention_mask == "additive":
        return _check_additive_masks(case)
    matrix = Matrix(case, situation)
    note(f"suited to the layer: {matrix.situation}, implementation of the case: {case.make('float32').implementation}")
    for name, mask in {**matrix.masks, "allowed": matrix.allowed}.items():
        note(f"{name}, {mask.shape}: {_rows(mask)}")
    note(f"place of the first query: {matrix.first}")
    function = matrix.function(scores=matrix.has_weights, backward=matrix.situation.backward)
    results, gradients = function(matrix.floats)
    _check_output(matrix, results[0])
    if matrix.has_weights:
        _check_weights(matrix, results[1])
        _check_unasked(matrix, results[0])
    if gradients:
        _check_gradients(matrix, gradients)
    if not matrix.visible.all():
        _check_poison(matrix, function, results, gradients)
    if matrix.situation.mode != "eager":
        _check_symbolic(matrix, results)
