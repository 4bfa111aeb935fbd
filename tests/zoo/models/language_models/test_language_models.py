"""Every language model: its size, its config, its file, and that it goes on with a text as it was trained."""

import keras
import numpy as np
import pytest
from keras import ops
from support.models import check_config, check_dropout, check_gradients, compiled, create, fixtures, names_of, numpy

import zoo
from zoo.errors import InputError
from zoo.models.language_models.base import LanguageModel
from zoo.vocabulary import PAD, START, UNKNOWN

SYMBOLS, LONGEST = 13, 11
B, T = 3, 7
LENGTHS = (7, 4, 1)

# Numbers of weights with the spec's own options, for 69 symbols: those of tinyshakespeare, and four special ones.
PINS = {
    # Blocks 4 · (4 · 128² + 2 · 128 · 512 + 4 · 128), last norm 2 · 128, embeddings 69 · 128, positions 257 · 128.
    # nanoGPT's 0.80 million are without positions and the shifts of the norms: 796,416 here.
    "causal_lm_tiny": 830_464,
    # Blocks 6 · (4 · 384² + 2 · 384 · 1536 + 4 · 384), last norm 2 · 384, embeddings 69 · 384, positions 257 · 384.
    "causal_lm_small": 10_752_000,
    # Blocks 12 · (4 · 768² + 2 · 768 · 3072 + 13 · 768), last norm 2 · 768, embeddings 69 · 768, positions 1024 · 768.
    "gpt2": 85_895_424,
    # Blocks 4 · (2 · 128² + 2 · 128 · 64 + 2 · 32 + 3 · 128 · 344 + 2 · 128), last norm 128, embeddings 69 · 128.
    "causal_lm_modern": 735_232,
    # Blocks 4 · (8 · 128² + 2 · 128 · 256 + 4 · 128), last norm 2 · 128, embeddings 69 · 128.
    "retnet_lm": 797_568,
    # Embeddings 69 · 256, LSTMs 2 · 4 · (2 · 256² + 256).
    "lstm_lm": 1_068_288,
}

# Small options for each name; each combination is a model of its own to these tests.
_TRANSFORMER = {"num_layers": 2, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3, "dropout": 0.25}
_RECURRENT = {"embedding_dim": 5, "units": 5, "dropout": 0.25}
_MODERN = {
    "positions": "rotary",
    "normalization": "rms_norm",
    "activation": "silu",
    "gated": True,
    "model_dim": 8,
    "num_heads": 4,
    "num_key_value_heads": 2,
}
_MULTI = {"num_key_value_heads": 0}
_TAUGHT = {
    "positions": "learned_concat",
    "concat_projection": False,
    "position_dim": 3,
    "tied_embeddings": False,
    "output_bias": True,
    "output_projection": False,
    "value_dim": 3,
    "score": "general",
    "share_score": False,
}
_GEMMA = {
    "num_layers": 2,
    "visibility": "window",
    "window": 2,
    "full_attention_every": 2,
    "sandwich_norm": True,
    "logit_softcap": 0.7,
    "output_softcap": 0.3,
}
SMALL = {
    "causal_lm_tiny": [
        _TRANSFORMER,
        {**_TRANSFORMER, **_MODERN},
        {**_TRANSFORMER, "positions": "relative", "score": "additive", "use_bias": True, "tied_embeddings": False},
        {**_TRANSFORMER, **_TAUGHT},
    ],
    "causal_lm_small": [
        {**_TRANSFORMER, "normalize_first": False, "positions": "alibi", "self_attention": "local"},
        {**_TRANSFORMER, "self_attention": "average"},
        {**_TRANSFORMER, "self_attention": "ssru"},
    ],
    "gpt2": [
        _TRANSFORMER,
        {**_TRANSFORMER, "positions": "rotary", "rotary_fraction": 0.5, "key_dim": 6, "parallel_residual": True},
    ],
    "causal_lm_modern": [
        {**_TRANSFORMER, "num_key_value_heads": 1, "rope_scaling": "yarn", "rope_factor": 4.0},
        {**_TRANSFORMER, "num_key_value_heads": 1, **_GEMMA},
        {**_TRANSFORMER, **_MULTI, "self_attention": "latent", "latent_dim": 3, "qk_norm": False, "key_dim": 4},
        {**_TRANSFORMER, **_MULTI, "self_attention": "differential", "positions": "none", "output_gate": True},
        {**_TRANSFORMER, **_MULTI, "self_attention": "talking_heads", "positions": "alibi"},
    ],
    "retnet_lm": [
        {**_TRANSFORMER, "value_dim": 5},
        {**_TRANSFORMER, "self_attention": "gated_linear", "positions": "none"},
        {**_TRANSFORMER, "self_attention": "delta_rule", "positions": "none"},
    ],
    "lstm_lm": [_RECURRENT, {**_RECURRENT, "units": 7, "num_layers": 3, "tied_embeddings": False}],
}
# The second and third Transformer between them have all that is new in it; of LSTMs, more layers than one.
CHOSEN = {("causal_lm_tiny", 1), ("causal_lm_tiny", 2), ("retnet_lm", 0), ("lstm_lm", 1)}


