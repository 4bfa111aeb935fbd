"""Steps with a cache, of which some see no key of their own or none at all."""

import numpy as np
from support.every import every
from support.layers.contract import random_array, to_numpy

from zoo import layers

B, LENGTH, D = 2, 5, 11
LAYERS = {
    "keys": layers.MultiHeadAttention(3, 7, positions=layers.RotaryPositions()),
    "latents": layers.MultiHeadLatentAttention(3, 7, latent_dim=13, rope_dim=4),
    "sums": layers.LinearAttention(3, 7, positions=layers.RotaryPositions()),
    "states": layers.GatedLinearAttention(3, 7),
    "average": layers.AverageAttention(),
    "convolution": layers.LightweightConvolution(1, 3, "causal"),
    "recurrence": layers.SSRU(),
}
# Row 0 begins with padding; row 1 has a step whose only key is hidden.
REAL = np.array([[False, False, True, True, True], [True, True, False, True, True]])


def test_steps_whose_keys_are_all_hidden():
    inputs = random_array((B, LENGTH, D), 1)
    with every() as failures:
        for name, layer in LAYERS.items():
            with failures.of(name):
                expected = to_numpy(layer(inputs, inputs, value_mask=REAL, use_causal_mask=True))
                cache, start = layer.create_cache(B, LENGTH), 0
                for length in (1, 1, 1, 2):
                    part = slice(start, start + length)
                    output, cache = layer(inputs[:, part], inputs[:, part], value_mask=REAL, cache=cache)
                    np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=5e-6)
                    start += length
                    assert int(cache["index"]) == start
