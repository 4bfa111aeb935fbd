"""PyTorch as a contestant: passes of attention, and models of the same sizes that learn."""

import math

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)
pytest.importorskip("torch")

import torch

from benchmarks import attention, zoo_adapter
from benchmarks.peers import pytorch, pytorch_recurrent
from benchmarks.peers.batches import make_batch
from benchmarks.training import CASES
from zoo.layers import SinusoidalPositions

pytestmark = pytest.mark.weekly


@pytest.mark.parametrize("name", ["scaled_dot", "multi_head", "gpu"])
def test_pass_runs(name):
    (contestant,) = (each for each in attention.CASES[name].contestants if each.adapter == attention.PYTORCH)

    class Channel:
        task = {**contestant.work, "tiny": True}

        def introduce(self, extra_memory):
            assert extra_memory >= 0

        def serve(self, measure, describe):
            assert bool(measure().isfinite().all()) and describe(None) == {}
            self.served = True

    channel = Channel()
    pytorch.attend(channel)
    assert channel.served


def test_positions_are_those_of_the_zoo():
    expected = keras.ops.convert_to_numpy(SinusoidalPositions().encodings(keras.ops.arange(5), 8))
    np.testing.assert_allclose(pytorch.sinusoids(5, 8), expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_model_of_the_same_size_trains():
    case = CASES["transformer_step"]
    small = {"num_layers": 1, "model_dim": 8, "intermediate_dim": 11, "num_heads": 2, "normalize_first": True}
    task = {**case.task(case.contestants[0], threads=1, tiny=True), "options": small}
    task |= {"layers": 1, "dim": 8, "hidden": 11, "heads": 2}
    torch.manual_seed(0)
    model = pytorch.Translator(task).train()
    assert pytorch.number_of_weights(model) == zoo_adapter.make_model(zoo_adapter.configure(task)).count_params()
    losses = [pytorch.make_step(task, model)(*make_batch(task)) for _ in range(2)]
    assert all(abs(loss - math.log(50)) < 1.5 for loss in losses)
    half = pytorch.make_step({**task, "precision": "bfloat16"}, model)(*make_batch(task))
    assert abs(half - losses[1]) < 1


@pytest.mark.parametrize("name", ["rnnsearch_step", "luong_step"])
def test_recurrent_models_learn(name):
    case = CASES[name]
    task = case.task(case.contestants[2], threads=1, tiny=True) | {"units": 8, "dropout": 0.0}
    torch.manual_seed(0)
    step = pytorch.make_step(task, pytorch_recurrent.MODELS[task["network"]](task).train())
    losses = [step(*make_batch(task)) for _ in range(8)]
    assert losses[-1] < losses[0] and abs(losses[0] - math.log(50)) < 1
