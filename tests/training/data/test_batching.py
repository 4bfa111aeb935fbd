"""Batches: every example once, never above the budget, and a function of seed and step alone."""

import keras
import numpy as np
import pytest

from training.data import order
from training.data.batching import DocumentBatches, LabelledBatches, PairBatches, WindowBatches
from training.data.order import batch_plan
from zoo.vocabulary import END, PAD, START, pad


def lengths_of(count, seed=0, longest=60):
    return np.random.default_rng(seed).integers(1, longest, size=(count, 2))


def pairs_of(count, seed=0, longest=40):
    """Returns rows whose first id names the example, so that a batch tells which examples it holds."""
    source, target = lengths_of(count, seed, longest).T
    return [[4 + i] * s + [END] for i, s in enumerate(source)], [[4 + i] * t + [END] for i, t in enumerate(target)]


def rounds_of(batches, count, first=0):
    """Returns what `fit` would see in a number of rounds."""
    seen = []
    for batches.round in range(first, first + count):
        seen += [batches[index] for index in range(len(batches))]
    return seen


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("static_shapes", [False, True])
def test_every_example_once_and_the_budget_kept(static_shapes):
    for count in (1, 7, order.WINDOW + 3):
        lengths = lengths_of(count)
        plan = batch_plan(lengths, 500, np.random.default_rng(1), static_shapes)
        assert sorted(np.concatenate(plan)) == list(range(count))
        for batch in plan:
            assert order.padded(lengths[batch], static_shapes).max() * len(batch) <= 500


def test_the_sizes_that_examples_are_padded_to():
    lengths = np.array([[1, 8], [9, 2], [2, 16], [17, 17], [25, 3], [33, 48], [49, 1], [1, 65], [97, 1]])
    assert order.padded(lengths, False) is lengths
    sizes = order.padded(lengths, True)
    assert sizes[:, 0].tolist() == sizes[:, 1].tolist() == [8, 16, 16, 24, 32, 48, 64, 96, 128]


def test_an_example_above_the_budget_stands_alone():
    lengths = np.array([[3, 3], [900, 2], [3, 3], [2, 700]])
    plan = batch_plan(lengths, 100, np.random.default_rng(0))
    assert sorted(map(sorted, plan)) == [[0, 2], [1], [3]]


def test_little_padding_and_order_is_random():
    lengths = lengths_of(4000)
    plan = batch_plan(lengths, 1000, np.random.default_rng(0))
    room = sum(lengths[batch].max(axis=0).sum() * len(batch) for batch in plan)
    assert lengths.sum() / room > 0.8
    widths = [lengths[batch][:, 1].max() for batch in plan]  # examples are sorted by their last side
    assert np.mean(np.diff(widths) < 0) > 0.3, "batches come in random order"
    other = batch_plan(lengths, 1000, np.random.default_rng(1))
    assert {frozenset(batch) for batch in plan} != {frozenset(batch) for batch in other}, "batches differ by epoch"


def test_pad():
    assert pad([[5, 6, 7], [8]]).tolist() == [[5, 6, 7], [8, PAD, PAD]]
    padded = pad([[5]], length=2, num_rows=3)
    assert padded.tolist() == [[5, PAD], [PAD, PAD], [PAD, PAD]]
    assert padded.dtype == np.int32


def test_a_batch():
    batches = PairBatches([[7, 8, END], [9, END]], [[5, END], [6, 7, END]], batch_tokens=100)
    inputs, outputs, weights = batches[0]
    first = inputs["source"][:, 0].tolist().index(7)
    rows = [first, 1 - first]
    assert inputs["source"][rows].tolist() == [[7, 8, END], [9, END, PAD]]
    assert inputs["target"][rows].tolist() == [[START, 5, PAD], [START, 6, 7]]
    assert outputs[rows].tolist() == [[5, END, PAD], [6, 7, END]]
    assert weights[rows].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert weights.dtype == np.float32
    assert batches.tokens == {0: 5}


def test_an_epoch_shows_every_example_once():
    source, target = pairs_of(200)
    seen = rounds_of(PairBatches(source, target, batch_tokens=300, seed=3), 1)
    first_ids = np.concatenate([inputs["source"][:, 0] for inputs, _, _ in seen])
    assert sorted(first_ids) == list(range(4, 204))
    assert all(max(inputs["source"].size, outputs.size) <= 300 for inputs, outputs, _ in seen)


def test_each_epoch_has_another_order():
    source, target = pairs_of(200)
    batches = PairBatches(source, target, batch_tokens=300, steps=1000, seed=3)
    count = batches.pass_length()
    epochs = [[set(batches.order.examples_of(n)) for n in range(first, first + count)] for first in (0, count)]
    assert sum(one == other for one, other in zip(*epochs, strict=True)) < count / 4


def test_rounds_go_on_where_the_last_one_ended():
    source, target = pairs_of(100)
    in_fives = rounds_of(PairBatches(source, target, batch_tokens=300, steps=5, seed=3), 8)
    in_twenties = rounds_of(PairBatches(source, target, batch_tokens=300, steps=20, seed=3), 2)
    assert_equal(in_fives, in_twenties)


def test_a_resumed_run_sees_what_the_interrupted_one_would_have_seen():
    """Also where it ended within a round."""
    source, target = pairs_of(100)
    options = {"batch_tokens": 300, "steps": 7, "seed": 3}
    whole = rounds_of(PairBatches(source, target, **options), 8)
    for first_round in (1, 6):
        rest = rounds_of(PairBatches(source, target, **options), 8 - first_round, first_round)
        assert_equal(whole[7 * first_round :], rest)
    batches = PairBatches(source, target, **options)
    batches.skip, batches.round = 3, 2
    assert_equal(whole[2 * 7 + 3 : 3 * 7], [batches[index] for index in range(len(batches))])


