"""Several devices: the same as one with the same batches, to float tolerance."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from training.config.options import TrainingConfig
from training.hardware import devices
from training.hardware.devices import choose_devices, choose_mesh
from training.optimization.optimizer import Adam
from zoo.errors import InputError

TESTS = Path(__file__).resolve().parents[2]

PROGRAM = """
import json, sys
import keras
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from support.tiny_runs import train
folder, model, spec, *settings = sys.argv[1:]
for count in (1, 2):
    assert train(model, spec, f"{folder}/{count}", "--set", *settings, f"training.devices={count}") == 0
print(bool(sys.modules.get("tensorflow")))
"""
# The norm of the gradient is clipped at every step, and many a batch has an odd number of rows.
SETTINGS = (
    "model.dropout=0 training.max_steps=8 training.eval_every=4 training.batch_tokens=20 training.precision=float32 "
    "training.learning_rate=0.02 training.warmup_steps=2 training.cooldown=0 training.clip_norm=0.1 "
    "training.weight_decay=0.1 training.ema=0.5 training.label_smoothing=0.1"
).split()


def run(folder, model, spec, *settings, backend="tensorflow"):
    """Trains on one device and on two, and returns the logs of both and what the process printed."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(TESTS)}
    if backend == "jax":
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    command = [sys.executable, "-c", PROGRAM, str(folder), model, spec, *SETTINGS, *settings]
    done = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logs = [(folder / str(count) / "metrics.jsonl").read_text().splitlines() for count in (1, 2)]
    return [[json.loads(line) for line in log] for log in logs], done


def assert_alike(one, two):
    for left, right in zip(one, two, strict=True):
        for name in ("loss", "val_loss", "cross_entropy", "val_cross_entropy", "accuracy", "val_accuracy"):
            if name in left:
                np.testing.assert_allclose(right[name], left[name], rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_two_devices_are_as_one_for_pairs(backend, text_spec, tmp_path):
    pytest.importorskip(backend)
    options = "model.num_layers=1 model.model_dim=8 model.intermediate_dim=8 model.num_heads=2 data.vocab_size=99"
    more = ["training.accumulate_steps=2"] if backend == "jax" else []
    (one, two), done = run(tmp_path, "transformer_tiny", text_spec, *options.split(), *more, backend=backend)
    assert "float32, 2 devices" in done.stderr
    assert one[0]["val_cross_entropy"] != one[1]["val_cross_entropy"], "it learns"
    assert_alike(one, two)
    assert (done.stdout.splitlines()[-1] == "True") == (backend == "tensorflow")


@pytest.mark.nightly
def test_two_devices_are_as_one_for_weighted_classes(labelled_spec, tmp_path):
    options = "model.model_dim=8 model.word_dropout=0 training.class_weights=balanced"
    (one, two), done = run(tmp_path, "self_attention_classifier", labelled_spec, *options.split())
    assert "float32, 2 devices" in done.stderr
    assert_alike(one, two)


@pytest.fixture
def machine(monkeypatch):
    def make(names, backend="tensorflow"):
        monkeypatch.setattr(devices, "_available", lambda: names)
        monkeypatch.setattr(devices.keras.backend, "backend", lambda: backend)

    return make


GPUS, CPUS = ["GPU:0", "GPU:1", "GPU:2"], ["CPU:0", "CPU:1"]


CHOICES = (
    (GPUS, {}, GPUS),
    (GPUS, {"devices": 2}, GPUS[:2]),
    (GPUS, {"devices": 1}, GPUS[:1]),
    (GPUS, {"accumulate_steps": 2}, GPUS[:1]),
    (GPUS, {"precision": "mixed_float16"}, GPUS[:1]),
    (CPUS, {}, CPUS[:1]),
    (CPUS, {"devices": 2}, CPUS),
    ([], {}, []),
    ([], {"devices": 1}, []),
)


def test_choice(machine):
    for found, settings, chosen in CHOICES:
        machine(found)
        assert choose_devices(TrainingConfig(**settings)) == chosen, settings


REFUSED = (
    (CPUS, {"devices": 3}, "training.devices=3.*2"),
    ([], {"devices": 2}, "training.devices=2.*1"),
    (GPUS, {"devices": 2, "accumulate_steps": 4}, "training.accumulate_steps=4.*one device.*TensorFlow"),
    (GPUS, {"devices": 2, "precision": "mixed_float16"}, "training.precision=mixed_float16.*one device"),
)


def test_what_cannot_be_chosen(machine, subtests):
    for found, settings, message in REFUSED:
        machine(found)
        with subtests.test(message), pytest.raises(InputError, match=message):
            choose_devices(TrainingConfig(**settings))


def test_accumulation_on_several_devices_is_for_jax(machine):
    machine(GPUS, backend="jax")
    assert choose_devices(TrainingConfig(accumulate_steps=4)) == GPUS


def test_keras_has_what_the_optimizer_overrides():
    """If Keras renames it, gradients would be summed over the devices twice."""
    import keras

    assert hasattr(keras.optimizers.Adam, "_all_reduce_sum_gradients")
    assert Adam._all_reduce_sum_gradients is not keras.optimizers.Adam._all_reduce_sum_gradients


def test_a_mesh_is_for_jax(machine):
    machine(CPUS)
    with pytest.raises(InputError, match="training.mesh.*KERAS_BACKEND=jax"):
        choose_mesh(TrainingConfig(mesh="data=2"))
    assert choose_mesh(TrainingConfig(devices=2)) is None


def test_several_devices_are_a_mesh_on_jax(machine):
    machine(GPUS, backend="jax")
    mesh = choose_mesh(TrainingConfig())
    assert (str(mesh), mesh.devices) == ("data=3,model=1", GPUS)
    assert choose_mesh(TrainingConfig(devices=1)) is None
    assert choose_mesh(TrainingConfig(mesh="model=3")).axes == {"data": 1, "model": 3}
