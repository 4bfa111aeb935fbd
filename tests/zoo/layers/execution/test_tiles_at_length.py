"""Attention at lengths where tiles are used, in tiles of their real size: the output and gradients of all at once."""

import keras
import numpy as np
import pytest
from support.layers.contract import gradients, random_array, tensorflow_only, to_numpy

from zoo import layers

pytestmark = [pytest.mark.nightly, tensorflow_only("only TensorFlow has tiles")]

B, LENGTH, D = 1, 1153, 16
RULES = {
    "causal": None,
    "window": layers.SlidingWindow(70, 0),
    "packed": layers.Causal() & layers.Segments(),
    "global": layers.SlidingWindow(40) | layers.GlobalTokens([0, 700]),
    "prefix": layers.PrefixLM(),
}
TOLD = {
    "packed": {"segment_ids": np.repeat([[0, 1, 2]], 400, axis=1)[:, :LENGTH].astype("int32")},
    "prefix": {"prefix_length": np.array([500], "int32")},
}


@pytest.mark.parametrize("name", RULES)
def test_tiles_agree_with_all_at_once(name):
    query, value = random_array((B, LENGTH, D), 1), random_array((B, LENGTH, D), 2)
    options = {"use_causal_mask": name == "causal", **TOLD.get(name, {})}
    options["value_mask"] = np.arange(LENGTH)[None] % 7 > 0
    found, weights = [], None
    for implementation in ("blockwise", "dense"):
        layer = layers.GroupedQueryAttention(
            4, 2, 8, visibility=RULES[name], positions=layers.RotaryPositions(), implementation=implementation
        )
        layer.build(query.shape, value.shape)
        weights = layer.get_weights() if weights is None else weights
        layer.set_weights(weights)
        path = "tiles" if implementation == "blockwise" else "dense"
        assert layer.explain_execution(query, value, **options).path == path
        inputs = [keras.Variable(each) for each in (query, value)]
        output = to_numpy(layer(query, value, **options))
        found.append([output, *gradients(lambda layer=layer, inputs=inputs: layer(*inputs, **options), inputs)])
    for tiles, dense in zip(*found, strict=True):
        np.testing.assert_allclose(
            to_numpy(tiles), to_numpy(dense), atol=2e-5 * max(1.0, np.abs(to_numpy(dense)).max())
        )
