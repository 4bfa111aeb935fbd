"""Every classifier: its size, its config, its file, and that it reads the text and nothing beside it."""

import keras
import numpy as np
import pytest
from keras import ops
from support.models import (
    check_config,
    check_dropout,
    check_gradients,
    compiled,
    create,
    fixtures,
    gradients,
    names_of,
    numpy,
)
from support.tiers import nightly_unless

import zoo
from zoo.errors import InputError
from zoo.models.classifiers.base import ClassifierModel
from zoo.models.shared.word_dropout import WordDropout
from zoo.vocabulary import END, PAD, UNKNOWN

SYMBOLS, CLASSES = 13, 3
B, S = 4, 7
LENGTHS = (7, 4, 2, 1)

# Numbers of weights with the spec's own options, for 101 symbols and 7 classes.
PINS = {
    # Embeddings 101 · 64; four projections 4 · (64² + 64); 33 distances, in keys and values, 2 · 33 · 64; hidden layer
    # 64² + 64; output 64 · 7 + 7.
    "self_attention_classifier": 31_943,
    # Embeddings 101 · 128; blocks 2 · 132,480 as in transformer_tiny; output 128 · 7 + 7.
    "transformer_classifier": 278_791,
    # Embeddings 101 · 200; GRUs 2 · 3 · (200 · 100 + 100² + 2 · 100); output 200 · 7 + 7.
    "birnn_classifier": 202_807,
    # Embeddings 101 · 200; GRUs 2 · 3 · (200 · 50 + 50² + 2 · 50); pooling: query 100, maps 2 · 100² + 100, and 100;
    # output 100 · 7 + 7.
    "birnn_attention_classifier": 116_807,
    # As above, and over sentences: GRUs 2 · 3 · (100 · 50 + 50² + 2 · 50); pooling 2 · 100² + 300.
    "han_classifier": 182_707,
    # Embeddings 101 · 300; filters (3 + 4 + 5) · 300 · 100 + 300; output 300 · 7 + 7.
    "cnn_classifier": 392_707,
}

# Small options for each name; each combination is a model of its own to these tests.
_DROPPED = {"dropout": 0.25, "embedding_dropout": 0.25, "word_dropout": 0.25}
_ATTENTION = {"model_dim": 6, **_DROPPED}
_TRANSFORMER = {**_ATTENTION, "num_layers": 2, "intermediate_dim": 11, "num_heads": 3}
_RECURRENT = {"embedding_dim": 7, "units": 5, **_DROPPED}
SMALL = {
    "self_attention_classifier": [
        _ATTENTION,
        {**_ATTENTION, "pooling": "mean", "positions": "learned", "score": "additive", "max_length": 5},
        {
            **_ATTENTION,
            "positions": "concat",
            "concat_projection": False,
            "position_dim": 4,
            "output_projection": False,
        },
    ],
    "transformer_classifier": [
        _TRANSFORMER,
        {
            **_TRANSFORMER,
            "pooling": "attention",
            "normalize_first": True,
            "positions": "rotary",
            "normalization": "rms_norm",
        },
        {**_TRANSFORMER, "positions": "concat", "concat_projection": False, "share_score": False, "score": "additive"},
        {
            **_TRANSFORMER,
            "positions": "learned",
            "pooling": "first",
            "num_segments": 2,
            "embedding_norm": True,
        },
    ],
    "birnn_classifier": [_RECURRENT, {**_RECURRENT, "pooling": "mean", "cell_type": "lstm", "num_layers": 2}],
    "birnn_attention_classifier": [_RECURRENT],
    "han_classifier": [
        {**_RECURRENT, "sentence_ends": "4,5,6", "max_sentences": 3},
        {**_RECURRENT, "cell_type": "lstm", "sentence_ends": "5"},
    ],
    "cnn_classifier": [
        {"embedding_dim": 7, "num_filters": 5, **_DROPPED},
        {"embedding_dim": 7, "num_filters": 5, **_DROPPED, "filter_widths": "1,2,8", "pooling": "attention"},
    ],
}
# Both kinds of attention, of cells and of poolings are among these.
CHOSEN = {
    ("self_attention_classifier", 0),
    ("transformer_classifier", 1),
    ("birnn_classifier", 1),
    ("birnn_attention_classifier", 0),
    ("han_classifier", 0),
    ("cnn_classifier", 0),
}


def small(name, options, **arguments):
    return create(name, vocab_size=SYMBOLS, num_classes=CLASSES, **options, **arguments)


