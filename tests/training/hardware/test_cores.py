"""Cores that share batches: the same as TensorFlow alone with the same batches, to float tolerance."""

import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import tiny_runs

from training.config.options import TrainingConfig
from training.hardware import cores
from training.hardware.cores import choose_cores, share_batches
from training.optimization.consistency import repeat_rows, rows_together
from zoo.errors import InputError
from zoo.runtime.cores import available_cores, computing_cores

# The norm of the gradient is clipped at every step, and many a batch has a number of rows that 2 or 3 do not divide.
SETTINGS = (
    "training.max_steps=8 training.eval_every=4 training.batch_tokens=20 training.precision=float32 "
    "training.learning_rate=0.02 training.warmup_steps=2 training.cooldown=0 training.clip_norm=0.1 "
    "training.weight_decay=0.1 training.ema=0.5 training.label_smoothing=0.1 training.average_checkpoints=1"
).split()
TRANSFORMER = "model.num_layers=1 model.model_dim=8 model.intermediate_dim=8 model.num_heads=2 model.dropout=0".split()
CNN = "model.embedding_dim=3 model.num_filters=2 model.filter_widths=2 model.dropout=0 model.word_dropout=0".split()


def train(folder, model, spec, *settings):
    """Trains into a folder and returns the log."""
    assert tiny_runs.train(model, spec, folder, "--set", *SETTINGS, *settings) == 0
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "data", "options", "count"),
    [
        ("cnn_classifier", "labelled", [*CNN, "model.embedding_dropout=0"], 3),
        ("transformer_tiny", "text", [*TRANSFORMER, "data.vocab_size=99", "training.accumulate_steps=2"], 2),
    ],
)
def test_parts_are_as_the_whole(model, data, options, count, text_spec, labelled_spec, tmp_path):
    spec = {"text": text_spec, "labelled": labelled_spec}[data]
    whole = train(tmp_path / "1", model, spec, *options, "training.cores=1")
    parts = train(tmp_path / str(count), model, spec, *options, f"training.cores={count}")
    assert whole[0]["val_cross_entropy"] != whole[1]["val_cross_entropy"], "it learns"
    for left, right in zip(whole, parts, strict=True):
        numbers = [name for name in left if name not in ("seconds", "symbols_per_second")]
        assert {"cross_entropy", "val_cross_entropy"} & set(numbers)
        np.testing.assert_allclose([right[name] for name in numbers], [left[name] for name in numbers], rtol=1e-5)


@pytest.mark.nightly
def test_a_resumed_run_draws_what_the_uninterrupted_one_does(labelled_spec, tmp_path):
    options = [*CNN[:3], "model.dropout=0.5", "model.word_dropout=0.2", "training.cores=2"]
    whole = train(tmp_path / "whole", "cnn_classifier", labelled_spec, *options)
    train(tmp_path / "parts", "cnn_classifier", labelled_spec, *options, "training.max_steps=4")
    resumed = train(tmp_path / "parts", "cnn_classifier", labelled_spec, *options, "--resume")
    assert resumed[-1] == whole[-1]


class Noise(keras.Model):
    """Weights with dropout, the same for each row: the gradient of a row's sum is its mask."""

    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5, seed=1)
        self.scale = self.add_weight(shape=(64,), initializer="zeros")

    def call(self, inputs, training=None):
        return self.dropout(inputs + self.scale, training=training)


