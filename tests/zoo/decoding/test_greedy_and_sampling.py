"""Greedy search and sampling."""

import keras
import numpy as np
import pytest
from keras import ops
from support.decoding import (
    END,
    PAD,
    START,
    TOKENS,
    constraints,
    greedy_row,
    log_probabilities,
    padded,
    prefix_code,
    run_greedy,
    score,
    scripts,
    stepper,
)
from support.every import every

from zoo.decoding import Constraints, beam_search, greedy_search, sample


def test_greedy(resizes):
    limits = [4, 2, 3, 1, 4] * 5
    table = scripts(0, len(limits), 7, 4)
    ids, log_probs = run_greedy(table, limits, 5, resizes)
    for row, limit in enumerate(limits):
        expected = greedy_row(table[row], limit)
        assert ids[row].tolist() == padded(expected, 5)
        np.testing.assert_allclose(log_probs[row], score(table[row], expected), rtol=1e-5)
    assert ids.dtype == np.int32 and log_probs.dtype == np.float32


def test_a_row_without_room_for_any_token_is_empty():
    table = scripts(13, 2, 7, 2)
    ids, log_probs = run_greedy(table, [0, 2])
    assert ids[0].tolist() == [PAD, PAD] and log_probs[0] == 0.0


def test_low_precision_logits_are_summed_in_float32():
    step, state = stepper(scripts(19, 2, 7, 3))

    def low(last, state, memory):
        logits, state = step(last, state)
        return ops.cast(logits, "bfloat16"), state

    _, log_probs = greedy_search(low, state, constraints([3, 3]))
    assert keras.backend.standardize_dtype(log_probs.dtype) == "float32"
    assert np.all(np.isfinite(ops.convert_to_numpy(log_probs)))


def test_greedy_goes_on_with_a_prompt(resizes):
    limits = [5, 5, 2, 4, 5]
    table = scripts(1, len(limits), 7, 5)
    prompts = [(3, 4), (), (5, 6, 3), (END, 6, 6, 5), (4,)]
    ids, log_probs = run_greedy(table, limits, 5, resizes, prompts)
    for row, (limit, prompt) in enumerate(zip(limits, prompts, strict=True)):
        expected = prompt[:limit]
        while len(expected) < limit and END not in expected[len(prompt) :]:
            expected += (int(log_probabilities(table[row][prefix_code(expected, 7)]).argmax()),)
        assert ids[row].tolist() == padded(expected, 5)
        gained = score(table[row], expected) - score(table[row], prompt[:limit])
        np.testing.assert_allclose(log_probs[row], gained, rtol=1e-5, atol=1e-5)


def test_a_prompt_can_take_the_place_of_the_start_symbol(resizes):
    limits, prompts = [5, 1, 4, 5], [(3, 4), (5, 6), (END, 6, 6, 5), (4,)]
    table = scripts(2, len(limits), 7, 5)
    usual = run_greedy(table, limits, 5, resizes, prompts)
    step, state = stepper(table)
    begun = constraints(limits, 5, prompts, num_begun=1)
    state["code"] += START  # so that the first token follows what the start token would have led to
    ids, log_probs = greedy_search(step, state, begun, resizes=resizes)
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), usual[0])
    np.testing.assert_allclose(ops.convert_to_numpy(log_probs), usual[1], rtol=1e-5)
    with pytest.raises(ValueError, match="[Bb]eam search"):
        beam_search(step, state, begun, beam_size=2)


def draw(probabilities, count, length=1, **options):
    """Returns the ids [count, length] of as many draws."""
    logits = ops.convert_to_tensor(np.log(probabilities).astype("float32"))

    def step(last, state, memory):
        return ops.broadcast_to(logits, (ops.shape(last)[0], len(probabilities))), state

    numbers = ops.arange(count, dtype="int32")
    limits = Constraints(TOKENS, length * ops.ones_like(numbers), length)
    ids, _ = sample(step, (), limits, ops.zeros_like(numbers), numbers, **options)
    return ops.convert_to_numpy(ids)


def test_samples_follow_the_distribution():
    with every() as failures:
        for options, expected in (
            ({}, [0, 0, 0.1, 0.5, 0.25, 0.15]),
            ({"temperature": 0.5}, np.array([0, 0, 0.01, 0.25, 0.0625, 0.0225]) / 0.345),
            ({"top_k": 2}, [0, 0, 0, 2 / 3, 1 / 3, 0]),
            ({"top_p": 0.8}, [0, 0, 0, 5 / 9, 2.5 / 9, 1.5 / 9]),
            ({"top_p": 0.01}, [0, 0, 0, 1, 0, 0]),
            ({"top_k": 99, "top_p": 1.0}, [0, 0, 0.1, 0.5, 0.25, 0.15]),
        ):
            with failures.of(options):
                # Start and padding have probabilities, too, and are never drawn.
                ids = draw([0.2, 0.3, 0.05, 0.25, 0.125, 0.075], 20_000, **options)
                shares = np.bincount(ids[:, 0], minlength=6) / 20_000
                np.testing.assert_allclose(shares, expected, atol=0.012)  # four standard deviations
                assert (shares[np.array(expected) == 0] == 0).all()


def test_steps_draw_each_for_itself():
    ids = draw([0.1, 0.1, 1e-9, 0.4, 0.4], 4_000, length=3)
    assert (ids > END).all()
    for one, other in ((0, 1), (1, 2), (0, 2)):
        np.testing.assert_allclose(np.mean(ids[:, one] == ids[:, other]), 0.5, atol=0.035)


def test_samples_depend_on_seed_and_row_and_not_on_the_batch():
    table = scripts(2, 6, 7, 4)
    step, state = stepper(table)

    def run(seed, rows):
        chosen = {
            "row": ops.convert_to_tensor(rows, "int32"),
            "code": state["code"][: len(rows)],
            "count": state["count"],
        }
        seeds = ops.full((len(rows),), seed, dtype="int32")
        ids, log_probs = sample(step, chosen, constraints([4] * len(rows)), seeds, ops.convert_to_tensor(rows, "int32"))
        return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)

    ids, log_probs = run(5, range(6))
    np.testing.assert_array_equal(run(5, range(6))[0], ids)
    np.testing.assert_array_equal(run(5, [3, 1])[0], ids[[3, 1]])
    assert (run(6, range(6))[0] != ids).any()
    for row in range(6):
        drawn = [token for token in ids[row].tolist() if token != PAD]
        np.testing.assert_allclose(log_probs[row], score(table[row], drawn), rtol=1e-5)
