"""Beam search beside a search that tries everything, and penalties by hand."""

import keras
import numpy as np
import pytest
from keras import ops
from support.decoding import (
    END,
    PAD,
    START,
    constraints,
    everything,
    padded,
    penalty,
    plain_beam_search,
    prefix_code,
    run_beam,
    run_greedy,
    score,
    scripts,
    stepper,
)

from zoo import decoding
from zoo.decoding import beam_search, length_penalty, repeat_rows
from zoo.decoding_options import RULES


def test_beam_search_finds_what_trying_everything_finds(resizes):
    # 8 beams hold every prefix of up to 3 of the 2 real tokens, so that nothing is missed.
    limits, beam_size, alpha = [4, 2, 3, 1, 4, 4] * 2, 8, 1.0 if resizes else 0.6
    table = scripts(1, len(limits), 5, 4)
    ids, log_probs = run_beam(table, limits, beam_size, alpha, resizes)
    for row, limit in enumerate(limits):
        expected = everything(table[row], limit, alpha)
        for rank, (total, sequence) in enumerate(expected[:beam_size]):
            assert ids[row, rank].tolist() == padded(sequence, 4)
            np.testing.assert_allclose(log_probs[row, rank], total, rtol=1e-5)
        # Where there are fewer sequences than beams, the rest is marked by its score.
        assert np.all(log_probs[row, len(expected) :] < -1e29)


def test_beam_search_against_lists_and_the_best_alone(resizes):
    limits = [4, 3, 4, 2] * 3
    table = scripts(2, len(limits), 11, 4, scale=1.0)
    for beam_size, alpha, nbest in ((1, 0.0, 1), (3, 1.0, 2)) if resizes else ((2, 1.0, 1), (5, 0.0, 2)):
        ids, log_probs = run_beam(table, limits, beam_size, alpha, resizes)
        for row, limit in enumerate(limits):
            expected = plain_beam_search(table[row], limit, beam_size, alpha)
            assert ids[row].tolist() == [padded(sequence, 4) for _, sequence in expected]
            np.testing.assert_allclose(log_probs[row], [total for total, _ in expected], rtol=1e-5)
        best = run_beam(table, limits, beam_size, alpha, resizes, nbest=nbest)
        np.testing.assert_array_equal(best[0], ids[:, :nbest])
        np.testing.assert_allclose(best[1], log_probs[:, :nbest], rtol=1e-6)


def test_one_sure_beam_is_greedy():
    table, limits = scripts(7, 3, 7, 4), [4, 2, 3]
    sure = np.random.default_rng(7).integers(END, 7, table.shape[:2])
    np.put_along_axis(table, sure[:, :, None], 50.0, axis=-1)
    for alpha in (0.0, 0.6):
        ids, log_probs = run_beam(table, limits, 1, alpha)
        expected_ids, expected = run_greedy(table, limits)
        np.testing.assert_array_equal(ids[:, 0], expected_ids)
        np.testing.assert_allclose(log_probs[:, 0], expected, atol=1e-5)


def test_the_length_penalty_decides_between_short_and_long():
    # "end" at once has probability 0.5; the other way is 0.4 and then sure for 3 tokens more.
    table = np.full((1, 2 * 5**4, 5), -50.0, "float32")
    table[0, START, [END, 3, 4]] = np.log([0.5, 0.4, 0.1])
    table[0, prefix_code((3,), 5), 3] = table[0, prefix_code((3, 3), 5), 3] = table[
        0, prefix_code((3, 3, 3), 5), END
    ] = 50.0
    short, long = [END, PAD, PAD, PAD], [3, 3, 3, END]
    for alpha, expected in ((0.0, short), (0.5, short), (1.0, long)):
        assert run_beam(table, [4], 2, alpha)[0][0, 0].tolist() == expected
        # For the best alone as well, though at first the short one is above what the long one has so far.
        assert run_beam(table, [4], 2, alpha, nbest=1)[0][0, 0].tolist() == expected
    # The scores that come back are not penalised.
    np.testing.assert_allclose(run_beam(table, [4], 2, 1.0)[1][0], np.log([0.4, 0.5]), rtol=1e-5)


