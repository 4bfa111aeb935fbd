"""Keras as a contestant: passes of layers, and turns within `fit`."""

import keras
import numpy as np
import pytest
from support.every import every

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)

import tensorflow as tf

from benchmarks import attention, growth
from benchmarks.peers import keras as adapter
from benchmarks.peers.attention_pass import random_arrays, tiny_sizes
from benchmarks.runner.worker import Unavailable

LAYERS = {
    f"{case.name}, {each.label}": each
    for case in (*attention.CASES.values(), *(case.among([]) for case in growth.CASES.values()))
    for each in case.contestants[: 1 if case.name in growth.CASES else None]  # tiny, all lengths are one
    if each.adapter == attention.KERAS
}


class _Channel:
    """Takes one turn, and remembers what was sent."""

    def __init__(self, task):
        self.task = task

    def introduce(self, extra_memory):
        self.extra_memory = extra_memory

    def serve(self, measure, describe):
        self.outcome = measure()


def _gradient(contestant):
    channel = _Channel({**contestant.work, "tiny": True})
    adapter.attend(channel)
    assert channel.extra_memory >= 0
    return np.asarray(channel.outcome, "float32")


@pytest.mark.weekly
def test_every_pass_runs():
    with every() as failures:
        for name, contestant in LAYERS.items():
            with failures.of(name):
                gradient = _gradient(contestant)
                assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_pooling_has_no_length_left():
    gradient = _gradient(growth.CASES["pooling"].contestants[0])
    assert gradient.shape == (1, 8, 16) and np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@pytest.mark.nightly
def test_what_attention_is_compared_with_takes_one_sequence():
    for name in ("recurrence", "convolution"):
        gradient = _gradient(growth.CASES[name].contestants[0])
        assert gradient.shape == (1, 8, 16) and np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_layers_of_one_head_are_multi_head_attention_and_gradients_those_of_the_layer():
    (inputs,) = random_arrays([(2, 5, 6)])
    separate = adapter.SeparateHeads(num_heads=3, key_dim=7)
    output = separate(inputs, inputs)
    together = adapter.find("zoo.layers.MultiHeadAttention")(3, 7)
    together.build(inputs.shape, inputs.shape)
    for name in ("query", "key", "value", "output"):
        kernels = [getattr(head, f"{name}_dense").kernel for head in separate.heads]
        getattr(together, f"{name}_dense").kernel.assign(np.concatenate(kernels, axis=0 if name == "output" else -1))
    np.testing.assert_allclose(output, together(inputs, inputs), rtol=1e-5, atol=1e-6)
    layer = keras.layers.Dense(3)
    step = adapter.tensorflow_pass(layer, [(2, 5, 3)], lambda layer, tensors: layer(*tensors))
    (direction,) = random_arrays([(2, 5, 3)])
    np.testing.assert_allclose(step(), direction @ tf.transpose(layer.kernel).numpy(), rtol=1e-5, atol=1e-6)


def test_options_name_sizes_or_layers():
    sizes = attention.sizes(batch=8, length=16384, dim=512, heads=8, window=128, half=True)
    expected = attention.sizes(batch=1, length=16, dim=16, heads=2, window=2, half=True)
    assert tiny_sizes(sizes) == {**expected, "head_dim": 8}
    sizes = {"dim": 8, "window": 2}
    description = {"class": "zoo.layers.LocalAttention", "window": "window", "alignment": "monotonic"}
    layer = adapter.make_layer(description, sizes, "mixed_bfloat16")
    assert layer.window == 2 and layer.alignment == "monotonic" and layer.compute_dtype == "bfloat16"
    inner = {"class": "zoo.layers.AdditiveAttention", "units": "dim"}
    pooling = adapter.make_layer({"class": "zoo.layers.AttentionPooling", "attention": inner}, sizes, "float32")
    assert pooling.attention.units == 8
    with pytest.raises(Unavailable, match="Nothing"):
        adapter.find("zoo.layers.Nothing")
    with pytest.raises(ModuleNotFoundError):
        adapter.find("no_such_package.layers.Nothing")


def test_turns_are_whole_epochs_that_read_anew(monkeypatch):
    monkeypatch.setattr(adapter, "WARM_UP", 2)
    model, steps, reads, losses = keras.Sequential([keras.layers.Dense(1)]), [], [], []
    model.compile(loss="mse", run_eagerly=True)
    model.build((None, 3))
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    fit = model.fit
    model.fit = lambda *arguments, **options: fit(*arguments, callbacks=[count], **options)

    def read():
        reads.append(len(steps))
        return {"x": tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 1)))).repeat(5)}

    class Channel:
        def introduce(self, packages, parameters, loss):
            assert (packages, parameters) == (("keras",), 4)
            losses.append(loss)

        def serve(self, measure, describe):
            losses.extend(describe(measure())["loss"] for _ in range(2))

    adapter.fit_on_text(Channel(), model, read, ("keras",))
    assert reads == [0, 2, 7] and len(steps) == 12, "a warm-up of two batches, then all five"
    assert losses[0] > losses[1] > losses[2] > 0
