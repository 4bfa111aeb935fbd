"""Decoding with scripted logits: no model, and references that try everything."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from zoo import decoding
from zoo.decoding import Rules, Symbols, beam_search, greedy_search, length_penalty, repeat_rows, sample, uniform
from zoo.decoding import top_k as best

PAD, START, END = 0, 1, 2
SYMBOLS = Symbols(start=START, end=END, pad=PAD)


@pytest.fixture(params=[False, True], ids=["fixed sizes", "ended rows leave"])
def resizes(request):
    if request.param and not decoding.can_resize():
        pytest.skip("tensors keep their sizes on this backend")
    return request.param


def rules(limits, room=None, prompts=None, **options):
    """Returns the `Rules` of rows with these limits and prompts."""
    room = max(limits) if room is None else room
    prompt = None
    if prompts is not None:
        prompt = ops.convert_to_tensor([padded(row, max(map(len, prompts))) for row in prompts], "int32")
    return Rules(SYMBOLS, ops.convert_to_tensor(limits, "int32"), room, prompt, **options)


def scripts(seed, batch, vocabulary, length, scale=2.0):
    """Returns logits [batch, prefix, vocabulary] for every prefix of every row (see `prefix_code`)."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(scale=scale, size=(batch, 2 * vocabulary**length, vocabulary)).astype("float32")
    logits[:, :, [PAD, START]] += 3.0  # tempting, and forbidden
    return logits


def prefix_code(prefix, vocabulary):
    code = START
    for symbol in prefix:
        code = code * vocabulary + symbol
    return code


def stepper(table):
    """Returns a step function that reads its logits off `table`, and its first state."""
    batch, _, vocabulary = table.shape
    table = ops.convert_to_tensor(table)

    def step(last, state, memory=None):
        code = state["code"] * vocabulary + last
        logits = ops.take(ops.reshape(table, (-1, vocabulary)), state["row"] * table.shape[1] + code, axis=0)
        return logits, {"row": state["row"], "code": code, "count": state["count"] + 1}

    state = {
        "row": ops.arange(batch, dtype="int32"),
        "code": ops.zeros((batch,), "int32"),
        "count": ops.zeros((), "int32"),
    }
    return step, state


def log_probabilities(logits):
    logits = logits.astype("float64").copy()
    logits[[PAD, START]] = -np.inf
    return logits - np.log(np.exp(logits).sum())


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def score(table, ids):
    vocabulary = table.shape[-1]
    codes = [prefix_code(ids[:position], vocabulary) for position in range(len(ids))]
    return sum(log_probabilities(table[code])[symbol] for code, symbol in zip(codes, ids, strict=True))


def everything(table, limit, alpha):
    """Returns all sequences of one row with their log probability, best first by penalised score."""
    real = range(END + 1, table.shape[-1])
    found = [(*prefix, END) for length in range(limit) for prefix in itertools.product(real, repeat=length)]
    found += itertools.product(real, repeat=limit)  # cut off at the limit
    scored = [(score(table, ids), ids) for ids in found]
    return sorted(scored, key=lambda pair: pair[0] / penalty(len(pair[1]), alpha), reverse=True)


def plain_beam_search(table, limit, beam_size, alpha):
    """The same search with lists, without stopping early."""
    live, done = [(0.0, ())], []
    for _ in range(limit):
        best = []
        for total, ids in live:
            steps = log_probabilities(table[prefix_code(ids, table.shape[-1])])
            best += [(total + steps[symbol], (*ids, symbol)) for symbol in range(END, table.shape[-1])]
        best = sorted(best, reverse=True)[: 2 * beam_size]
        done += [pair for pair in best if pair[1][-1] == END or len(pair[1]) == limit]
        done = sorted(done, key=lambda pair: pair[0] / penalty(len(pair[1]), alpha), reverse=True)[:beam_size]
        live = [pair for pair in best if pair[1][-1] != END][:beam_size]
    return done


def run_beam(table, limits, beam_size, alpha, resizes=None, prompts=None, **options):
    step, state = stepper(table)
    given = rules(limits, prompts=prompts, **options)
    ids, log_probs = beam_search(step, repeat_rows(state, beam_size), given, beam_size, alpha, resizes=resizes)
    return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)


def run_greedy(table, limits, room=None, resizes=None, prompts=None, **options):
    step, state = stepper(table)
    ids, log_probs = greedy_search(step, state, rules(limits, room, prompts, **options), resizes=resizes)
    return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)


def padded(ids, room):
    return [*ids, *[PAD] * (room - len(ids))]