def test_length_penalty_by_hand():
    np.testing.assert_allclose(ops.convert_to_numpy(length_penalty(ops.convert_to_tensor([1, 7]), 1.0)), [1.0, 2.0])
    np.testing.assert_allclose(ops.convert_to_numpy(length_penalty(19, 0.5)), 2.0)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX traces the step once")
def test_search_for_the_best_alone_stops_sooner():
    for nbest, expected in ((1, 1), (2, 2), (3, 2)):
        calls = []

        def step(last, state, memory, calls=calls):
            calls.append(1)
            return ops.one_hot(ops.zeros_like(last) + END, 7) * 20.0, state

        beam_search(step, (), constraints([50, 50]), 3, alpha=0.0, nbest=nbest)
        assert len(calls) == expected


def test_beams_go_on_with_a_prompt(resizes):
    limits, prompts, beam_size, alpha = [4, 4, 3, 4], [(3,), (), (4, 3), (END, 3)], 8, 0.0 if resizes else 1.0
    table = scripts(3, len(limits), 5, 4)
    ids, log_probs = run_beam(table, limits, beam_size, alpha, resizes, prompts)
    for row, (limit, prompt) in enumerate(zip(limits, prompts, strict=True)):
        before = score(table[row], prompt)
        continued = [prompt + rest for _, rest in everything(table[row], limit - len(prompt), 0.0)]
        expected = [(score(table[row], sequence) - before, sequence) for sequence in continued]
        expected.sort(key=lambda pair: pair[0] / penalty(len(pair[1]), alpha), reverse=True)
        for rank, (total, sequence) in enumerate(expected[:beam_size]):
            assert ids[row, rank].tolist() == padded(sequence, 4)
            np.testing.assert_allclose(log_probs[row, rank], total, rtol=1e-4, atol=1e-5)
        assert np.all(log_probs[row, len(expected) :] < -1e29)


def test_coverage_by_hand(resizes):
    """Two ways to say two tokens; one looks at both source tokens, the other twice at the first."""
    table = np.full((1, 2 * 6**3, 6), -50.0, "float32")
    table[0, START, [3, 4]] = np.log([0.6, 0.4])
    table[0, prefix_code((3,), 6), END] = table[0, prefix_code((4,), 6), END] = 50.0
    looks = ops.convert_to_tensor([[0.0] * 3] * 3 + [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.0] * 3], "float32")
    plain, state = stepper(table)

    def step(last, state, memory):
        # What a token looked at counts in the step behind it, at its own end.
        logits, state = plain(last, state)
        return logits, ops.take(looks, last, axis=0), state

    mask = ops.convert_to_tensor([[True, True, False]])
    # log 0.9 + log 0.1 = −2.41 against log 0.2 + log 0.8 = −1.83, beside log 0.6 = −0.51 and log 0.4 = −0.92.
    for beta, first in ((0.0, 3), (0.6, 3), (0.8, 4)):
        ids, log_probs = beam_search(
            step, repeat_rows(state, 2), constraints([3]), 2, 0.0, beta=beta, source_mask=mask, resizes=resizes
        )
        assert ops.convert_to_numpy(ids)[0, 0].tolist() == [first, END, PAD]
        np.testing.assert_allclose(np.sort(ops.convert_to_numpy(log_probs)[0]), np.log([0.4, 0.6]), rtol=1e-5)


def test_coverage_follows_its_hypothesis(resizes):
    """Several hypotheses live on at every step, and each is ranked by what it has looked at itself."""
    limits, mask = [4, 3, 4, 4], np.array([True, True, True, False])
    table, looks = scripts(43, 4, 7, 4, scale=1.0), np.random.default_rng(43).dirichlet([0.3] * 4, 7).astype("float32")
    plain, state = stepper(table)

    def step(last, state, memory):
        logits, state = plain(last, state)
        return logits, ops.take(ops.convert_to_tensor(looks), last, axis=0), state

    masks = ops.convert_to_tensor(np.tile(mask, (4, 1)))
    penalties = {"alpha": 0.6, "beta": 0.9, "source_mask": masks, "resizes": resizes}
    ids, log_probs = beam_search(step, repeat_rows(state, 3), constraints(limits), 3, **penalties)
    for row, limit in enumerate(limits):
        expected = plain_beam_search(table[row], limit, 3, 0.6, 0.9, looks[:, mask])
        assert ops.convert_to_numpy(ids)[row].tolist() == [padded(sequence, 4) for _, sequence in expected]
        np.testing.assert_allclose(ops.convert_to_numpy(log_probs)[row], [total for total, _ in expected], rtol=1e-5)


