"""Every registered model: its size, its config, its file, and that it decodes as it was trained."""

import json

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.errors import InputError
from zoo.models.seq2seq import Seq2SeqModel
from zoo.text import PAD, START

SOURCE_SYMBOLS, TARGET_SYMBOLS = 13, 17
B, T, S = 3, 7, 5

# Numbers of weights with the spec's own options, for vocabularies of 101 and 103, and for a shared one of 101.
PINS = {
    # Embeddings 52,224; encoder 789,504; s₀ 65,792; decoder cell 787,968; alignment 197,120; readout 524,800; output
    # 256·V + V.
    "rnnsearch": (2_443_879, 2_442_853),
    # Encoder blocks 4 · 132,480; decoder blocks 4 · 198,784; embeddings 204 · 128, shared 101 · 128.
    "transformer_tiny": (1_351_168, 1_337_984),
}

# Small options for each name; each combination is a model of its own to these tests.
_RNN = {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3, "dropout": 0.25}
_TRANSFORMER = {"num_layers": 2, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3, "dropout": 0.25}
SMALL = {
    "rnnsearch": [_RNN],
    "transformer_tiny": [
        _TRANSFORMER,
        {**_TRANSFORMER, "normalize_first": True, "tied_embeddings": "none"},
        {**_TRANSFORMER, "tied_embeddings": "all"},
    ],
}
ROWS = [(name, options) for name, rows in SMALL.items() for options in rows]
# A constant added to all scores of a row changes nothing, and query · bias of the key is one.
FLAT = "key/bias"


def create(name, options, dtype="float32", seed=0):
    """Returns a model whose weights are all random, biases included."""
    shared = options.get("tied_embeddings") == "all"
    sizes = {"source_vocab_size": TARGET_SYMBOLS if shared else SOURCE_SYMBOLS, "target_vocab_size": TARGET_SYMBOLS}
    model = zoo.create_model(name, dtype=dtype, **sizes, **options)
    chance = np.random.default_rng(seed)
    model.set_weights([chance.uniform(-0.7, 0.7, weight.shape).astype("float32") for weight in model.weights])
    return model


def batch(seed=0):
    """Returns source [B, S] and target [B, T] of different lengths, padded."""
    chance = np.random.default_rng(seed)
    source, target = chance.integers(4, SOURCE_SYMBOLS, (B, S)), chance.integers(4, TARGET_SYMBOLS, (B, T))
    target[:, 0] = START
    for row, (s, t) in enumerate(((5, 7), (2, 4), (3, 1))):
        source[row, s:], target[row, t:] = PAD, PAD
    return source.astype("int32"), target.astype("int32")


def numpy(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def logits(model, source, target, **options):
    return numpy(model({"source": source, "target": target}, **options))


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: "-".join([row[0], *map(str, list(row[1].values())[5:])]))
def model(request):
    return create(*request.param)


@pytest.mark.parametrize("name", zoo.list_models())
def test_every_name_has_a_pinned_number_of_weights(name):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    for sizes, pin in zip(((101, 103), (101, 101)), PINS[name], strict=True):
        model = zoo.create_model(name, source_vocab_size=sizes[0], target_vocab_size=sizes[1])
        assert model.count_params() == pin, sizes
        assert model.name == name and isinstance(model, Seq2SeqModel)


def test_tying_saves_embeddings():
    counts = {}
    for tying in ("none", "target", "all", "auto"):
        options = {**_TRANSFORMER, "tied_embeddings": tying}
        counts[tying] = zoo.create_model("transformer_tiny", source_vocab_size=13, target_vocab_size=13, **options)
    counts = {tying: model.count_params() for tying, model in counts.items()}
    assert counts["none"] - counts["target"] == counts["target"] - counts["all"] == 13 * 6
    assert counts["auto"] == counts["all"]


def test_config_round_trip(model):
    config = json.loads(json.dumps(model.get_config()))
    again = type(model).from_config(config)
    again.build()
    assert again.get_config() == config
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]
    options = next(options for name, options in ROWS if name == model.name)
    assert set(options) <= set(config) and {"source_vocab_size", "target_vocab_size"} <= set(config)