def greedy_row(table, limit):
    ids = ()
    while len(ids) < limit and END not in ids:
        ids += (int(log_probabilities(table[prefix_code(ids, table.shape[-1])]).argmax()),)
    return ids


def test_greedy(resizes):
    limits = [4, 2, 3, 1, 4] * 5
    table = scripts(0, len(limits), 7, 4)
    ids, log_probs = run_greedy(table, limits, 5, resizes)
    for row, limit in enumerate(limits):
        expected = greedy_row(table[row], limit)
        assert ids[row].tolist() == padded(expected, 5)
        np.testing.assert_allclose(log_probs[row], score(table[row], expected), rtol=1e-5)
    assert ids.dtype == np.int32 and log_probs.dtype == np.float32


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_beam_search_finds_what_trying_everything_finds(alpha, resizes):
    # 8 beams hold every prefix of up to 3 of the 2 real symbols, so that nothing is missed.
    limits, beam_size = [4, 2, 3, 1, 4, 4] * 3, 8
    table = scripts(1, len(limits), 5, 4)
    ids, log_probs = run_beam(table, limits, beam_size, alpha, resizes)
    for row, limit in enumerate(limits):
        expected = everything(table[row], limit, alpha)
        for rank, (total, sequence) in enumerate(expected[:beam_size]):
            assert ids[row, rank].tolist() == padded(sequence, 4)
            np.testing.assert_allclose(log_probs[row, rank], total, rtol=1e-5)
        # Where there are fewer sequences than beams, the rest is marked by its score.
        assert np.all(log_probs[row, len(expected) :] < -1e29)


@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beam_search_against_lists(beam_size, alpha, resizes):
    limits = [4, 3, 4, 2] * 3
    table = scripts(2, len(limits), 11, 4, scale=1.0)
    ids, log_probs = run_beam(table, limits, beam_size, alpha, resizes)
    for row, limit in enumerate(limits):
        expected = plain_beam_search(table[row], limit, beam_size, alpha)
        assert ids[row].tolist() == [padded(sequence, 4) for _, sequence in expected]
        np.testing.assert_allclose(log_probs[row], [total for total, _ in expected], rtol=1e-5)


def test_one_sure_beam_is_greedy():
    table, limits = scripts(7, 3, 7, 4), [4, 2, 3]
    sure = np.random.default_rng(7).integers(END, 7, table.shape[:2])
    np.put_along_axis(table, sure[:, :, None], 50.0, axis=-1)
    for alpha in (0.0, 0.6):
        ids, log_probs = run_beam(table, limits, 1, alpha)
        expected_ids, expected = run_greedy(table, limits)
        np.testing.assert_array_equal(ids[:, 0], expected_ids)
        np.testing.assert_allclose(log_probs[:, 0], expected, atol=1e-5)


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
        ids, log_probs = greedy_search(watched, state, rules(limits), resizes=False)
        expected_ids, expected = run_greedy(table, limits)
    else:
        ids, log_probs = beam_search(watched, repeat_rows(state, 3), rules(limits), beam_size, resizes=False)
        expected_ids, expected = run_beam(table, limits, beam_size, 0.6)
    assert sizes == {20 * beam_size, 3 * beam_size}
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), expected_ids)
    np.testing.assert_allclose(ops.convert_to_numpy(log_probs), expected, rtol=1e-6)


def test_the_length_penalty_decides_between_short_and_long():
    # "end" at once has probability 0.5; the other way is 0.4 and then sure for 3 symbols more.
    table = np.full((1, 2 * 5**4, 5), -50.0, "float32")
    table[0, START, [END, 3, 4]] = np.log([0.5, 0.4, 0.1])
    table[0, prefix_code((3,), 5), 3] = table[0, prefix_code((3, 3), 5), 3] = table[
        0, prefix_code((3, 3, 3), 5), END
    ] = 50.0
    short, long = [END, PAD, PAD, PAD], [3, 3, 3, END]
    for alpha, expected in ((0.0, short), (0.5, short), (1.0, long)):
        assert run_beam(table, [4], 2, alpha)[0][0, 0].tolist() == expected
    # The scores that come back are not penalised.
    np.testing.assert_allclose(run_beam(table, [4], 2, 1.0)[1][0], np.log([0.4, 0.5]), rtol=1e-5)


def test_length_penalty_by_hand():
    np.testing.assert_allclose(ops.convert_to_numpy(length_penalty(ops.convert_to_tensor([1, 7]), 1.0)), [1.0, 2.0])
    np.testing.assert_allclose(ops.convert_to_numpy(length_penalty(19, 0.5)), 2.0)


