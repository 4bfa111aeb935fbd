"""A loaded language model goes on with texts, whatever they are."""

import math
import re

import numpy as np
import pytest

from zoo.errors import InputError
from zoo.inference.language_model_run import cut_prompt
from zoo.vocabulary import PAD, START

PROMPTS = ["abc", "", "h", "bcdefgha", "z😀", "abcdefghabcdefgh"]


def test_it_learned_the_alphabet(lines_run):
    assert lines_run.generate(["abc", "gha"], max_length=7) == ["defg", "bcde"]


def test_order_is_kept_and_a_batch_answers_like_each_alone(lines_run):
    for options in ({}, {"temperature": 1.3, "seed": 5}):
        answers = lines_run.generate(PROMPTS, **options)
        assert answers == lines_run.generate(PROMPTS, batch_size=4, **options)
    assert lines_run.generate(PROMPTS) == [lines_run.generate([prompt])[0] for prompt in PROMPTS]
    assert lines_run.generate([]) == []


def test_greedy_answers_are_the_most_probable_symbols(lines_run):
    (answer,) = lines_run.generate(["abc"])
    ids = lines_run.tokenizers.text.encode(["abc" + answer])[0]
    logits = np.array(lines_run.model({"tokens": np.array([[START, *ids[:-1]]], "int32")}))[0]
    assert logits[3:, 2:].argmax(axis=-1).tolist() == [symbol - 2 for symbol in ids[3:]]


def test_samples_differ_by_seed_and_by_row_and_repeat(lines_run):
    prompts = [""] * 5
    answers = lines_run.generate(prompts, temperature=1.5, seed=1)
    assert len(set(answers)) > 1
    assert answers == lines_run.generate(prompts, temperature=1.5, seed=1)
    assert answers != lines_run.generate(prompts, temperature=1.5, seed=2)
    assert lines_run.generate(prompts, temperature=1.5, seed=1, top_k=1) == lines_run.generate(prompts)
    assert lines_run.generate(prompts, temperature=1.5, seed=1, top_p=1e-6) == lines_run.generate(prompts)


def test_a_prompt_without_room_is_cut_from_the_front(lines_run):
    room = lines_run.model.max_length
    long = "abcdefgh" * 9
    assert lines_run.generate([long]) == lines_run.generate([long[-(room // 2) :]])
    assert [cut_prompt(list(range(size)), 6) for size in (5, 6, 9)] == [[0, 1, 2, 3, 4], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "`temperature` must be a finite number of 0 or more. Received: temperature=-1.0."),
        ({"temperature": math.nan}, "`temperature` must be a finite number of 0 or more. Received: temperature=nan."),
        ({"temperature": math.inf}, "Received: temperature=inf."),
        ({"top_p": math.nan}, "`top_p` must be in (0, 1]. Received: top_p=nan."),
        ({"top_k": -1}, "`top_k` must be an integer of 0 or more. Received: top_k=-1."),
        ({"top_p": 0.0}, "`top_p` must be in (0, 1]. Received: top_p=0.0."),
        ({"max_length": 0}, "`max_length` must be a positive integer. Received: max_length=0."),
        ({"max_length": 2.5}, "`max_length` must be a positive integer. Received: max_length=2.5."),
        ({"top_k": "3"}, "`top_k` must be an integer of 0 or more. Received: top_k='3'."),
        ({"seed": 1 << 40}, "`seed` must be an integer from -2147483648 to 2147483647. Received: seed=1099511627776."),
        ({"seed": 0.5}, "`seed` must be an integer from -2147483648 to 2147483647. Received: seed=0.5."),
        ({"max_length": 99}, "`max_length` must be from 1 to 13. Received: max_length=99."),
    ],
)
def test_bad_options(lines_run, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        lines_run.generate(["a"], **options)


def test_one_string_is_no_list(lines_run):
    with pytest.raises(InputError, match="Received a single string: 'one text'"):
        lines_run.generate("one text")


def test_scores_are_those_of_the_symbols_one_after_the_other(lines_run):
    limit = lines_run.model.max_length
    for text, (log_prob, count) in zip(PROMPTS, lines_run.score(PROMPTS), strict=True):
        (ids,) = lines_run.tokenizers.text.encode([text])
        ids = ids[:limit]
        assert count == len(ids)
        logits = np.array(lines_run.model({"tokens": np.array([[START, *ids]], "int32")[:, :limit]}))[0]
        logits[:, [PAD, START]] = -np.inf
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(log_prob, sum(log_probs[range(len(ids)), ids]), rtol=1e-4, atol=1e-6)


def test_a_continuation_is_as_probable_as_the_longer_text(lines_run):
    limit = lines_run.model.max_length
    (found,) = lines_run.continuations(["abc"])
    (before, _), (whole, count) = lines_run.score(["abc", f"abc{found.text}"])
    assert count == limit, "it ends where there is no more room, and not with a symbol for the end"
    np.testing.assert_allclose(found.log_prob, whole - before, rtol=1e-4)
    assert [found.text] == lines_run.generate(["abc"])
