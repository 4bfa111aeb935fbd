"""Options of Gemma 2 and 3, OLMo 2 and SmolLM3: soft caps, and windows, positions and norms by block."""

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


def test_positions_differ_by_block():
    model = made(num_layers=4, no_positions_every=3)
    assert [block.attention.positions is None for block in model.blocks] == [False, False, True, False]
    options = {"visibility": "window", "window": 3, "full_attention_every": 3, "rope_scaling": "linear"}
    model = made(num_layers=4, max_wavelength=1e6, window_wavelength=100.0, rope_factor=8.0, **options)
    positions = [block.attention.positions for block in model.blocks]
    assert [each.max_wavelength for each in positions] == [100.0, 100.0, 1e6, 100.0]
    assert [each.scaling is None for each in positions] == [True, True, False, True]


def test_blocks_that_normalise_what_their_parts_return_end_with_a_norm():
    model = made(normalize_first=False, res_post_norm=True, qk_norm_across_heads=True)
    assert model.final_norm is not None and model.blocks[0].attention.query_norm.scale.shape == (12,)
