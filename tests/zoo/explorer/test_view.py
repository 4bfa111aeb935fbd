"""Views as data: what is written is what is read, and what is no view is named."""

import json

import numpy as np
import pytest
from support.every import every

from zoo.errors import InputError
from zoo.explorer import AnswerView, Attention, View
from zoo.explorer.view import layers_of


def attention(seed, heads, rows, columns, layers=2):
    chance = np.random.default_rng(seed)
    weights = chance.random((layers, heads, rows, columns)).astype("float32")
    return Attention(list(weights / weights.sum(axis=-1, keepdims=True)))


def view(**changes):
    best = AnswerView(
        "zwei",
        -0.25,
        None,
        ["z", "<b>", "</s>"],
        ["<s>", "z", "<b>"],
        [-0.1, -0.2, -float("inf")],
        [[("z", -0.1), ("y", -3.0)]] * 3,
        {"cross": attention(1, 2, 3, 5), "decoder": attention(2, 2, 3, 3)},
    )
    fields = {
        "task": "seq2seq",
        "model": "m",
        "text": "two",
        "tokens": ["t", "w", "o", " ", "</s>"],
        "attention": {"encoder": attention(3, 2, 5, 5)},
        "answers": [best, AnswerView("drei", -2.0, 1)],
        "notes": ["cut"],
    }
    return View(**{**fields, **changes})


def test_what_is_written_is_what_is_read():
    written = view()
    read = View.from_json(json.loads(json.dumps(written.to_json(), allow_nan=False)))
    assert read.to_json() == written.to_json()
    for kind in ("cross", "decoder"):
        for layer, expected in zip(
            read.answers[0].attention[kind].layers, written.answers[0].attention[kind].layers, strict=True
        ):
            np.testing.assert_allclose(layer, expected, atol=0.6 / 65535)
    assert read.answers[0].log_probs == [-0.1, -0.2, None], "JSON has no infinity"
    assert read.answers[1].tokens is None and read.answers[1].hypothesis == 1


def test_weights_are_numbers_of_sixteen_bits_in_base64():
    weights = Attention([np.float32([[[0, 1, 0.5]]]), None]).to_json()
    assert weights == {"heads": 1, "rows": 1, "columns": 3, "layers": ["AAD//wCA", None]}


def test_weights_that_are_no_weights_are_none():
    strange = Attention([np.float32([[[np.nan, np.inf, -1, 2]]])])
    assert strange.to_json()["layers"] == Attention([np.float32([[[0, 1, 0, 1]]])]).to_json()["layers"]


def test_attention_without_any_layer():
    with pytest.raises(InputError, match="layer"):
        Attention([None]).to_json()


def test_padding_is_left_out():
    weights = np.arange(2 * 1 * 3 * 3, dtype="float32").reshape(2, 1, 3, 3)
    layers = list(layers_of(weights, [True, True, False], [False, True, True]))
    np.testing.assert_array_equal(layers, weights[:, :, :2, 1:])


def _with_alternatives(alternatives):
    answer = AnswerView("a", -1.0, None, ["a"], ["b"], [-1.0], [[]]).to_json()
    return {**answer, "predictions": [{**answer["predictions"][0], "alternatives": alternatives}]}


def test_what_is_no_view_is_refused():
    def weights(rows, columns, text):
        attention = {"heads": 1, "rows": rows, "columns": columns, "layers": [text]}
        return {**view().to_json(), "attention": {"encoder": attention}}

    with every() as failures:
        for value, message in (
            ([], "attention-zoo-view"),
            ({"format": "attention-zoo-view", "version": 1, "task": "poetry"}, "task"),
            ({**view().to_json(), "version": 7}, "version 7.*version 1"),
            ({**view().to_json(), "answers": [{}]}, "'predictions'"),
            ({**view().to_json(), "classes": None}, "TypeError"),
            ({**view().to_json(), "answers": [_with_alternatives([["a"]])]}, "ValueError"),
            (weights(2, 2, "AAAA"), "1 × 2 × 2"),
            (weights(1, 1, "é"), "1 × 1 × 1"),
        ):
            with failures.of(message), pytest.raises(InputError, match=message):
                View.from_json(value)


def test_files(tmp_path):
    path = tmp_path / "views.json"
    path.write_text(json.dumps([view().to_json(), view(text="three").to_json()]), encoding="utf-8")
    assert [read.text for read in View.load(path)] == ["two", "three"]
    path.write_text(json.dumps(view().to_json()), encoding="utf-8")
    assert len(View.load(path)) == 1
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="no views"):
        View.load(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="views.json"):
        View.load(path)
    with pytest.raises(InputError, match="missing.json"):
        View.load(tmp_path / "missing.json")
