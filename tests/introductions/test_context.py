"""Meaning in context, as it is taught."""

import numpy as np
import pytest
from introductions.conftest import close, numpy
from support.commands import parse

import zoo
from experiments.catalog import NAMES, classification

pytestmark = pytest.mark.nightly  # its page trains for 16 seconds


def row_the_apple_that_is_eaten(names):
    answer = names["answer"]
    assert answer.label == "apple.fruit" and answer.probabilities.max() >= 0.9


def row_the_apple_that_is_updated(names):
    answers = names["answers"]
    assert [answer.label for answer in answers] == ["apple.company"] * 2
    assert all(answer.probabilities.max() >= 0.9 for answer in answers)


def row_one_word_and_its_vectors(names, printed):
    vectors = np.stack(apples(names["senses"].embed(names["texts"])))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = names["comparison"].cosines
    close(cosines, vectors @ vectors.T)
    assert cosines[0, 1] >= 0.8 and cosines[0, 2] <= 0.5 and cosines[1, 2] <= 0.5
    assert f"0:  1.00  {cosines[0, 1]:.2f}  {cosines[0, 2]:.2f}" in printed


def row_it_leans_towards_its_neighbours(names):
    fruit, company = ([word for word, _, _ in nearest[:3]] for nearest in names["neighbours"])
    assert set(fruit) == {"juicy", "ate", "lunch"} and "phone" in company


def row_what_apple_attends_to(names):
    assert set(names["looked_at"]) == {"▁juicy", "▁ate", "▁lunch"}


def row_a_picture_of_what_it_attends_to(command_lines):
    ((module, arguments),) = command_lines
    assert str(parse(module, arguments).heatmap) == "apple.png"


def apples(embedded):
    """Returns the vector of "apple" in each text."""
    return [vectors[tokens.index("▁apple")] for tokens, vectors in embedded]


def row_static_vectors(names):
    first, second = apples(names["static"])
    close(first, second)


def row_contextual_vectors(names):
    first, second = apples(names["contextual"])
    assert first @ second / np.linalg.norm(first) / np.linalg.norm(second) < 0.5


def row_better_with_context(command_lines):
    static, contextual = (parse(*command) for command in command_lines)
    assert (static.model, contextual.model) == ("cnn_classifier", "self_attention_classifier")
    model = zoo.create_model(
        "cnn_classifier", vocab_size=13, num_classes=2, filter_widths="1", embedding_dim=8, num_filters=7
    )
    first, second = (numpy(model.represent(np.array([[5, other, 2]], "int32")))[0, 0] for other in (6, 7))
    close(first, second)  # whatever stands beside it


def check_training(command_lines, kind, task):
    ((module, arguments),) = command_lines
    options = parse(module, arguments)
    assert module == "training.train" and options.data.startswith(kind)
    assert zoo.get_spec(options.model).task == task


def row_context_in_translation(command_lines):
    check_training(command_lines, "text:", "seq2seq")


def row_context_in_sentiment(command_lines):
    check_training(command_lines, "tsv:", "classifier")


def row_context_in_questions(command_lines):
    check_training(command_lines, "tsv:", "classifier")


def row_attention_in_a_classifier(command_lines):
    ((module, arguments),) = command_lines
    assert module == "experiments" and arguments[0] in NAMES
    assert "attention" in classification.POOLINGS and zoo.get_spec(classification.MODEL).task == "classifier"


def test_rows(check_rows):
    check_rows()
