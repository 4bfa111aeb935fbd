"""Constraints on sequences, and their probabilities."""

import math

import numpy as np
from keras import ops
from support.decoding import (
    END,
    PAD,
    START,
    TOKENS,
    everything,
    padded,
    prefix_code,
    run_beam,
    run_greedy,
    scripts,
)

from zoo import decoding


def test_the_tempting_tokens_are_never_produced():
    table = scripts(23, 3, 7, 3)
    table[:, :, [PAD, START]] += 100.0
    ids, log_probs = run_beam(table, [3, 3, 3], 3, 0.6)
    assert not np.any(ids == START) and np.all(ids[:, :, 0] != PAD)
    assert np.all(log_probs > -math.inf) and np.all(log_probs > -100)


def ngrams(ids, size):
    return [tuple(ids[first : first + size]) for first in range(len(ids) - size + 1)]


def test_no_tokens_come_twice(resizes):
    """A model that would say one thing for ever."""
    table = np.zeros((2, 2 * 4**7, 4), "float32")
    table[:, :, 3], table[:, :, END] = 5.0, -5.0
    prompts = [(), (3, 3)]
    for size in (1, 2, 3):
        ids, _ = run_greedy(table, [7, 7], None, resizes, prompts, no_repeat_ngram=size)
        # The only token fits `size` times; the prompt takes its place, however long it is.
        for row, count in enumerate((size, max(size, 2))):
            assert ids[row].tolist() == padded((*[3] * count, END), 7)


def test_no_tokens_can_come_twice_where_there_is_no_room_for_them(resizes):
    table = np.zeros((2, 2 * 4**2, 4), "float32")
    table[:, :, 3] = 5.0
    for limit in (1, 2):
        ids, _ = run_greedy(table, [limit, limit], None, resizes, no_repeat_ngram=4)
        assert ids.tolist() == [[3] * limit] * 2
        beams, _ = run_beam(table, [limit, limit], 2, 0.0, resizes, no_repeat_ngram=4)
        assert beams[:, 0].tolist() == ids.tolist()


def test_constraints_on_repetition_find_what_trying_everything_finds(resizes):
    limits, beam_size, size = [4, 3], 8, 2
    table = scripts(5, 2, 5, 4)
    ids, log_probs = run_beam(table, limits, beam_size, 0.0, resizes, no_repeat_ngram=size)
    for row, limit in enumerate(limits):
        expected = [
            (total, sequence)
            for total, sequence in everything(table[row], limit, 0.0)
            if len(set(ngrams(sequence, size))) == len(ngrams(sequence, size))
        ]
        for rank, (total, sequence) in enumerate(expected[:beam_size]):
            assert ids[row, rank].tolist() == padded(sequence, 4)
            np.testing.assert_allclose(log_probs[row, rank], total, rtol=1e-5)


def test_score_is_what_a_search_adds_up():
    table, limits = scripts(29, 3, 7, 4), [4, 2, 4]
    ids, log_probs = run_greedy(table, limits)
    codes = [[prefix_code(row[:place].tolist(), 7) for place in range(4)] for row in ids]
    logits = np.stack([table[row][np.minimum(codes[row], 2 * 7**4 - 1)] for row in range(3)])
    found = decoding.sequence_log_prob(ops.convert_to_tensor(logits), ops.convert_to_tensor(ids), TOKENS)
    np.testing.assert_allclose(ops.convert_to_numpy(found), log_probs, rtol=1e-5)


def test_how_probable_each_token_is_and_what_else_could_stand_there():
    chance = np.random.default_rng(3)
    logits = chance.normal(size=(2, 3, 7)).astype("float32")
    ids = np.array([[5, 3, END], [6, PAD, PAD]], "int32")
    outputs = decoding.token_log_probs(ops.convert_to_tensor(logits), ops.convert_to_tensor(ids), TOKENS, 4)
    outputs = {name: ops.convert_to_numpy(values) for name, values in outputs.items()}
    allowed = [token for token in range(7) if token not in (PAD, START)]
    for row, column in np.ndindex(2, 3):
        found = {name: values[row, column] for name, values in outputs.items()}
        if ids[row, column] == PAD:
            assert not any(np.any(values) for values in found.values())
            continue
        scores = {token: math.exp(logits[row, column, token]) for token in allowed}
        log_probs = {token: math.log(score / sum(scores.values())) for token, score in scores.items()}
        best = sorted(allowed, key=lambda token: -scores[token])[:4]
        assert found["alternatives"].tolist() == best
        np.testing.assert_allclose(found["alternative_log_probs"], [log_probs[token] for token in best], rtol=1e-5)
        np.testing.assert_allclose(found["log_probs"], log_probs[ids[row, column]], rtol=1e-5)
    whole = decoding.sequence_log_prob(ops.convert_to_tensor(logits), ops.convert_to_tensor(ids), TOKENS)
    np.testing.assert_allclose(ops.convert_to_numpy(whole), outputs["log_probs"].sum(axis=1), rtol=1e-5)


def test_there_are_never_more_alternatives_than_tokens():
    logits, ids = ops.zeros((1, 2, 5)), ops.full((1, 2), END, dtype="int32")
    assert decoding.token_log_probs(logits, ids, TOKENS, 9)["alternatives"].shape == (1, 2, 5)