def test_a_row_without_room_for_any_symbol_is_empty():
    table = scripts(13, 2, 7, 2)
    ids, log_probs = run_greedy(table, [0, 2])
    assert ids[0].tolist() == [PAD, PAD] and log_probs[0] == 0.0


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX traces the step once")
@pytest.mark.parametrize(("beam_size", "expected"), [(None, 1), (1, 1), (3, 2)])
def test_search_stops_when_nothing_can_change(beam_size, expected):
    calls = []

    def step(last, state, memory):
        calls.append(1)
        return ops.one_hot(ops.zeros_like(last) + END, 7) * 20.0, state

    if beam_size is None:
        ids, _ = greedy_search(step, (), rules([50, 50]))
    else:  # three beams want three endings: one at once, and two behind one symbol more
        ids, _ = beam_search(step, (), rules([50, 50]), beam_size, alpha=0.0)
    assert ids.shape[-1] == 50 and len(calls) == expected
    assert np.all(ops.convert_to_numpy(ids).reshape(2, -1)[:, 0] == END)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_best_alone_are_the_first_of_all(alpha, resizes):
    table = scripts(37, 40, 9, 5, scale=2.0)
    ids, log_probs = run_beam(table, [5] * 40, 4, alpha, resizes)
    for nbest in (1, 2, 4):
        step, state = stepper(table)
        state = repeat_rows(state, 4)
        found = beam_search(step, state, rules([5] * 40), 4, alpha, resizes=resizes, nbest=nbest)
        np.testing.assert_array_equal(ops.convert_to_numpy(found[0]), ids[:, :nbest])
        np.testing.assert_allclose(ops.convert_to_numpy(found[1]), log_probs[:, :nbest], rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX traces the step once")
@pytest.mark.parametrize(("nbest", "expected"), [(1, 1), (2, 2), (3, 2)])
def test_search_for_the_best_alone_stops_sooner(nbest, expected):
    calls = []

    def step(last, state, memory):
        calls.append(1)
        return ops.one_hot(ops.zeros_like(last) + END, 7) * 20.0, state

    beam_search(step, (), rules([50, 50]), 3, alpha=0.0, nbest=nbest)
    assert len(calls) == expected


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["graph", "xla"])
@pytest.mark.parametrize("beam_size", [None, 3])
def test_compiled_with_a_width_known_at_run_time(beam_size, xla):
    table, limits = scripts(17, 3, 7, 4), [4, 2, 3]
    expected = run_greedy(table, limits) if beam_size is None else run_beam(table, limits, beam_size, 0.6)

    def search(limits, room, resizes=None):
        step, state = stepper(table)
        given = Rules(SYMBOLS, limits, room)
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


def test_low_precision_logits_are_summed_in_float32():
    step, state = stepper(scripts(19, 2, 7, 3))

    def low(last, state, memory):
        logits, state = step(last, state)
        return ops.cast(logits, "bfloat16"), state

    _, log_probs = greedy_search(low, state, rules([3, 3]))
    assert keras.backend.standardize_dtype(log_probs.dtype) == "float32"
    assert np.all(np.isfinite(ops.convert_to_numpy(log_probs)))


def test_rows_are_repeated_in_place_and_scalars_left_alone():
    state = {"rows": ops.convert_to_tensor([[1, 2], [3, 4]]), "more": [ops.convert_to_tensor([True, False])]}
    state["index"] = ops.convert_to_tensor(5)
    repeated = keras.tree.map_structure(lambda x: ops.convert_to_numpy(x).tolist(), repeat_rows(state, 2))
    assert repeated == {"rows": [[1, 2], [1, 2], [3, 4], [3, 4]], "more": [[True, True, False, False]], "index": 5}


def test_the_tempting_symbols_are_never_produced():
    table = scripts(23, 3, 7, 3)
    table[:, :, [PAD, START]] += 100.0
    ids, log_probs = run_beam(table, [3, 3, 3], 3, 0.6)
    assert not np.any(ids == START) and np.all(ids[:, :, 0] != PAD)
    assert np.all(log_probs > -math.inf) and np.all(log_probs > -100)


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


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beams_go_on_with_a_prompt(alpha, resizes):
    limits, prompts, beam_size = [4, 4, 3, 4], [(3,), (), (4, 3), (END, 3)], 8
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


