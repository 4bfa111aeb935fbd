"""What Gemma 2 brought to language models: limits of logits, and windows in all but each n-th block."""

import numpy as np

import zoo

SMALL = {"vocab_size": 13, "model_dim": 12, "intermediate_dim": 10, "num_heads": 3, "num_key_value_heads": 0}
TOKENS = np.array([[1, 5, 9, 4, 12, 6, 7, 8, 3, 10, 11]], "int32")


def made(**options):
    model = zoo.create_model("causal_lm_modern", **{**SMALL, "num_layers": 2, **options})
    for seed, weight in enumerate(model.weights):
        weight.assign(np.random.default_rng(seed).normal(0.0, 0.5, weight.shape).astype("float32"))
    return model


def logits(model):
    return np.array(model({"tokens": TOKENS}))


def test_logits_have_a_limit():
    plain, limit = logits(made()), 0.9
    assert np.abs(plain).max() > 2 * limit
    np.testing.assert_allclose(logits(made(output_softcap=limit)), limit * np.tanh(plain / limit), atol=1e-5)


def test_each_nth_block_attends_to_everything():
    model = made(num_layers=5, visibility="window", window=3, full_attention_every=2)
    assert [block.attention.reach for block in model.blocks] == [3, None, 3, None, 3]
    model = made(num_layers=3, visibility="window", window=3, full_attention_every=3, num_key_value_heads=1)
    assert [block.attention.reach for block in model.blocks] == [3, 3, None]
    assert model.options == type(model).from_config(model.get_config()).options
    assert np.abs(logits(model) - logits(made(num_layers=3, num_key_value_heads=1))).max() > 0.1
