"""A loaded language model goes on with texts, whatever they are."""

import collections
import copy
import math

import keras
import numpy as np
import pytest
from support.every import every

import zoo
from zoo.decoding_options import GenerationOptions
from zoo.errors import InputError
from zoo.inference.generator import Generator
from zoo.inference.language_model_run import cut_prompt
from zoo.vocabulary import END, PAD, START

PROMPTS = ["abc", "", "h", "bcdefgha", "z😀", "abcdefghabcdefgh"]


def test_it_learned_the_alphabet(lines_run):
    assert [text[:4] for text in lines_run.generate(["abc", "gha"])] == ["defg", "bcde"]


def test_order_is_kept_and_a_batch_answers_like_each_alone(lines_run):
    for options in ({}, {"temperature": 1.5, "seed": 1, "max_length": 11}):
        answers = lines_run.generate(PROMPTS, **options)
        assert answers == lines_run.generate(PROMPTS, batch_size=4, **options)
    assert lines_run.generate(PROMPTS) == [lines_run.generate([prompt])[0] for prompt in PROMPTS]
    assert all(len(prompt + answer) <= 11 for prompt, answer in zip(PROMPTS[:4], answers, strict=False))
    assert lines_run.generate([]) == []


def test_greedy_answers_are_the_most_probable_tokens(lines_run):
    (answer,) = lines_run.generate(["abc"])
    ids = lines_run.tokenizers.text.encode(["abc" + answer])[0]
    logits = np.array(lines_run.model({"tokens": np.array([[START, *ids[:-1]]], "int32")}))[0]
    assert logits[3:, 2:].argmax(axis=-1).tolist() == [token - 2 for token in ids[3:]]


def test_samples_differ_by_seed_and_by_row_and_repeat(lines_run):
    prompts, options = [""] * 5, {"temperature": 1.5, "max_length": 11}
    answers = lines_run.generate(prompts, seed=1, **options)
    assert len(set(answers)) > 1
    assert answers == lines_run.generate(prompts, seed=1, **options)
    assert answers != lines_run.generate(prompts, seed=2, **options)


def test_draws_among_one_token_are_greedy(lines_run):
    numbers = np.arange(5, dtype="int32")
    inputs = {"prompt": np.full((5, 1), PAD, "int32"), "seed": numbers, "row": numbers}

    def ids(**options):
        return np.array(Generator(lines_run.model, GenerationOptions(max_length=3, **options))(inputs)["ids"]).tolist()

    assert ids(temperature=9.0, top_k=1) == ids(temperature=9.0, top_p=1e-6) == ids() != ids(temperature=9.0)


def test_drafts_change_no_answer(lines_run):
    """Neither greedy ones nor samples; prompts are read, and ended texts left, as without them."""
    greedy, sampled = {}, {"temperature": 1.5, "seed": 1, "max_length": 11}
    drafted_by = lines_run.with_draft
    for run, options in (
        (lines_run, greedy),
        (lines_run, sampled),
        (drafted_by(lines_run), sampled),
        (drafted_by(untrained(lines_run)), greedy),
    ):
        answers = lines_run.continuations(PROMPTS, **options)
        drafted = run.continuations(PROMPTS, draft_length=3, **options)
        assert [answer.text for answer in drafted] == [answer.text for answer in answers]
        log_probs = [[answer.log_prob for answer in each] for each in (drafted, answers)]
        np.testing.assert_allclose(*log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_samples_with_drafts_follow_the_distribution():
    """By a χ² test of texts of three tokens, with drafts that are looked up, right, or often wrong."""
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Draft models need TensorFlow.")
    size, count, temperature, first = 7, 2_000, 0.05, 3
    small = {"vocab_size": size, "max_length": 29, "num_layers": 1, "model_dim": 16, "intermediate_dim": 8}
    model, other = (zoo.create_model("causal_lm_tiny", **small) for _ in range(2))
    prompt = np.array([[first, 4, first, 4, first]], "int32")
    probabilities = {(): 1.0}  # of tokens after the prompt
    for _ in range(3):
        begun = {tokens: share for tokens, share in probabilities.items() if tokens[-1:] != (END,)}
        rows = [[START, *prompt[0], *tokens] for tokens in begun]
        logits = np.array(model({"tokens": np.array(rows, "int32")}))[:, -1, END:] / temperature
        shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        for (tokens, share), row in zip(begun.items(), shares, strict=True):
            del probabilities[tokens]
            probabilities |= {(*tokens, END + token): share * float(row[token]) for token in range(size - END)}
    for draft in (None, model, other):
        options = GenerationOptions(max_length=prompt.shape[1] + 3, temperature=temperature, draft_length=2)
        generate = tf.function(Generator(model, options, draft=draft), autograph=False)
        drawn = collections.Counter()
        for seed in range(count):
            inputs = {"prompt": prompt, "seed": np.array([seed], "int32"), "row": np.zeros(1, "int32")}
            ids = generate({name: tf.constant(value) for name, value in inputs.items()})["ids"].numpy()[0]
            drawn[tuple(int(token) for token in ids[prompt.shape[1] :] if token)] += 1
        assert drawn.keys() <= probabilities.keys()
        frequent = {tokens: count * share for tokens, share in probabilities.items() if count * share >= 5}
        rare = count - sum(frequent.values())
        statistic = sum((drawn[tokens] - expected) ** 2 / expected for tokens, expected in frequent.items())
        statistic += (count - sum(drawn[tokens] for tokens in frequent) - rare) ** 2 / rare if rare >= 5 else 0
        freedom = len(frequent) - (rare < 5)
        assert freedom > 20
        assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.1 * (2 / (9 * freedom)) ** 0.5) ** 3, "p < 0.001"


