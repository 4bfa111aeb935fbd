"""Every layer in a functional model of any length, cloned, and in mixed precision: none is an exception."""

import keras
import numpy as np
import pytest
from support.layers.cases import CASES, first_of_each_class
from support.layers.contract import arrays, random_array, to_numpy

pytestmark = pytest.mark.nightly


def _model(case, policy="float32"):
    """Returns a functional model of the layer, whose sequences may have any length, and inputs for it."""
    given = list(arrays(case).values())
    symbolic = [
        keras.Input((None, array.shape[-1]) if array.ndim == 3 else array.shape[1:], dtype=array.dtype)
        for array in given
    ]
    layer = case.make(policy)
    return keras.Model(symbolic, layer(*symbolic)), given


def _outputs(model, given):
    return [to_numpy(each) for each in keras.tree.flatten(model(given, training=False))]


@pytest.mark.parametrize("case", first_of_each_class(CASES), ids=lambda case: case.name)
def test_every_layer(case):
    model, given = _model(case)
    for weight in model.trainable_weights:
        weight.assign(random_array(weight.shape, len(weight.shape)))
    expected = _outputs(model, given)
    clone = keras.models.clone_model(model)
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in model.weights]
    clone.set_weights(model.get_weights())
    for result, reference in zip(_outputs(clone, given), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-6, rtol=1e-6)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        model, given = _model(case, policy)
        assert all(keras.backend.standardize_dtype(weight.dtype) != policy[6:] for weight in model.trainable_weights)
        for result in _outputs(model, given):
            assert np.all(np.isfinite(result.astype("float32")))
