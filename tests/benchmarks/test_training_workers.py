"""What the contestants train: ours as `training.train` does, the peers the same model."""

import importlib
import math
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks.training import ours, peers, start
from benchmarks.training.cases import CASES
from benchmarks.training.peers.worker import FIRST, START, make_batch, peak_memory, sinusoids
from zoo.layers import SinusoidalPositions

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)

SMALL = {"num_layers": 1, "model_dim": 8, "intermediate_dim": 11, "num_heads": 2, "normalize_first": True}


@pytest.fixture(scope="module")
def task():
    case = CASES["transformer_step"]
    task = case.task_of(case.contestants[0], threads=1, tiny=True)
    return {**task, "options": SMALL, "layers": 1, "dim": 8, "hidden": 11, "heads": 2}


class _Turns:
    """Grants a number of turns."""

    def __init__(self, count):
        self.left, self.losses, self.parameters = count, [], None

    def introduce(self, parameters, packages, loss):
        self.parameters = parameters
        self.losses.append(loss)

    def wait(self):
        self.left -= 1
        return self.left >= 0

    def leave(self):
        raise SystemExit(0)

    def begin(self):
        self.begun = True

    def end(self, loss):
        assert self.begun
        self.losses.append(loss)


def test_ours_is_a_run_of_training(task):
    config = ours.configure(task)
    assert (config.training.precision, config.training.clip_norm, config.training.label_smoothing) == (
        "float32",
        0,
        0.1,
    )
    assert config.model["dropout"] == 0.1 and config.model["model_dim"] == 8
    model, turns = ours.make_model(config), _Turns(2)
    model.run_eagerly = True  # a graph would take longer to make than all steps
    with pytest.raises(SystemExit):
        model.fit(ours.for_fit(ours.FixedBatch(task)), callbacks=[ours.KerasTurns(turns, ())], verbose=0, shuffle=False)
    assert turns.parameters == model.count_params()
    # Weights differ from run to run, and so does how far they are from knowing nothing.
    assert len(turns.losses) == 3 and all(abs(loss - math.log(50)) < 2 for loss in turns.losses)
    assert len(set(turns.losses)) == 3, "the weights change"


def test_the_batch_is_dense_and_the_same_for_all(task):
    source, target, outputs = make_batch(task)
    assert source.shape == (2, 3) and target.shape == outputs.shape == (2, 5)
    assert (target[:, 0] == START).all() and (target[:, 1:] == outputs[:, :-1]).all() and outputs.min() >= FIRST
    (inputs, follow, weights), symbols = ours.FixedBatch(task).batch_of(17)
    np.testing.assert_array_equal(inputs["source"], source)
    np.testing.assert_array_equal(inputs["target"], target)
    np.testing.assert_array_equal(follow[:, :-1], outputs[:, :-1])  # ours ends with the end symbol
    assert weights.all() and symbols == 10


def test_positions_are_those_of_the_zoo():
    expected = keras.ops.convert_to_numpy(SinusoidalPositions().encodings(keras.ops.arange(5), 8))
    np.testing.assert_allclose(sinusoids(5, 8), expected, atol=1e-5)


def test_peak_memory_is_that_of_the_process():
    assert 20e6 < peak_memory() < 100e9


@pytest.fixture
def torch_peers(monkeypatch):
    """The PyTorch workers, imported as they are run: as scripts of one folder."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(Path(peers.__file__).parent))
    names = ("worker", "pytorch", "pytorch_recurrent")
    yield torch, *(importlib.import_module(name) for name in names[1:])
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_pytorch_trains_a_model_of_the_same_size(torch_peers, task):
    torch, pytorch, _ = torch_peers
    torch.manual_seed(0)
    model = pytorch.Translator(task).train()
    assert sum(weight.numel() for weight in model.parameters()) == ours.make_model(ours.configure(task)).count_params()
    losses = [pytorch.make_step(task, model)(*make_batch(task)) for _ in range(2)]
    assert all(abs(loss - math.log(50)) < 1.5 for loss in losses)
    half = pytorch.make_step({**task, "precision": "bfloat16"}, model)(*make_batch(task))
    assert abs(half - losses[1]) < 1


@pytest.mark.parametrize("name", ["rnnsearch_step", "luong_step"])
def test_recurrent_peers_learn(torch_peers, name):
    torch, pytorch, recurrent = torch_peers
    case = CASES[name]
    told = case.task_of(case.contestants[2], threads=1, tiny=True) | {"units": 8, "dropout": 0.0}
    torch.manual_seed(0)
    step = pytorch.make_step(told, recurrent.MODELS[told["network"]](told).train())
    losses = [step(*make_batch(told)) for _ in range(8)]
    assert losses[-1] < losses[0] and abs(losses[0] - math.log(50)) < 1


def test_start():
    found = {
        "where": "a machine",
        "list_models": [0.1, 0.2, 0.3],
        "process": [0.4],
        "first_step": {"rnnsearch": {"seconds": [21.0], "processor": [18.0]}},
    }
    lines = start.table(found).splitlines()
    assert "| `import zoo` and `zoo.list_models()` | 0.20 s (0.15–0.25), 3 processes | ≤ 0.3 s | met |" in lines
    (first,) = (line for line in lines if "rnnsearch" in line)
    assert first.endswith("21.00 s (21.00–21.00), 1 processes; processor time 18.00 s | ≤ 20.0 s | missed |")


def test_start_is_measured_in_processes(monkeypatch):
    asked = []
    monkeypatch.setattr(start, "first_step", lambda model: asked.append(model) or (3.0, 2.0))
    found = start.measure(rounds=1, first_steps=2)
    times = {"seconds": [3.0, 3.0], "processor": [2.0, 2.0]}
    assert asked == [*start.MODELS] * 2 and found["first_step"] == dict.fromkeys(start.MODELS, times)
    assert 0 < found["list_models"][0] < found["process"][0] < 60