def test_reload_is_equal(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    source, target = batch()
    np.testing.assert_array_equal(logits(loaded, source, target), logits(model, source, target))
    np.testing.assert_array_equal(numpy(loaded.attention(source, target)), numpy(model.attention(source, target)))


def steps(model, source, target):
    """Returns the logits [B, T, V] of decoding step by step, fed with the target."""
    memory = model.encode(ops.convert_to_tensor(source))
    state, results = model.initial_state(memory, T + 2), []
    for position in range(target.shape[1]):
        result, state = model.decode_step(ops.convert_to_tensor(target[:, position]), state, memory)
        results.append(numpy(result))
    return np.stack(results, axis=1)


def test_teacher_forcing_equals_step_by_step(model):
    source, target = batch()
    real = target != PAD
    np.testing.assert_allclose(steps(model, source, target)[real], logits(model, source, target)[real], atol=2e-6)


def test_padding_changes_nothing(model):
    source, target = batch()
    expected, weights = logits(model, source, target), numpy(model.attention(source, target))
    wide_source, wide_target = (np.pad(ids, ((0, 0), (0, 3))) for ids in (source, target))
    result, wide_weights = logits(model, wide_source, wide_target), numpy(model.attention(wide_source, wide_target))
    real = target != PAD
    np.testing.assert_allclose(result[:, :T][real], expected[real], atol=2e-6)
    np.testing.assert_allclose(wide_weights[..., :T, :S], weights, atol=1e-6)
    for row in range(B):  # each row as if it were alone
        alone = source[row : row + 1, : np.sum(source[row] != PAD)], target[row : row + 1, : np.sum(real[row])]
        np.testing.assert_allclose(logits(model, *alone)[0], expected[row][real[row]], atol=2e-6)


def test_attention_is_a_distribution_over_the_real_source(model):
    source, target = batch()
    weights = numpy(model.attention(source, target))
    layers, heads = (1, 1) if model.name == "rnnsearch" else (2, 3)
    assert weights.shape == (B, layers, heads, T, S)
    real = (target != PAD)[:, None, None, :, None] & (source != PAD)[:, None, None, None]
    np.testing.assert_array_equal(weights == 0, np.broadcast_to(~real, weights.shape))
    sums = np.broadcast_to((target != PAD)[:, None, None], weights.shape[:-1])
    np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)


def test_logits_do_not_see_the_future(model):
    source, target = batch()
    changed = target.copy()
    changed[0, 4:] = 3 + (changed[0, 4:] - 2) % (TARGET_SYMBOLS - 3)
    before, after = logits(model, source, target)[0], logits(model, source, changed)[0]
    np.testing.assert_array_equal(after[:4], before[:4])
    assert np.all(np.any(after[4:] != before[4:], axis=-1))


def test_a_row_of_padding_is_harmless(model):
    # Batches of a fixed height are filled up with such rows.
    source, target = batch()
    expected = logits(model, source, target)
    source[2] = PAD
    result = logits(model, source, target)
    assert np.all(np.isfinite(result)) and np.all(np.isfinite(steps(model, source, target)))
    np.testing.assert_allclose(result[:2], expected[:2], atol=2e-6)


def test_gradient_reaches_every_weight(model):
    source, target = batch()
    direction = np.random.default_rng(5).normal(size=(B, T, TARGET_SYMBOLS)).astype("float32")
    found = gradients(lambda: ops.sum(model({"source": source, "target": target}) * direction), model)
    for variable, gradient in zip(model.trainable_variables, found, strict=True):
        assert np.all(np.isfinite(gradient)), variable.path
        assert (np.abs(gradient).max() > 1e-5) or variable.path.endswith(FLAT), variable.path


def gradients(loss, model):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(value, [variable.value for variable in model.trainable_variables])
    assert all(gradient is not None for gradient in found)
    return [ops.convert_to_numpy(gradient) for gradient in found]


def test_dropout_acts_in_training_only(model):
    source, target = batch()
    np.testing.assert_array_equal(logits(model, source, target, training=False), logits(model, source, target))
    trained = logits(model, source, target, training=True)
    assert np.all(np.isfinite(trained)) and not np.allclose(trained, logits(model, source, target), atol=1e-3)


@pytest.mark.parametrize("row", [ROWS[0], ROWS[1]], ids=lambda row: row[0])
def test_mixed_precision_reaches_every_layer(row):
    model, low = create(*row), create(*row, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in low._flatten_layers()} == {"mixed_bfloat16"}
    source, target = batch()
    expected, real = logits(model, source, target), target != PAD
    np.testing.assert_allclose(logits(low, source, target)[real], expected[real], atol=0.08)
    np.testing.assert_allclose(steps(low, source, target)[real], expected[real], atol=0.08)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rnnsearch", {"units": 0}, "`units` must be a positive integer. Received: units=0."),
        ("rnnsearch", {"dropout": 1.0}, r"`dropout` must be in \[0, 1\). Received: dropout=1.0."),
        ("transformer_tiny", {"num_heads": 0}, "`num_heads` must be a positive integer. Received: num_heads=0."),
        ("transformer_tiny", {"num_layers": 2.0}, "`num_layers` must be a positive integer. Received: num_layers=2.0."),
        (
            "transformer_tiny",
            {"num_heads": 3},
            "`model_dim` must be even and a multiple of `num_heads`. Received: model_dim=128, num_heads=3.",
        ),
        ("transformer_tiny", {"tied_embeddings": "yes"}, "must be auto, all, target or none. Received: 'yes'."),
        ("transformer_tiny", {"tied_embeddings": "all"}, "needs one shared vocabulary.*source_vocab_size=13, target"),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model(name, source_vocab_size=13, target_vocab_size=17, **options)


@pytest.mark.parametrize("name", zoo.list_models())
def test_bad_vocabulary(name):
    with pytest.raises(InputError, match="`source_vocab_size` must be a positive integer. Received: .*=None."):
        zoo.create_model(name, source_vocab_size=None, target_vocab_size=17)