def test_coverage_penalty_by_hand():
    coverage = ops.convert_to_tensor([[0.5, 2.0, 0.25, 0.0], [1.0, 1.0, 1.0, 1.0]])
    mask = ops.convert_to_tensor([[True, True, True, False], [True, True, True, True]])
    found = ops.convert_to_numpy(decoding.coverage_penalty(coverage, mask, 0.2))
    np.testing.assert_allclose(found, [0.2 * np.log(0.125), 0.0], rtol=1e-6)


def test_the_rules_are_those_that_a_request_may_name():
    assert tuple(decoding.BEAM_RULES) == RULES


def test_an_end_that_would_be_too_early_is_not_written(resizes):
    # By itself every row ends at once.
    table = np.zeros((2, 2 * 5**4, 5), "float32")
    table[:, :, END] = 9.0
    step, state = stepper(table)
    limits = constraints([4, 4], min_length=2)
    ids, _ = decoding.greedy_search(step, state, limits, resizes=resizes)
    assert ops.convert_to_numpy(ids)[:, :3].tolist() == [[3, 3, END]] * 2
    ids, _ = beam_search(step, repeat_rows(state, 2), limits, 2, resizes=resizes)
    assert np.all(ops.convert_to_numpy(ids)[:, :, 2] == END)


def test_the_last_token_may_be_made_the_end_and_costs_nothing(resizes):
    # By itself no row ever ends.
    table = np.zeros((2, 2 * 5**4, 5), "float32")
    table[:, :, 3] = 9.0
    step, state = stepper(table)
    (each,) = -np.log1p(2 * np.exp(-9.0, dtype="float64"))[None]  # of three tokens
    expected, log_probs = [[3, 3, END, PAD], [3, 3, 3, END]], [2 * each, 3 * each]
    limits = constraints([3, 4], forces_end=True)
    ids, found = map(ops.convert_to_numpy, decoding.greedy_search(step, state, limits, resizes=resizes))
    assert ids.tolist() == expected
    np.testing.assert_allclose(found, log_probs, rtol=1e-3)
    for rules in ("gnmt", "huggingface", "huggingface_never"):  # others are content with what has ended before
        found = beam_search(step, repeat_rows(state, 2), limits, 2, 1.0, resizes=resizes, rules=rules)
        ids, found = map(ops.convert_to_numpy, found)
        assert ids[:, 0].tolist() == expected and np.all(found[:, 1] < found[:, 0])
        np.testing.assert_allclose(found[:, 0], log_probs, rtol=1.1)  # start and padding may count
    # What a prompt has there stays.
    limits = constraints([3, 4], prompts=[(3, 4, 4), (4,)], forces_end=True)
    ids, _ = decoding.greedy_search(step, state, limits, resizes=resizes)
    assert ops.convert_to_numpy(ids).tolist() == [[3, 4, 4, PAD], [4, 3, 3, END]]


def test_without_room_there_is_one_answer_and_it_is_empty():
    step, state = stepper(scripts(5, 3, 7, 4))
    for rules in RULES:
        found = beam_search(step, repeat_rows(state, 2), constraints([4, 0, 4]), 2, 1.0, rules=rules)
        ids, log_probs = map(ops.convert_to_numpy, found)
        assert np.all(ids[1, 0] == PAD) and log_probs[1, 0] == 0.0 and log_probs[1, 1] < -1e29, rules
        assert np.all(ids[[0, 2], :, 0] > START), rules