def small(name, options, **arguments):
    return create(name, vocab_size=SYMBOLS, max_length=LONGEST, **options, **arguments)


def batch(seed=0):
    """Returns rows [B, T] of different lengths behind their start symbols, padded."""
    tokens = np.random.default_rng(seed).integers(UNKNOWN + 1, SYMBOLS, (B, T)).astype("int32")
    tokens[:, 0] = START
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = PAD
    return tokens


REAL = batch() != PAD


def logits(model, tokens, **options):
    return numpy(model({"tokens": tokens}, **options))


every, chosen = fixtures(SMALL, CHOSEN, small, lambda model: logits(model, batch()))


@pytest.mark.parametrize("name", names_of("language_model"))
def test_every_name_has_a_pinned_number_of_weights(name):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    model = zoo.create_model(name, vocab_size=69)
    assert model.count_params() == PINS[name]
    assert model.name == name and isinstance(model, LanguageModel)


def test_config_round_trip(every):
    config, spec = check_config(every.model), zoo.get_spec(every.name)
    assert {*spec.config, *spec.required} <= set(config)
    assert {**spec.config, **every.options, "max_length": LONGEST}.items() <= config.items()


def test_reload_is_equal(model, expected, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits(loaded, batch()), expected)


def test_logits_do_not_see_the_future(model, expected):
    tokens = batch()
    changed = tokens.copy()
    changed[0, 4:] = UNKNOWN + 1 + (changed[0, 4:] - UNKNOWN) % (SYMBOLS - UNKNOWN - 1)
    before, after = expected[0], logits(model, changed)[0]
    assert before.shape == (T, SYMBOLS)
    np.testing.assert_array_equal(after[:4], before[:4])
    assert np.all(np.any(after[4:] != before[4:], axis=-1))


def test_logits_see_the_past(model, expected):
    changed = batch()
    changed[0, 1] = UNKNOWN + 1 + (changed[0, 1] - UNKNOWN) % (SYMBOLS - UNKNOWN - 1)
    assert np.all(np.any(np.abs(logits(model, changed) - expected)[0, 1:] > 1e-4, axis=-1))


def test_padding_changes_nothing(model, expected):
    tokens = batch()
    wide = np.pad(tokens, ((0, 0), (0, 3)))
    np.testing.assert_allclose(logits(model, wide)[:, :T][REAL], expected[REAL], atol=2e-6)
    for row, length in enumerate(LENGTHS):  # each row as if it were alone
        alone = logits(model, tokens[row : row + 1, :length])
        np.testing.assert_allclose(alone[0], expected[row, :length], atol=2e-6)


def test_a_row_of_padding_is_harmless(model, expected):
    # Batches of a fixed height are filled up with such rows.
    tokens = batch()
    tokens[2] = PAD
    result = logits(model, tokens)
    assert np.all(np.isfinite(result))
    np.testing.assert_allclose(result[:2][REAL[:2]], expected[:2][REAL[:2]], atol=2e-6)


def steps(model, tokens, state):
    """Returns the logits [B, T, V] of decoding step by step, fed with the symbols, and the state behind them."""
    results = []
    for position in range(tokens.shape[1]):
        result, state = model.decode_step(ops.convert_to_tensor(tokens[:, position]), state)
        results.append(numpy(result))
    return np.stack(results, axis=1), state


def test_teacher_forcing_equals_step_by_step(model, expected):
    found, _ = steps(model, batch(), model.initial_state(B, LONGEST))
    np.testing.assert_allclose(found[REAL], expected[REAL], atol=2e-6)


def test_prefill_equals_step_by_step(chosen):
    model, tokens, expected = chosen.model, batch()[:1], chosen.expected[:1, 3:]
    prefilled, state = model.prefill(ops.convert_to_tensor(tokens[:, :4]), model.initial_state(1, LONGEST))
    np.testing.assert_allclose(numpy(prefilled), expected[:, 0], atol=2e-6)
    found, state = steps(model, tokens[:, 4:6], state)
    np.testing.assert_allclose(found, expected[:, 1:3], atol=2e-6)
    last, _ = model.prefill(ops.convert_to_tensor(tokens[:, 6:]), state)
    np.testing.assert_allclose(numpy(last), expected[:, 3], atol=2e-6)


def test_gradient_reaches_every_weight(model):
    check_gradients(lambda: model({"tokens": batch()}), model, REAL[..., None])


