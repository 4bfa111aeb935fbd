"""`zoo.draw_model`: well-formed, of all architectures, and true to the model."""

import xml.etree.ElementTree as ElementTree

import keras
import pytest
from support.every import every
from support.model_cases import case, create

import zoo
from zoo.errors import InputError
from zoo.inspection.architecture import Architecture
from zoo.inspection.inside import AttentionSteps

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def architecture(name, **options):
    return Architecture(create(name, **options) if options else case(name).model)


def titles(parts):
    return [part.title for part in parts]


@pytest.mark.nightly
def test_architectures():
    for name in ("convs2s_small", "lstm_lm", "cnn_classifier"):
        svg = zoo.draw_model(case(name).model)
        assert svg._repr_svg_() == svg and texts(svg)[0] == name
        assert any(kind in "".join(texts(svg)) for kind in ("attention", "LSTM", "GRU", "convolution")), name
    assert texts(zoo.draw_model("rnnsearch"))[0] == "rnnsearch"


@pytest.mark.nightly
def test_every_named_model():
    with every() as failures:
        for name in zoo.list_models():
            with failures.of(name):
                words = " ".join(texts(zoo.draw_model(name)))
                without = ("rnn_encdec", "lstm_lm", "birnn_classifier", "cnn_classifier")
                assert ("attention" in words) == (name not in without)


def test_blocks_of_a_transformer():
    drawn = architecture("transformer_tiny", num_layers=3)
    assert [group.times for group in drawn.groups] == [3, 3]
    encoder, decoder = ([part for part in drawn.parts if part.groups == (group,)] for group in (0, 1))
    end = ["+", "layer norm", "feed-forward", "+", "layer norm"]
    assert titles(encoder) == ["self-attention", *end]
    assert titles(decoder) == ["masked self-attention", "+", "layer norm", "cross-attention", *end]
    cross = decoder[3]
    assert drawn.parts.index(encoder[-1]) in cross.before and cross.inputs == {"source", "target"}
    assert cross.detail == "3 heads of 2, scaled dot"


@pytest.mark.nightly
def test_normalization_comes_first_if_it_does():
    drawn = architecture("transformer_tiny", num_layers=1, normalize_first=True, visibility="global")
    block = [part for part in drawn.parts if part.groups == (0,)]
    assert titles(block) == ["layer norm", "self-attention", "+", "layer norm", "feed-forward", "+"]
    assert block[1].detail == "3 heads of 2, scaled dot, visibility: sliding window or global tokens"


@pytest.mark.nightly
def test_the_decoder_of_a_recurrent_model_attends_with_its_state():
    drawn = architecture("rnnsearch")
    names = titles(drawn.parts)
    attention, cell = names.index("cross-attention"), names.index("GRU cell")
    assert {names.index("bidirectional GRU"), cell} <= drawn.parts[attention].before
    assert attention in drawn.parts[cell].before
    drawn = architecture("luong_dot")
    names = titles(drawn.parts)
    assert names.index("LSTM cell") in drawn.parts[names.index("cross-attention")].before


def test_steps_of_an_attention_layer():
    layer = zoo.layers.MultiHeadAttention(num_heads=3, key_dim=5, use_bias=False)
    with pytest.raises(InputError, match="not built"):
        zoo.draw_model(layer)
    layer.build((None, None, 7), (None, None, 11))
    drawn = AttentionSteps(layer)
    steps = ["raw scores", "scaled scores", "weights", "weighted sum", "concatenation", "output"]
    assert titles(drawn.parts) == ["input: query", "input: value", "query", "key", "value", *steps]
    before = {part.title: {drawn.parts[number].title for number in part.before} for part in drawn.parts}
    assert [before[name] for name in ("query", "key", "value")] == [
        {"input: query"},
        {"input: value"},
        {"input: value"},
    ]
    assert before["raw scores"] == {"query", "key"} and before["weighted sum"] == {"weights", "value"}
    assert [before[name] for name in ("scaled scores", "weights", "concatenation", "output")] == [
        {"raw scores"},
        {"scaled scores"},
        {"weighted sum"},
        {"concatenation"},
    ]
    assert [group.times for group in drawn.groups] == [3]
    assert [part.title for part in drawn.parts if part.groups] == ["query", "key", "value", *steps[:4]]
    shown = texts(zoo.draw_model(layer))
    assert shown[0] == "MultiHeadAttention" and "3 ×" in shown and "softmax(scaled_scores), [3, T, T]" in shown


def test_an_attention_layer_without_heads_and_weights():
    layer = zoo.layers.ScaledDotProductAttention()
    layer.build((None, None, 7), (None, None, 7))
    drawn = AttentionSteps(layer)
    assert not drawn.groups and titles(drawn.parts)[:3] == ["input: query", "input: value", "raw scores"]
    assert drawn.parts[2].before == {0, 1} and {1} < drawn.parts[5].before


def test_a_model_without_attention_has_none():
    assert not any(part.kind == "attention" for part in architecture("rnn_encdec").parts)


def test_built_models_and_their_sizes():
    model = zoo.create_model("self_attention_classifier", vocab_size=13, num_classes=5)
    lines = texts(zoo.draw_model(model))
    assert "→ 5" in lines and f"{model.count_params():,} weights" in lines
    assert "→ classes" in texts(zoo.draw_model("self_attention_classifier"))


def test_wrong_names():
    with pytest.raises(InputError, match="rnnserach.*rnnsearch"):
        zoo.draw_model("rnnserach")
    with pytest.raises(InputError, match="list_models"):
        zoo.draw_model(keras.layers.Dense(3))
