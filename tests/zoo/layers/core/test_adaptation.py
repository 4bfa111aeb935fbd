"""Projections quantise to int8 and take LoRA weights, in every layer that has projections."""

import keras
import numpy as np
import pytest
from support.layers.cases import CASES, first_of_each_class, with_each
from support.layers.contract import arrays, build, built, call

from zoo import layers

pytestmark = pytest.mark.usefixtures("new_garbage_alone")

NAMES = (keras.layers.Dense, keras.layers.EinsumDense)


def _projections(layer):
    return [part for part in layer._flatten_layers() if isinstance(part, NAMES)]


# One case of each class.
WITH_PROJECTIONS = [case for case in first_of_each_class(CASES) if _projections(built(case))]


FAST = (layers.MultiHeadAttention, layers.AdditiveScore)


@pytest.mark.parametrize("mode", ["int8", "lora"])
@with_each(WITH_PROJECTIONS, FAST)
def test_projections_quantize_and_adapt(case, mode):
    layer = build(case)
    expected = call(case, layer, arrays(case))
    before = len(layer.weights)
    for dense in _projections(layer):
        dense.enable_lora(2) if mode == "lora" else dense.quantize(mode)
    assert len(layer.weights) > before
    # LoRA starts as the identity; int8 costs some accuracy.
    for result, reference in zip(call(case, layer, arrays(case)), expected, strict=True):
        tolerance = 1e-6 if mode == "lora" else 0.1 * max(1.0, np.abs(reference).max())
        np.testing.assert_allclose(result, reference, atol=tolerance)