def ngrams(ids, size):
    return [tuple(ids[first : first + size]) for first in range(len(ids) - size + 1)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_symbols_come_twice(size, resizes):
    """A model that would say one thing for ever."""
    table = np.zeros((2, 2 * 4**7, 4), "float32")
    table[:, :, 3], table[:, :, END] = 5.0, -5.0
    prompts = [(), (3, 3)]
    ids, _ = run_greedy(table, [7, 7], None, resizes, prompts, no_repeat_ngram=size)
    # The only symbol fits `size` times; the prompt takes its place, however long it is.
    for row, count in enumerate((size, max(size, 2))):
        assert ids[row].tolist() == padded((*[3] * count, END), 7)


@pytest.mark.parametrize("limit", [1, 2])
def test_no_symbols_can_come_twice_where_there_is_no_room_for_them(limit, resizes):
    table = np.zeros((2, 2 * 4**2, 4), "float32")
    table[:, :, 3] = 5.0
    ids, _ = run_greedy(table, [limit, limit], None, resizes, no_repeat_ngram=4)
    assert ids.tolist() == [[3] * limit] * 2
    beams, _ = run_beam(table, [limit, limit], 2, 0.0, resizes, no_repeat_ngram=4)
    assert beams[:, 0].tolist() == ids.tolist()


def test_rules_against_repetition_find_what_trying_everything_finds(resizes):
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


def test_coverage_by_hand(resizes):
    """Two ways to say two symbols; one looks at both source symbols, the other twice at the first."""
    table = np.full((1, 2 * 6**3, 6), -50.0, "float32")
    table[0, START, [3, 4]] = np.log([0.6, 0.4])
    table[0, prefix_code((3,), 6), END] = table[0, prefix_code((4,), 6), END] = 50.0
    looks = ops.convert_to_tensor([[0.0] * 3] * 3 + [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.0] * 3], "float32")
    plain, state = stepper(table)

    def step(last, state, memory):
        # What a symbol looked at counts in the step behind it, at its own end.
        logits, state = plain(last, state)
        return logits, ops.take(looks, last, axis=0), state

    mask = ops.convert_to_tensor([[True, True, False]])
    # log 0.9 + log 0.1 = −2.41 against log 0.2 + log 0.8 = −1.83, beside log 0.6 = −0.51 and log 0.4 = −0.92.
    for beta, first in ((0.0, 3), (0.6, 3), (0.8, 4)):
        ids, log_probs = beam_search(
            step, repeat_rows(state, 2), rules([3]), 2, 0.0, beta=beta, source_mask=mask, resizes=resizes
        )
        assert ops.convert_to_numpy(ids)[0, 0].tolist() == [first, END, PAD]
        np.testing.assert_allclose(np.sort(ops.convert_to_numpy(log_probs)[0]), np.log([0.4, 0.6]), rtol=1e-5)


def test_coverage_penalty_by_hand():
    coverage = ops.convert_to_tensor([[0.5, 2.0, 0.25, 0.0], [1.0, 1.0, 1.0, 1.0]])
    mask = ops.convert_to_tensor([[True, True, True, False], [True, True, True, True]])
    found = ops.convert_to_numpy(decoding.coverage_penalty(coverage, mask, 0.2))
    np.testing.assert_allclose(found, [0.2 * np.log(0.125), 0.0], rtol=1e-6)


def test_score_is_what_a_search_adds_up():
    table, limits = scripts(29, 3, 7, 4), [4, 2, 4]
    ids, log_probs = run_greedy(table, limits)
    codes = [[prefix_code(row[:place].tolist(), 7) for place in range(4)] for row in ids]
    logits = np.stack([table[row][np.minimum(codes[row], 2 * 7**4 - 1)] for row in range(3)])
    found = decoding.score(ops.convert_to_tensor(logits), ops.convert_to_tensor(ids), SYMBOLS)
    np.testing.assert_allclose(ops.convert_to_numpy(found), log_probs, rtol=1e-5)


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
        ids, _ = greedy_search(step, state, rules([4] * 8), memory, resizes=True)
        expected = run_greedy(table, [4] * 8, resizes=False)[0]
    else:
        ids, _ = beam_search(step, repeat_rows(state, 2), rules([4] * 8), 2, 0.0, memory, resizes=True)
        expected = run_beam(table, [4] * 8, 2, 0.0, resizes=False)[0]
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), expected)
    assert counts[0] == (8 * width, 8) and counts[-1][1] <= 5
    assert all(count == width * sentences for count, sentences in counts)