class Total(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return -keras.ops.sum(y_pred, axis=-1)


def noisy(optimizer=None):
    """Returns a model whose batches two cores share, and a function that takes a step and returns the change."""
    model, rows = Noise(), np.zeros((2, 64), "float32")
    model.compile(optimizer or keras.optimizers.SGD(1.0), loss=Total())
    share_batches(model, [], 2)

    def step():
        before = np.array(model.scale)
        model.fit(rows, rows, sample_weight=np.ones(2), batch_size=2, verbose=0)
        return np.array(model.scale) - before

    return model, step


def test_each_part_of_each_step_has_a_dropout_of_its_own():
    """Which the state of the generator decides, so that a resumed run draws the same."""
    model, step = noisy()
    (state,) = model.non_trainable_variables
    steps, states = [], []
    for _ in range(2):
        states.append(np.array(state))
        steps.append(step())
    # Kept elements count twice: in both parts, in one of them, or in none.
    assert set(steps[0]) == set(steps[1]) == {0, 1, 2}
    assert steps[0].tolist() != steps[1].tolist()
    resumed, step_again = noisy()
    resumed.non_trainable_variables[0].assign(states[1])
    assert step_again().tolist() == steps[1].tolist()


def test_the_loss_is_scaled_as_the_optimizer_asks_for():
    _, step = noisy(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1024.0))
    assert set(step()) == {0, 1, 2}


def test_twins_stay_in_one_part():
    model, settings = Noise(), TrainingConfig(consistency="rdrop")
    model.compile(keras.optimizers.SGD(1.0), loss=Total())

    def compute_loss(x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.max(keras.ops.abs(x[::2] - x[1::2])) + 0.0 * keras.ops.sum(y_pred)

    model.compute_loss = compute_loss
    share_batches(model, [], 2, rows_together(settings))
    repeat_rows(model, settings)
    rows = np.repeat(np.arange(5.0, dtype="float32")[:, None], 64, axis=1)  # 10 with their twins, 5 for each core
    history = model.fit(rows, rows, sample_weight=np.ones(5), batch_size=5, verbose=0)
    assert history.history["loss"] == [0.0]


def test_chosen(monkeypatch):
    for available, settings, chosen in (
        (4, {"batch_tokens": 4096}, 4),
        (4, {"batch_tokens": 1100}, 2),
        (4, {"batch_tokens": 100}, 1),
        (1, {"batch_tokens": 4096}, 1),
        (1, {"batch_tokens": 100, "cores": 3}, 3),
        (4, {"batch_tokens": 4096, "cores": 1}, 1),
        (4, {"batch_tokens": 4096, "devices": 2}, 1),
        (4, {"batch_tokens": 4096, "jit": "on"}, 1),
    ):
        monkeypatch.setattr(cores, "available_cores", lambda count=available: count)
        assert choose_cores(TrainingConfig(**settings)) == chosen, settings


def test_where_cores_cannot_share(monkeypatch):
    for settings, reason in (({"devices": 2}, "training.devices=2"), ({"jit": "on"}, "training.jit=on")):
        with pytest.raises(InputError, match=rf"{reason}\. Received: training\.cores=2"):
            choose_cores(TrainingConfig(cores=2, **settings))
    monkeypatch.setattr(cores.keras.backend, "backend", lambda: "jax")
    assert choose_cores(TrainingConfig()) == choose_cores(TrainingConfig(cores=1)) == 1
    with pytest.raises(InputError, match=r"jax.* Received: training\.cores=2"):
        choose_cores(TrainingConfig(cores=2))


def test_threads(monkeypatch):
    """In a process that has used TensorFlow they do not change, which is no error."""
    monkeypatch.setattr(cores, "available_cores", lambda: 6)
    cores.use_cores(3)
    set_to = {}
    for kind in ("inter", "intra"):
        monkeypatch.setattr(
            tf.config.threading, f"set_{kind}_op_parallelism_threads", lambda n, kind=kind: set_to.update({kind: n})
        )
    cores.use_cores(3)
    assert set_to == {"inter": 3, "intra": 2}
    cores.use_cores(1)
    assert set_to == {"inter": 3, "intra": 2}


def test_other_backends_compute_on_what_they_like(monkeypatch):
    """TensorFlow is kept out of their processes, and must not be asked."""
    assert computing_cores() == available_cores()
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert computing_cores() == 1
    cores.use_cores(computing_cores())
