"""How batches reach `fit`: all of them, in their order, and without a thread that keeps the process from ending."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from training.data.batching import Batches, DocumentBatches, LabelledBatches, PairBatches, WindowBatches
from training.loop.feed import TrainingFeed, ValidationFeed
from zoo.vocabulary import END


class Recorder(keras.Model):
    """Takes any batch, notes it, learns nothing."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = []
        self.compile(loss="mse", run_eagerly=True)

    def call(self, inputs):
        return self.dense(keras.ops.cast(next(iter(inputs.values())), "float32")[..., None])

    def train_step(self, data):
        self.seen.append(keras.tree.map_structure(np.array, data))
        return {"loss": keras.ops.zeros(())}

    test_step = train_step


def train(batches, **options):
    """Returns the batches that `fit` sees."""
    model, feed = Recorder(), TrainingFeed(batches)
    model.fit(feed.dataset, callbacks=[feed], verbose=0, shuffle=False, **options)
    return model.seen


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, a, b)


def rounds_of(batches, count):
    return [batches[index] for batches.round in range(count) for index in range(len(batches))]


def test_fit_sees_the_batches_in_their_order():
    """Whatever is made ahead, and where the first batches are of one size, which says nothing of the rest."""
    lengths = [3, 3, 3, 3, 4, 5, 6, 7, 8]
    source, target = (
        [[4 + i] * s + [END] for i, s in enumerate(lengths)],
        [[4 + i] * s + [END] for i, s in enumerate(lengths)],
    )
    options = {"batch_tokens": 8, "steps": 4}
    equal_at_first = (
        seed
        for seed in range(1000)
        if [len(PairBatches(source, target, **options, seed=seed)[index][1][0]) for index in (0, 1)] == [4, 4]
    )
    options["seed"] = next(equal_at_first)
    batches = PairBatches(source, target, **options)
    seen = train(batches, epochs=5)
    expected = rounds_of(PairBatches(source, target, **options), 5)
    assert_equal(seen, expected)
    assert batches.tokens == {step: weights.sum() for step, (_, _, weights) in enumerate(expected)}
    assert_equal(train(PairBatches(source, target, **options), epochs=5, initial_epoch=3), expected[12:])


def test_every_kind_of_batch_passes_as_often_as_asked_for(subtests):
    for batches in (
        LabelledBatches([[7, 8, END], [9, END]], [1, 0], batch_tokens=3),
        DocumentBatches([[5, END], [6, 7, END]], batch_tokens=3),
        WindowBatches(np.arange(4, 30), 5, 10),
    ):
        with subtests.test(type(batches).__name__):
            model, feed = Recorder(), ValidationFeed(batches)
            for _ in range(2):
                model.evaluate(feed.dataset, callbacks=[feed], verbose=0)
            assert_equal(model.seen, rounds_of(batches, 1) * 2)


class Failing(Batches):
    """Batches of which one cannot be made."""

    structure = ({"tokens": "bt"}, "bt", "bt")

    def batch_of(self, step):
        if step == 2:
            raise MemoryError("no room for batch 2")
        return ({"tokens": np.ones((1, 3))}, np.ones((1, 3)), np.ones((1, 3))), 3


def test_an_error_in_a_batch_is_raised_as_it_is():
    with pytest.raises(MemoryError, match="no room for batch 2"):
        train(Failing(steps=5))


STOPPING = """
import time, keras, numpy as np
from training.data.batching import Batches
from training.loop.feed import TrainingFeed

class Slow(Batches):
    structure = ({"tokens": "bt"}, "bt", "bt")

    def batch_of(self, step):
        for _ in range(100):
            time.sleep(0.002)  # in Python at any moment
        return ({"tokens": np.ones((1, 3))}, np.ones((1, 3)), np.ones((1, 3))), 3

class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise RuntimeError("stop")

class Model(keras.Model):
    def train_step(self, data):
        return {"loss": keras.ops.zeros(())}

model, feed = Model(), TrainingFeed(Slow(steps=50))
model.compile(loss="mse")
model.built = True
model.fit(feed.dataset, callbacks=[feed, Stop()], verbose=0)
"""


@pytest.mark.nightly
def test_a_process_whose_training_failed_ends():
    """Python threads of TensorFlow kept it from that, in the destructor of the iterator."""
    done = subprocess.run([sys.executable, "-c", STOPPING], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: stop\n")