@pytest.mark.parametrize("size", [6000, 512, 97, 8])
def test_the_largest_by_groups_are_the_largest(size):
    logits = np.random.default_rng(5).normal(size=(4, size)).astype("float32")
    if keras.backend.backend() != "torch":  # which promises no order
        logits[1, [3, size // 2, size - 1]] = 7.0  # of equal numbers the first comes first
    values, places = best.top_k(ops.convert_to_tensor(logits), 5)
    expected = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
    np.testing.assert_array_equal(ops.convert_to_numpy(places), expected)
    np.testing.assert_array_equal(ops.convert_to_numpy(values), np.take_along_axis(logits, expected, -1))


@pytest.mark.parametrize("size", [6000, 97, 2])
def test_the_most_probable_is_the_first_of_the_largest(size):
    logits = np.random.default_rng(5).normal(size=(4, size)).astype("float32")
    if keras.backend.backend() != "torch":
        logits[1, [size // 2, size - 1]] = 7.0
    values, places = map(ops.convert_to_numpy, best.most_probable(ops.convert_to_tensor(logits)))
    np.testing.assert_array_equal(places, logits.argmax(axis=-1))
    np.testing.assert_array_equal(values, logits.max(axis=-1))


def test_log_total_of_large_and_small_logits():
    logits = np.array([[100.0, 99.0, -1e30], [-200.0, -1e30, -201.0]], "float32")
    found = best.log_total(ops.convert_to_tensor(logits), ops.convert_to_tensor(logits[:, 0]))
    expected = np.log1p(np.exp(-1.0)) + logits[:, 0]
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-6)


def draw(probabilities, count, **options):
    """Returns the shares of each symbol among draws of one symbol."""
    logits = ops.convert_to_tensor(np.log(probabilities).astype("float32"))

    def step(last, state, memory):
        return ops.broadcast_to(logits, (ops.shape(last)[0], len(probabilities))), state

    numbers = ops.arange(count, dtype="int32")
    one = Rules(SYMBOLS, ops.ones_like(numbers), 1)
    ids, _ = sample(step, (), one, ops.zeros_like(numbers), numbers, **options)
    return np.bincount(ops.convert_to_numpy(ids)[:, 0], minlength=len(probabilities)) / count


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 0, 0.1, 0.5, 0.25, 0.15]),
        ({"temperature": 0.5}, np.array([0, 0, 0.01, 0.25, 0.0625, 0.0225]) / 0.345),
        ({"top_k": 2}, [0, 0, 0, 2 / 3, 1 / 3, 0]),
        ({"top_p": 0.8}, [0, 0, 0, 5 / 9, 2.5 / 9, 1.5 / 9]),
        ({"top_p": 0.01}, [0, 0, 0, 1, 0, 0]),
        ({"top_k": 99, "top_p": 1.0}, [0, 0, 0.1, 0.5, 0.25, 0.15]),
    ],
)
def test_samples_follow_the_distribution(options, expected):
    # Start and padding have probabilities, too, and are never drawn.
    shares = draw([0.2, 0.3, 0.05, 0.25, 0.125, 0.075], 20_000, **options)
    np.testing.assert_allclose(shares, expected, atol=0.012)  # four standard deviations
    assert (shares[np.array(expected) == 0] == 0).all()


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
        ids, log_probs = sample(step, chosen, rules([4] * len(rows)), seeds, ops.convert_to_tensor(rows, "int32"))
        return ops.convert_to_numpy(ids), ops.convert_to_numpy(log_probs)

    ids, log_probs = run(5, range(6))
    np.testing.assert_array_equal(run(5, range(6))[0], ids)
    np.testing.assert_array_equal(run(5, [3, 1])[0], ids[[3, 1]])
    assert (run(6, range(6))[0] != ids).any()
    for row in range(6):
        drawn = [symbol for symbol in ids[row].tolist() if symbol != PAD]
        np.testing.assert_allclose(log_probs[row], score(table[row], drawn), rtol=1e-5)


def test_uniform_numbers_are_uniform_and_independent():
    numbers = np.stack([ops.convert_to_numpy(uniform(7, ops.arange(4000, dtype="int32"), step)) for step in range(8)])
    assert numbers.dtype == np.float32 and numbers.min() >= 0 and numbers.max() < 1
    np.testing.assert_allclose(np.histogram(numbers, 10, (0, 1))[0] / numbers.size, 0.1, atol=0.007)
    for neighbours in ((numbers[:-1], numbers[1:]), (numbers[:, :-1], numbers[:, 1:])):
        assert abs(np.corrcoef(*map(np.ravel, neighbours))[0, 1]) < 0.025
    # The same on every backend and machine.
    np.testing.assert_array_equal(numbers[:2, 0], np.float32([0.18210852, 0.49797022]))
