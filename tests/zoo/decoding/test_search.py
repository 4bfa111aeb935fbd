"""The loop of all searches: when rows leave it, when it stops, and how it compiles."""

import keras
import numpy as np
import pytest
from keras import ops
from support.decoding import END, START, TOKENS, constraints, run_beam, run_greedy, scripts, stepper

from zoo import decoding
from zoo.decoding import Constraints, beam_search, greedy_search, repeat_rows


def test_a_batch_is_its_rows_one_by_one():
    table, limits = scripts(11, 4, 7, 4), [4, 2, 3, 4]
    for run in (run_greedy, lambda *args: run_beam(*args, 3, 0.6)):
        ids, log_probs = run(table, limits)
        for row, limit in enumerate(limits):
            alone, alone_probs = run(table[row : row + 1], [limit])
            np.testing.assert_array_equal(ids[row, ..., :limit], alone[0])
            assert not np.any(ids[row, ..., limit:])
            np.testing.assert_allclose(log_probs[row], alone_probs[0], rtol=1e-6)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_few_long_sentences_come_to_their_ends_in_a_smaller_loop(beam_size):
    table, limits, sizes = scripts(13, 20, 6, 4), [1] * 20, set()
    limits[3], limits[11], limits[19] = 4, 2, 4
    step, state = stepper(table)

    def watched(last, *others):
        sizes.add(last.shape[0])
        return step(last, *others)

    if beam_size == 1:
        ids, log_probs = greedy_search(watched, state, constraints(limits), resizes=False)
        expected_ids, expected = run_greedy(table, limits)
    else:
        ids, log_probs = beam_search(watched, repeat_rows(state, 3), constraints(limits), beam_size, resizes=False)
        expected_ids, expected = run_beam(table, limits, beam_size, 0.6)
    assert sizes == {20 * beam_size, 3 * beam_size}
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), expected_ids)
    np.testing.assert_allclose(ops.convert_to_numpy(log_probs), expected, rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX traces the step once")
def test_search_stops_when_nothing_can_change():
    # Three beams want three endings: one at once, and two behind one token more.
    for beam_size, expected in ((None, 1), (1, 1), (3, 2)):
        calls = []

        def step(last, state, memory, calls=calls):
            calls.append(1)
            return ops.one_hot(ops.zeros_like(last) + END, 7) * 20.0, state

        if beam_size is None:
            ids, _ = greedy_search(step, (), constraints([50, 50]))
        else:
            ids, _ = beam_search(step, (), constraints([50, 50]), beam_size, alpha=0.0)
        assert ids.shape[-1] == 50 and len(calls) == expected
        assert np.all(ops.convert_to_numpy(ids).reshape(2, -1)[:, 0] == END)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["graph", "xla"])
@pytest.mark.parametrize("beam_size", [None, 3])
def test_compiled_with_a_width_known_at_run_time(beam_size, xla):
    table, limits, twice = scripts(17, 3, 7, 4), [4, 2, 3], {"no_repeat_ngram": 5}  # for which there is no room
    expected = run_greedy(table, limits) if beam_size is None else run_beam(table, limits, beam_size, 0.6)

    def search(limits, room, resizes=None):
        step, state = stepper(table)
        given = Constraints(TOKENS, limits, room, **twice)
        if beam_size is None:
            return greedy_search(step, state, given, resizes=resizes)
        return beam_search(step, repeat_rows(state, beam_size), given, beam_size, resizes=resizes)

    limits = ops.convert_to_tensor(limits, "int32")
    ids, log_probs = compiled(search, limits, xla)
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), expected[0])
    np.testing.assert_allclose(ops.convert_to_numpy(log_probs), expected[1], rtol=1e-5)


def compiled(search, limits, xla):
    """Returns the result of `search(limits, 4)` as a graph."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if xla:
            return tf.function(lambda limits: search(limits, 4, resizes=False), jit_compile=True)(limits)
        return tf.function(search, autograph=False)(limits, tf.constant(4))
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(lambda limits: search(limits, 4))(limits)
    return search(limits, 4)


@pytest.mark.parametrize("width", [1, 2])
def test_ended_rows_leave_the_loop(width):
    """Half of the sentences end at once, and the step function is not asked about them any more."""
    if not decoding.can_resize():
        pytest.skip("tensors keep their sizes on this backend")
    table = scripts(31, 8, 7, 4)
    table[::2, START, END] = 90.0
    table[1::2, :, END] = -90.0
    plain, state = stepper(table)
    counts = []

    def step(last, state, memory):
        counts.append((last.shape[0], memory["rows"].shape[0]))
        assert np.array_equal(ops.convert_to_numpy(memory["rows"]), ops.convert_to_numpy(state["row"])[::width])
        return plain(last, state)

    memory = {"rows": state["row"]}
    if width == 1:
        ids, _ = greedy_search(step, state, constraints([4] * 8), memory, resizes=True)
        expected = run_greedy(table, [4] * 8, resizes=False)[0]
    else:
        ids, _ = beam_search(step, repeat_rows(state, 2), constraints([4] * 8), 2, 0.0, memory, resizes=True)
        expected = run_beam(table, [4] * 8, 2, 0.0, resizes=False)[0]
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), expected)
    assert counts[0] == (8 * width, 8) and counts[-1][1] <= 5
    assert all(count == width * sentences for count, sentences in counts)