def untrained(run, **options):
    """Returns a run like another one, with a model of one layer that knows nothing."""
    other = copy.copy(run)
    settings = {**run.config["model"], "num_layers": 1, **options}
    other.model = zoo.create_model(settings.pop("name"), **settings)
    other.model({"tokens": np.ones((1, 1), "int32")})
    return other


def test_draft_models_that_are_refused(lines_run, labelled_run, text_run):
    run = copy.copy(lines_run)
    run.tokenizers = run.tokenizers_type(text=text_run.tokenizers.source)
    with every() as failures:
        for draft, words in (
            (labelled_run, "classifier"),
            (text_run, "same task.*seq2seq"),
            (run, "tokenizers differ"),
            (untrained(lines_run, self_attention="ssru"), "keeps the keys and values"),
            (lines_run.path, "`draft` must be a run"),
        ):
            with failures.of(words), pytest.raises(InputError, match=words):
                lines_run.with_draft(draft)
    with pytest.raises(InputError, match="classifier"):
        labelled_run.with_draft(lines_run)
    with pytest.raises(InputError, match="for which another one drafts.*keeps the keys and values"):
        untrained(lines_run, self_attention="ssru").with_draft(lines_run)
    with pytest.raises(InputError, match="`draft` must be one work directory"):
        zoo.load(lines_run.path, draft=[lines_run.path])
    shorter = lines_run.with_draft(untrained(lines_run, max_length=8))
    assert shorter.generate(["a"], draft_length=3, max_length=8)
    with pytest.raises(InputError, match="`max_length`.*8.*draft model.*max_length=13"):
        shorter.generate(["a"], draft_length=3)


def test_a_prompt_without_room_is_cut_from_the_front(lines_run):
    room = lines_run.model.max_length
    long = "abcdefgh" * 9
    assert lines_run.generate([long]) == lines_run.generate([long[-(room // 2) :]])
    assert [cut_prompt(list(range(size)), 6) for size in (5, 6, 9)] == [[0, 1, 2, 3, 4], [3, 4, 5], [6, 7, 8]]


def test_bad_options(lines_run):
    with every() as failures:
        for name, values, expected in (
            ("temperature", (-1.0, math.nan, math.inf), "0 or more"),
            ("top_p", (math.nan, 0.0), r"\(0, 1\]"),
            ("top_k", (-1, "3"), "0 or more"),
            ("max_length", (0, 2.5), "positive integer"),
            ("max_length", (99,), "1 to 13"),
            ("seed", (1 << 40, 0.5), "-2147483648 to 2147483647"),
        ):
            for value in values:
                message = f"`{name}`.*{expected}.*{name}={value!r}"
                with failures.of((name, value)), pytest.raises(InputError, match=message):
                    lines_run.generate(["a"], **{name: value})
    with pytest.raises(InputError, match="`draft_length`.*`no_repeat_ngram`.*no_repeat_ngram=2"):
        lines_run.generate(["a"], draft_length=3, no_repeat_ngram=2)
    with pytest.raises(InputError, match="`texts`.*'one text'"):
        lines_run.generate("one text")


def test_scores_are_those_of_the_tokens_one_after_the_other(lines_run):
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
    assert count == limit, "it ends where there is no more room, and not with a token for the end"
    np.testing.assert_allclose(found.log_prob, whole - before, rtol=1e-4)
    assert [found.text] == lines_run.generate(["abc"])