def batch(seed=0):
    """Returns texts [B, S] of different lengths, each with its end symbol, padded."""
    tokens = np.random.default_rng(seed).integers(UNKNOWN + 1, SYMBOLS, (B, S)).astype("int32")
    for row, length in enumerate(LENGTHS):
        tokens[row, length - 1], tokens[row, length:] = END, PAD
    return tokens


def logits(model, tokens, **options):
    return numpy(model({"tokens": tokens}, **options))


every, chosen = fixtures(SMALL, CHOSEN, small, lambda model: logits(model, batch()))


@pytest.mark.parametrize("name", names_of("classifier"))
def test_every_name_has_a_pinned_number_of_weights(name):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    model = zoo.create_model(name, vocab_size=101, num_classes=7)
    assert model.count_params() == PINS[name]
    assert model.name == name and isinstance(model, ClassifierModel)


def test_config_round_trip(every):
    config, spec = check_config(every.model), zoo.get_spec(every.name)
    assert {*spec.config, *spec.required} <= set(config)
    assert {**spec.config, **every.options}.items() <= config.items()


def test_filter_widths_are_read_as_they_were_saved_once():
    model = zoo.create_model("cnn_classifier", vocab_size=13, num_classes=3, filter_widths=[1, 4], num_filters=2)
    assert model.filter_widths == "1,4" and [layer.kernel_size for layer in model.convolutions] == [(1,), (4,)]


def test_reload_is_equal(model, expected, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits(loaded, batch()), expected)


def test_shapes(model):
    assert logits(model, batch()).shape == (B, CLASSES)
    vectors = numpy(model.represent(batch()))
    assert vectors.shape[:2] == (B, S) and vectors.shape[2] == model.output_dense.kernel.shape[0]
    assert np.all(vectors[batch() == PAD] == 0) and np.all(np.any(vectors != 0, axis=(1, 2)))


def test_padding_changes_nothing(model, expected):
    tokens = batch()
    vectors = numpy(model.represent(tokens))
    wide = np.pad(tokens, ((0, 0), (0, 3)))
    np.testing.assert_allclose(logits(model, wide), expected, atol=2e-6)
    np.testing.assert_allclose(numpy(model.represent(wide))[:, :S], vectors, atol=2e-6)
    for row, length in list(enumerate(LENGTHS))[1::2]:  # texts as if they were alone
        alone = tokens[row : row + 1, :length]
        np.testing.assert_allclose(logits(model, alone)[0], expected[row], atol=2e-6)
        np.testing.assert_allclose(numpy(model.represent(alone))[0], vectors[row, :length], atol=2e-6)


def test_a_row_of_padding_is_harmless(model, expected):
    # Batches of a fixed height are filled up with such rows.
    tokens = batch()
    tokens[3] = PAD
    result = logits(model, tokens)
    np.testing.assert_allclose(result[3], numpy(model.output_dense.bias), atol=1e-6)
    np.testing.assert_allclose(result[:3], expected[:3], atol=2e-6)
    found = gradients(lambda: ops.sum(ops.square(model({"tokens": tokens}))), model)
    assert all(np.all(np.isfinite(gradient)) for gradient in found.values())


def test_vectors_know_their_context_and_their_order(model):
    tokens = batch()
    other, swapped = tokens.copy(), tokens.copy()
    other[0, 2] = UNKNOWN + 1 if tokens[0, 2] != UNKNOWN + 1 else UNKNOWN + 2
    swapped[0, [1, 2]] = other[0, 2], tokens[0, 1]
    tokens[0, 2] = other[0, 2]
    other = batch()
    assert tokens[0, 1] != tokens[0, 2] != other[0, 2]
    assert not np.allclose(numpy(model.represent(tokens))[0, 3], numpy(model.represent(other))[0, 3], atol=1e-4)
    assert not np.allclose(logits(model, tokens)[0], logits(model, swapped)[0], atol=1e-4)


def test_attention_is_between_real_tokens(model):
    tokens = batch()
    if not model.attends:
        with pytest.raises(NotImplementedError, match=f"{type(model).__name__} has no attention."):
            model.attention(tokens)
        return
    weights = numpy(model.attention(tokens))
    layers, heads = {"transformer_classifier": (2, 3), "han_classifier": (2, 1)}.get(model.name, (1, 1))
    assert weights.shape == (B, layers, heads, S, S)
    real = tokens != PAD
    pairs = np.broadcast_to((real[:, :, None] & real[:, None])[:, None, None], weights.shape).copy()
    if model.name == "han_classifier":  # its first layer is within sentences
        sentences = numpy(model.sentences(tokens))
        pairs[:, 0, 0] &= sentences[:, :, None] == sentences[:, None]
    np.testing.assert_array_equal(weights > 0, pairs)
    np.testing.assert_allclose(
        weights.sum(axis=-1), np.broadcast_to(real[:, None, None], weights.shape[:-1]), atol=1e-6
    )


