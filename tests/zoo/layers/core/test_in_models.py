"""Every layer in a functional model: called symbolically, cloned, in mixed precision, quantised, and with LoRA.

No layer of the zoo is an exception. What Keras itself does not quantise stays as it is: recurrent cells, normalisations
and tables of weights that are no projection.
"""

import keras
import numpy as np
import pytest
from support.layers.cases import CASES, first_of_each_class
from support.layers.contract import arrays, random_array, to_numpy

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("new_garbage_alone")]


EVERY = pytest.mark.parametrize("case", first_of_each_class(CASES), ids=lambda case: case.name)


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


@EVERY
def test_of_any_length_and_cloned(case):
    model, given = _model(case)
    for weight in model.trainable_weights:
        weight.assign(random_array(weight.shape, len(weight.shape)))
    expected = _outputs(model, given)
    clone = keras.models.clone_model(model)
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in model.weights]
    clone.set_weights(model.get_weights())
    for result, reference in zip(_outputs(clone, given), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-6, rtol=1e-6)


@EVERY
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_in_mixed_precision(case, policy):
    model, given = _model(case, policy)
    assert all(keras.backend.standardize_dtype(weight.dtype) != policy[6:] for weight in model.trainable_weights)
    for result in _outputs(model, given):
        assert np.all(np.isfinite(result.astype("float32")))


@EVERY
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")
def test_quantised(case):
    model, given = _model(case)
    expected = _outputs(model, given)
    model.quantize("int8")
    for result, reference in zip(_outputs(model, given), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=0.1 * max(1.0, np.abs(reference).max()))


@EVERY
def test_low_rank_corrections_alone_are_trained(case):
    model, given = _model(case)
    dense = [
        part for part in model._flatten_layers() if isinstance(part, (keras.layers.Dense, keras.layers.EinsumDense))
    ]
    if not dense:
        pytest.skip("there are no projections")
    expected = _outputs(model, given)
    for part in dense:
        part.enable_lora(2)
    assert not any(part.kernel is weight for part in dense for weight in model.trainable_weights)
    for result, reference in zip(_outputs(model, given), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-5)
