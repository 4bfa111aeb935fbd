"""Embeddings with the factor √D, as in the paper, or without it."""

import numpy as np
import pytest
from keras import ops

import zoo

SMALL = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 10}
MODELS = {
    "self_attention_classifier": {"vocab_size": 11, "num_classes": 3, "positions": "sinusoidal"},
    "transformer_classifier": {"vocab_size": 11, "num_classes": 3, **SMALL},
    "causal_lm_tiny": {"vocab_size": 11, "tied_embeddings": False, **SMALL},
    "transformer_tiny": {"source_vocab_size": 11, "target_vocab_size": 11, "tied_embeddings": "none", **SMALL},
}
TOKENS = np.array([[5, 6, 7, 8, 2]], "int32")


@pytest.mark.parametrize("name", MODELS)
def test_the_factor_is_that_of_the_table(name):
    """E + P with a table √D times as large is √D · E + P."""
    options = {**MODELS[name], "model_dim": 6, "dropout": 0.0}
    scaled, plain = (zoo.create_model(name, scale_embeddings=scale, **options) for scale in (True, False))
    inputs = {"source": TOKENS, "target": TOKENS} if name == "transformer_tiny" else {"tokens": TOKENS}
    plain.set_weights(scaled.get_weights())
    assert np.abs(ops.convert_to_numpy(plain(inputs)) - ops.convert_to_numpy(scaled(inputs))).max() > 1e-3
    for weight in plain.weights:
        if "embedding" in weight.path and weight.shape == (11, 6):
            weight.assign(weight * 6**0.5)
    np.testing.assert_allclose(
        ops.convert_to_numpy(plain(inputs)), ops.convert_to_numpy(scaled(inputs)), rtol=1e-4, atol=1e-5
    )