def test_attention_is_what_the_model_used():
    model, tokens = small("birnn_attention_classifier", _RECURRENT), batch()
    weights = numpy(model.attention(tokens))[:, 0, 0]
    np.testing.assert_array_equal(weights[0], np.broadcast_to(weights[0, 0], (S, S)))  # the same row for every token
    pooled = np.einsum("bs,bsd->bd", weights[:, 0], numpy(model.represent(tokens)))
    output = model.output_dense
    expected = pooled @ numpy(output.kernel) + numpy(output.bias)
    np.testing.assert_allclose(logits(model, tokens), expected, atol=2e-6)


@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_pooling_by_hand(pooling):
    model, tokens = small("cnn_classifier", {**SMALL["cnn_classifier"][0], "pooling": pooling}), batch()
    vectors, output = numpy(model.represent(tokens)), model.output_dense
    pool = {"mean": np.mean, "max": np.max, "first": lambda rows, axis: rows[0]}[pooling]
    pooled = np.stack([pool(vectors[row, :length], axis=0) for row, length in enumerate(LENGTHS)])
    expected = pooled @ numpy(output.kernel) + numpy(output.bias)
    np.testing.assert_allclose(logits(model, tokens), expected, atol=2e-6)


def test_convolutions_by_hand():
    options = {"embedding_dim": 2, "num_filters": 3, "filter_widths": "2,3"}
    model, tokens = small("cnn_classifier", options), np.array([[5, 7, END, PAD]], "int32")
    embedded = np.concatenate([np.zeros((1, 2)), numpy(model.embedding.embeddings)[[5, 7, END]], np.zeros((1, 2))])
    expected = []
    for width, first in ((2, 1), (3, 0)):  # a filter of even width looks one token further to the right
        convolution = model.convolutions[width - 2]
        windows = np.stack([embedded[first + place : first + place + width] for place in range(3)])
        found = np.einsum("swd,wdf->sf", windows, numpy(convolution.kernel)) + numpy(convolution.bias)
        expected.append(np.maximum(found, 0))
    np.testing.assert_allclose(numpy(model.represent(tokens))[0, :3], np.concatenate(expected, axis=-1), atol=1e-6)


def test_self_attention_by_hand():
    options = {"model_dim": 4, "positions": "none", "pooling": "mean"}
    model, tokens = small("self_attention_classifier", options), batch()[:1]
    embedded = numpy(model.embedding.embeddings)[tokens[0]] * 2.0  # √D
    attention = model.attention_layer
    value, output = (
        [numpy(weight) for weight in dense.weights] for dense in (attention.value_dense, attention.output_dense)
    )
    found = numpy(model.attention(tokens))[0, 0, 0] @ (embedded @ value[0] + value[1]) @ output[0] + output[1]
    kernel, bias = (numpy(weight) for weight in model.hidden_dense.weights)
    expected = np.maximum((embedded + found) @ kernel + bias, 0)
    np.testing.assert_allclose(numpy(model.represent(tokens))[0], expected, atol=2e-6)


def test_without_positions_order_is_not_seen():
    model = small("self_attention_classifier", {**_ATTENTION, "positions": "none"})
    tokens = batch()
    np.testing.assert_allclose(logits(model, tokens[:1, ::-1].copy()), logits(model, tokens[:1]), atol=2e-6)


def test_gradient_reaches_every_weight(model):
    check_gradients(lambda: model({"tokens": batch()}), model)


def test_dropout_acts_in_training_only(model, expected):
    check_dropout(lambda training: logits(model, batch(), training=training), expected)


@pytest.mark.parametrize("kind", ["dropout", "embedding_dropout", "word_dropout"])
@pytest.mark.parametrize("name", names_of("classifier"))
def test_every_kind_of_dropout_acts_alone(name, kind):
    model = small(name, {**SMALL[name][0], **dict.fromkeys(_DROPPED, 0.0), kind: 0.5})
    tokens = batch()
    assert not np.allclose(logits(model, tokens, training=True), logits(model, tokens), atol=1e-3)


