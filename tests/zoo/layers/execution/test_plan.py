"""The plan of a call: made once for each kind of call, and again when the layer changes."""

import copy

import numpy as np

from zoo import layers
from zoo.layers.execution import plan


def test_a_plan_is_made_once_for_calls_alike(monkeypatch):
    made, make = [], plan._plan
    monkeypatch.setattr(plan, "_plan", lambda *arguments: made.append(arguments) or make(*arguments))
    inputs, mask = np.ones((2, 5, 8), "float32"), np.ones((2, 5), "bool")
    layer = layers.MultiHeadAttention(2, 4, dropout=0.5)

    def new_plans(inputs, **options):
        made.clear()
        layer(inputs, inputs, **options)
        layer(inputs, inputs, **options)
        return len(made)

    assert new_plans(inputs) == 1
    assert new_plans(inputs[:, :3]) == 1, "other sizes"
    assert new_plans(inputs, value_mask=mask) == 1, "a mask"
    assert new_plans(inputs, use_causal_mask=True) == 1
    assert new_plans(inputs, training=True) == 1, "dropout"
    assert new_plans(inputs) == 0, "it is known still"
    layer.logit_softcap = 2.0
    assert new_plans(inputs) == 1, "the layer changed"
    clone = copy.copy(layer)
    made.clear()
    clone(inputs, inputs)
    assert len(made) == 1, "a copy may be changed without the layer"
