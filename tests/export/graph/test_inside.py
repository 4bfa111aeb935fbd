"""What exports show of the inside of models: vectors, and each kind of attention, as Python shows them."""

import re

import numpy as np
import pytest
from support.exports import Case, RequestError

from export.client.answers import alignments
from export.graph.attention_weights import ALL
from export.wire.tensors import as_text
from zoo.vocabulary import START

TEXTS = ["the horse sees a girl", "", "😀", "a " * 700, "abcdefgh", "red"]


@pytest.fixture(scope="module", params=["text", "labelled", "lines"])
def case(request):
    return Case(request.getfixturevalue(f"{request.param}_run"), request.getfixturevalue(f"{request.param}_export"))


def strings(tokens):
    return [token.decode() for token in tokens]


def assert_padded(values, expected):
    """Checks that values begin with what is expected and are zero beyond."""
    inside = tuple(map(slice, expected.shape))
    np.testing.assert_allclose(values[inside], expected, atol=1e-4)
    outside = values.copy()
    outside[inside] = 0
    assert not outside.any()


def test_vectors_are_those_of_python(case):
    outputs = case.ask(TEXTS, "embed")
    assert outputs["embeddings"].dtype == np.float32
    for row, (tokens, vectors) in enumerate(case.run.embed(TEXTS)):
        assert strings(outputs["tokens"][row]) == tokens + [""] * (outputs["tokens"].shape[1] - len(tokens))
        assert_padded(outputs["embeddings"][row], vectors)


def test_attention_of_each_kind_is_that_of_python(case):
    texts = [text for text in TEXTS if len(text) < 100]
    outputs = case.ask(texts, "attention_all")
    kinds = case.run.model.attention_kinds
    assert set(kinds) == outputs.keys() & {"encoder", "cross", "decoder"}
    names = {"encoder": ["source_tokens"], "cross": ["source_tokens", "target_tokens"], "decoder": ["decoder_tokens"]}
    for kind in kinds:
        for row, (*tokens, weights) in enumerate(case.run.attention(texts, kind=kind)):
            assert_padded(outputs[kind][row], weights)
            for name, expected in zip(names[kind] if "cross" in kinds else ["tokens"], tokens, strict=True):
                assert [token for token in strings(outputs[name][row]) if token] == expected


def test_rows_of_very_different_lengths_do_not_change_each_other(case):
    (kind, *_) = case.run.model.attention_kinds
    together, alone = case.ask(["a " * 90, "red"], "attention_all")[kind], case.ask(["red"], "attention_all")[kind]
    assert_padded(together[1], alone[0])


def test_layers_and_heads_by_number(case):
    everything = case.ask(["the horse sees"], "attention_all")
    for kind in case.run.model.attention_kinds:
        _, layers, heads, *_ = everything[kind].shape
        last_heads = [[heads - 1, 0][:heads]]  # several for each text
        for numbers in ({"layer": 0}, {"layer": -1}, {"head": [0]}, {"layer": [-1], "head": last_heads}, {"head": ALL}):
            chosen = {name: np.array(number, np.int32) for name, number in numbers.items()}
            received = case.ask(["the horse sees"], "attention_all", **chosen)[kind]
            layer, head = (
                range(count) if numbers.get(name, ALL) == ALL else np.ravel(numbers[name])
                for name, count in (("layer", layers), ("head", heads))
            )
            np.testing.assert_allclose(received, everything[kind][:, layer][:, :, head], atol=1e-6)


def test_each_text_has_its_own_head(case):
    """As texts of several requests have that a server puts together: what it asks for comes first, and then zeros."""
    texts = ["red", "the horse sees", "a girl", ""]
    everything = case.ask(texts, "attention_all")
    for kind in case.run.model.attention_kinds:
        heads = everything[kind].shape[2]
        numbers = np.array([heads - 1, ALL, 0, -heads], np.int32)
        received = case.ask(texts, "attention_all", layer=np.array([0, -1, ALL, 0], np.int32), head=numbers)[kind]
        assert received.shape == everything[kind].shape
        for row, number in enumerate(numbers):
            weights = everything[kind][row] if number == ALL else everything[kind][row][:, [number]]
            assert_padded(received[row], weights)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"layer": 9}, "`layer` must be less than"),
        ({"head": -9}, "`head` must be less than"),
        ({"layer": 0, "head": [0, 9]}, "`head` must be less than"),
        ({"layer": [0, 0, 0]}, "`layer` must be one, or one for each of] [2] [texts; received] [3"),
        ({"head": []}, "`head` must be one, or one for each of] [2] [texts; received] [0"),
        ({"head": [[0] * 9]}, "`head` must be at most"),  # else a small request would have an answer of any size
    ],
)
def test_layers_and_heads_that_are_not_there(case, numbers, message):
    chosen = {name: np.array(number, np.int32) for name, number in numbers.items()}
    with pytest.raises(RequestError, match=re.escape(message)) as caught:
        case.ask(["red", "a"], "attention_all", **chosen)
    assert caught.value.code.name == "INVALID_ARGUMENT"


def test_no_texts(case):
    for signature in ("embed", "attention_all"):
        assert {len(values) for values in case.ask([], signature).values()} == {0}


def test_a_language_model_can_be_drawn(lines_run, lines_export):
    outputs = Case(lines_run, lines_export).ask(["abcd"], "attention")
    (answer,) = alignments({name: as_text(values) for name, values in outputs.items()})
    ((tokens, weights),) = lines_run.attention(["abcd"])
    assert answer.source_tokens == answer.target_tokens == tokens
    assert tokens == lines_run.reader.pieces([START]) + list("abcd")
    np.testing.assert_allclose(answer.attention, weights, atol=1e-5)