def test_word_dropout_makes_words_unknown():
    tokens = np.tile(np.arange(SYMBOLS, dtype="int32"), (200, 1))
    layer = WordDropout(0.3, seed=1)
    np.testing.assert_array_equal(numpy(layer(tokens)), tokens)
    dropped = numpy(layer(tokens, training=True))
    assert set(np.unique(dropped[:, UNKNOWN + 1 :] - tokens[:, UNKNOWN + 1 :])) == {0, *range(-SYMBOLS + 4, 0)}
    np.testing.assert_array_equal(dropped[:, : UNKNOWN + 1], tokens[:, : UNKNOWN + 1])
    assert np.all((dropped == tokens) | (dropped == UNKNOWN))
    assert 0.27 < np.mean(dropped[:, UNKNOWN + 1 :] == UNKNOWN) < 0.33


@pytest.mark.parametrize("name", names_of("classifier"))
def test_mixed_precision_reaches_every_layer(name):
    options = SMALL[name][-1]
    model, low = small(name, options), small(name, options, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in low._flatten_layers()} == {"mixed_bfloat16"}
    # bfloat16 has eight bits, and processors round what they add up in different places.
    np.testing.assert_allclose(logits(low, batch()), logits(model, batch()), rtol=2**-5, atol=0.08)
    assert np.all(np.isfinite(logits(low, batch(), training=True)))


@pytest.mark.parametrize("name", nightly_unless(("cnn_classifier", "han_classifier").__contains__, names_of("classifier")))
def test_graph_of_unknown_sizes(name):
    model = small(name, SMALL[name][-1])
    function, tokens = compiled(lambda tokens: model({"tokens": tokens})), batch()
    np.testing.assert_allclose(numpy(function(tokens)), logits(model, tokens), atol=2e-6)
    np.testing.assert_allclose(numpy(function(tokens[2:, :2])), logits(model, tokens[2:, :2]), atol=2e-6)
    if model.attends:
        attention = compiled(model.attention)
        np.testing.assert_allclose(numpy(attention(tokens)), numpy(model.attention(tokens)), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn_classifier", {"num_filters": 0}, "`num_filters` must be a positive integer. Received: num_filters=0."),
        ("cnn_classifier", {"filter_widths": "3,x"}, "must be different positive integers, .* filter_widths='3,x'."),
        (
            "cnn_classifier",
            {"filter_widths": [3, 3]},
            "must be different positive integers, .* filter_widths='3,3'.",
        ),
        ("cnn_classifier", {"filter_widths": "0"}, "must be different positive integers, .* filter_widths='0'."),
        ("cnn_classifier", {"pooling": "sum"}, "`pooling` must be mean, max, attention or first. Received"),
        ("cnn_classifier", {"word_dropout": 1.0}, r"`word_dropout` must be in \[0, 1\). Received: word_dropout=1.0."),
        ("han_classifier", {"sentence_ends": "4,x"}, "must be auto, none or ids below vocab_size=13, .*ends='4,x'."),
        ("han_classifier", {"sentence_ends": "13"}, "must be auto, none or ids below vocab_size=13, .*ends='13'."),
        ("han_classifier", {"pooling": "max"}, "`pooling` must be attention. Received: pooling='max'."),
        ("birnn_classifier", {"cell_type": "rnn"}, "`cell_type` must be gru or lstm. Received: cell_type='rnn'."),
        ("birnn_classifier", {"units": 2.0}, "`units` must be a positive integer. Received: units=2.0."),
        ("birnn_classifier", {"embedding_dropout": -0.1}, r"`embedding_dropout` must be in \[0, 1\)."),
        ("transformer_classifier", {"max_length": 0}, "`max_length` must be a positive integer."),
        (
            "transformer_classifier",
            {"num_heads": 3},
            "a multiple of `num_heads`. Received: model_dim=128, num_heads=3.",
        ),
        ("self_attention_classifier", {"score": "dots"}, "Unknown score 'dots'. Did you mean dot"),
        ("self_attention_classifier", {"dropout": 1}, r"`dropout` must be in \[0, 1\). Received: dropout=1."),
        ("self_attention_classifier", {"num_classes": 0}, "`num_classes` must be a positive integer."),
    ],
)
def test_bad_options(name, options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model(name, **{"vocab_size": 13, "num_classes": 3, **options})


@pytest.mark.parametrize("name", names_of("classifier"))
def test_bad_vocabulary(name):
    with pytest.raises(InputError, match="`vocab_size` must be a positive integer. Received: vocab_size=None."):
        zoo.create_model(name, vocab_size=None, num_classes=3)