def test_a_batch_depends_on_seed_and_step_alone():
    source, target = pairs_of(100)
    batches = PairBatches(source, target, batch_tokens=300, steps=50, seed=3)
    forward = [batches[step] for step in range(50)]
    backward = [batches[step] for step in reversed(range(50))]
    assert_equal(forward, backward[::-1])
    other = PairBatches(source, target, batch_tokens=300, steps=50, seed=4)
    assert any(other[step][1].tolist() != forward[step][1].tolist() for step in range(50))


def test_validation_batches_are_the_same_in_every_round():
    source, target = pairs_of(50)
    batches = PairBatches(source, target, batch_tokens=300)
    first = rounds_of(batches, 1)
    assert sum(len(outputs) for _, outputs, _ in first) == 50
    assert_equal(first, rounds_of(batches, 1))


def test_tokens():
    source, target = pairs_of(60)
    batches = PairBatches(source, target, batch_tokens=300, steps=20, seed=1)
    seen = rounds_of(batches, 2)
    assert batches.tokens == {step: weights.sum() for step, (_, _, weights) in enumerate(seen)}


def test_static_shapes_are_few_and_hold_the_same_examples():
    source, target = pairs_of(3000, longest=60)
    batches = PairBatches(source, target, batch_tokens=1024, static_shapes=True)
    seen = rounds_of(batches, 1)
    shapes = {(inputs["source"].shape, outputs.shape) for inputs, outputs, _ in seen}
    assert {shape[1] for pair in shapes for shape in pair} <= {8, 16, 24, 32, 48, 64}
    for inputs, outputs, _ in seen:
        assert inputs["source"].shape == outputs.shape == (1024 // outputs.shape[1], outputs.shape[1])
    first_ids = np.concatenate([inputs["source"][:, 0] for inputs, _, _ in seen])
    assert sorted(first_ids[first_ids != PAD]) == list(range(4, 3004))
    assert sum(weights.sum() for _, _, weights in seen) == sum(len(row) for row in target)


def test_keras_sees_how_many_batches_a_round_has():
    data = [[7, END]] * 5, [[8, END]] * 5
    assert PairBatches(*data, batch_tokens=4, steps=3).num_batches == 3  # JAX's `fit` asks for this one
    whole = PairBatches(*data, batch_tokens=4)
    assert whole.num_batches == len(whole) == whole.pass_length() > 1


def test_labelled_batches():
    batches = LabelledBatches([[7, 8, END], [9, END], [5, END]], [2, 0, 1], batch_tokens=6, static_shapes=False)
    seen = {}
    for inputs, outputs, weights in (batches[index] for index in range(len(batches))):
        assert inputs["tokens"].size <= 6 and (weights == 1).all()
        seen |= {tuple(row[row != PAD]): label for row, label in zip(inputs["tokens"], outputs, strict=True)}
    assert seen == {(7, 8, END): 2, (9, END): 0, (5, END): 1}


def test_padding_rows_of_labelled_batches_do_not_count():
    batches = LabelledBatches([[7, 8, END], [9, END], [5, END]], [2, 0, 1], batch_tokens=64, static_shapes=True)
    inputs, outputs, weights = batches[0]
    assert inputs["tokens"].shape == (8, 8) and outputs.shape == (8,)
    assert weights.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert (inputs["tokens"] != PAD).any(axis=1).all(), "no row without tokens"


def test_document_batches():
    batches = DocumentBatches([[5, END], [6, 7, END], [END]], batch_tokens=100)
    inputs, outputs, weights = batches[0]
    rows = {tuple(i): (tuple(o), tuple(w)) for i, o, w in zip(inputs["tokens"], outputs, weights, strict=True)}
    assert rows == {
        (START, 5, PAD): ((5, END, PAD), (1, 1, 0)),
        (START, 6, 7): ((6, 7, END), (1, 1, 1)),
        (START, PAD, PAD): ((END, PAD, PAD), (1, 0, 0)),
    }
    assert batches.tokens == {0: 6}


def test_windows_in_one_pass_count_every_token_once():
    for size in (1, 2, 8, 9, 17, 40):
        stream = np.arange(4, 4 + size)
        batches = WindowBatches(stream, length=8, batch_tokens=20)
        counted, contexts = [], []
        for inputs, outputs, weights in rounds_of(batches, 1):
            assert (inputs["tokens"][:, 0] == START).all()
            np.testing.assert_array_equal(inputs["tokens"][:, 1:], outputs[:, :-1])
            counted += outputs[weights > 0].tolist()
            contexts += np.nonzero(weights)[1].tolist()
        assert sorted(counted) == stream.tolist()
        assert contexts.count(0) == 1, "but for the first, none without a token before it"
        assert sum(batches.tokens.values()) == size


def test_windows_of_training():
    stream = np.arange(4, 104)
    options = {"length": 8, "batch_tokens": 24, "steps": 400}
    batches = WindowBatches(stream, **options, seed=1)
    seen = rounds_of(batches, 2)
    starts = set()
    for inputs, outputs, weights in seen:
        assert inputs["tokens"].shape == outputs.shape == (3, 9) and (weights == 1).all()
        assert (np.diff(outputs, axis=1) == 1).all()
        np.testing.assert_array_equal(inputs["tokens"][:, 1:], outputs[:, :-1])
        starts |= set(outputs[:, 0].tolist())
    assert starts == set(range(4, 104 - 8)), "windows begin anywhere"
    resumed = WindowBatches(stream, **options, seed=1)
    assert_equal(rounds_of(resumed, 1, first=1), seen[400:])
    assert rounds_of(WindowBatches(stream, **options, seed=2), 1)[0][1].tolist() != seen[0][1].tolist()
