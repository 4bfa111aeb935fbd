"""What a person reads of an answer: at most ten lines, the best first."""

import copy
import pickle

import numpy as np
import pytest

import zoo
from zoo.inference import Answer, TextAttention


def test_an_answer_names_the_probable_classes_first():
    classes = [f"class <{number}>" for number in range(36)]
    probabilities = np.full(36, 0.2 / 35, "float32")
    probabilities[7] = 0.8
    answer = Answer(classes[7], probabilities, classes)
    label, values = answer
    assert (label, values is probabilities) == ("class <7>", True), "still a pair"
    assert list(answer.ranked)[:3] == ["class <7>", "class <0>", "class <1>"] and len(answer.ranked) == 36
    assert repr(answer).startswith("Answer: class <7> 80.0%, class <0> 0.6%")
    assert "\n" not in repr(answer) and "28 more" in repr(answer)
    assert "<td>class &lt;7&gt;</td><td>80.0%</td>" in answer._repr_html_()
    for copied in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer), answer._replace(label="class <7>")):
        assert copied.label == "class <7>" and repr(copied) == repr(answer)


def test_attention_names_what_each_token_attends_to_most():
    weights = np.zeros((2, 2, 12, 3), "float32")
    weights[..., 0], weights[..., 2] = 0.25, 0.75
    target = [f"t{number}" for number in range(12)]
    between = TextAttention((["a", "b", "<c>"], target, weights))
    source_tokens, target_tokens, same = between
    assert (source_tokens, target_tokens, same is weights) == (["a", "b", "<c>"], target, True)
    lines = repr(between).splitlines()
    assert len(lines) == 10 and "2 layers, 2 heads, 12 × 3" in lines[0]
    assert lines[1].strip() == "t0 → <c> 75%, a 25%", "what has no weight is left out"
    assert "4 more" in lines[-1]
    assert "<td>t0</td><td>&lt;c&gt; 75%, a 25%</td>" in between._repr_html_()
    within = TextAttention((["a", "b", "c"], np.eye(3)[None, None]))
    assert [line.strip() for line in repr(within).splitlines()[1:]] == ["a → a 100%", "b → b 100%", "c → c 100%"]


@pytest.mark.nightly
def test_runs_answer_with_them(labelled_run, text_run, lines_run):
    (answer,) = labelled_run.classify(["A man rides a horse."])
    assert answer.ranked[answer.label] == max(answer.ranked.values())
    for run in (labelled_run, text_run, lines_run):
        (attention,) = run.attention(["A man rides a horse."])
        assert len(repr(attention).splitlines()) <= 10


def test_a_spec_is_at_most_ten_lines():
    for name in zoo.list_models():
        lines = repr(zoo.get_spec(name)).splitlines()
        assert len(lines) <= 10 and lines[0].startswith(f"{name}, ") and "https://" in lines[1]
        assert all(len(line) <= 400 for line in lines)