def test_dropout_acts_in_training_only(model, expected):
    check_dropout(lambda training: logits(model, batch(), training=training), expected)


def test_dropout_acts_where_it_should(monkeypatch):
    model, tokens = small("causal_lm_tiny", _TRANSFORMER), ops.convert_to_tensor(batch())
    embedded = [numpy(model._embed(tokens, training=training)) for training in (False, True)]
    assert 0.1 < np.mean(embedded[1] == 0) < 0.4 and not np.any(embedded[0] == 0)
    model, dropped = small("lstm_lm", SMALL["lstm_lm"][1]), []
    drop = model.dropout_layer.call
    monkeypatch.setattr(
        model.dropout_layer,
        "call",
        lambda inputs, **options: dropped.append(inputs.shape[-1]) or drop(inputs, **options),
    )
    logits(model, batch(), training=True)
    assert dropped == [5, 7, 7, 7]  # embeddings, between three layers, and before the output


@pytest.mark.parametrize("name", ["causal_lm_tiny", "lstm_lm"])
def test_mixed_precision_reaches_every_layer(name):
    options = SMALL[name][0]
    model, low = small(name, options), small(name, options, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in low._flatten_layers()} == {"mixed_bfloat16"}
    assert keras.backend.standardize_dtype(low({"tokens": batch()}).dtype) == "bfloat16"
    expected = logits(model, batch())[REAL]
    np.testing.assert_allclose(logits(low, batch())[REAL], expected, atol=0.08)
    found, _ = steps(low, batch(), low.initial_state(B, LONGEST))
    np.testing.assert_allclose(found[REAL], expected, atol=0.08)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param("causal_lm_tiny", 0, marks=pytest.mark.nightly),
        ("causal_lm_tiny", 1),
        pytest.param("retnet_lm", 0, marks=pytest.mark.nightly),
        pytest.param("lstm_lm", 1, marks=pytest.mark.nightly),
    ],
)
def test_graph_of_unknown_sizes(name, number):
    model, tokens = small(name, SMALL[name][number]), batch()
    function = compiled(lambda tokens: model({"tokens": tokens}))
    np.testing.assert_allclose(numpy(function(tokens)), logits(model, tokens), atol=2e-6)
    np.testing.assert_allclose(numpy(function(tokens[1:, :2])), logits(model, tokens[1:, :2]), atol=2e-6)
    prefill = compiled(lambda tokens: model.prefill(tokens, model.initial_state(ops.shape(tokens)[0], LONGEST))[0])
    np.testing.assert_allclose(numpy(prefill(tokens)), logits(model, tokens)[:, -1], atol=2e-6)


@pytest.mark.parametrize("name", names_of("language_model"))
def test_tying_saves_the_output_matrix(name):
    options = SMALL[name][0]
    tied, free = (small(name, {**options, "tied_embeddings": tied}).count_params() for tied in (True, False))
    bias = SYMBOLS if name == "lstm_lm" else 0
    assert free - tied == SYMBOLS * options.get("model_dim", options.get("units")) + bias


def test_a_new_transformer_expects_nothing():
    model = zoo.create_model("causal_lm_tiny", vocab_size=69)
    tokens = np.random.default_rng(0).integers(4, 69, (5, 64)).astype("int32")
    assert np.abs(logits(model, tokens)).max() < 3.0  # not even the same symbol once more
    kernels = [part.output_dense.kernel for block in model.blocks for part in (block.attention, block.feed_forward)]
    for kernel in kernels:
        usual = np.sqrt(2 / sum(kernel.shape))  # of glorot_uniform
        np.testing.assert_allclose(np.std(numpy(kernel)), usual / np.sqrt(8), rtol=0.02)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lstm_lm", {"units": 0}, "`units` must be a positive integer. Received: units=0."),
        ("lstm_lm", {"dropout": 1.0}, r"`dropout` must be in \[0, 1\). Received: dropout=1.0."),
        (
            "lstm_lm",
            {"units": 7},
            "needs `embedding_dim` and `units` of one size. Received: embedding_dim=256, units=7.",
        ),
        ("causal_lm_tiny", {"max_length": 0}, "`max_length` must be a positive integer. Received: max_length=0."),
        ("causal_lm_tiny", {"num_heads": 3}, "a multiple of `num_heads`. Received: model_dim=128, num_heads=3."),
        ("causal_lm_small", {"positions": "there"}, "`positions` must be .* Received: positions='there'."),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model(name, vocab_size=13, **options)


@pytest.mark.parametrize("name", names_of("language_model"))
def test_bad_vocabulary(name):
    with pytest.raises(InputError, match="`vocab_size` must be a positive integer. Received: vocab_size=None."):
        zoo.create_model(name, vocab_size=None)
