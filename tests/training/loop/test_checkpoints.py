"""Checkpoints: everything comes back bit for bit, and nothing foreign is taken."""

import keras
import numpy as np
import pytest

from training.loop.checkpoint_files import checkpoint_path, list_checkpoints
from training.loop.checkpoints import CheckpointWriter, load_average, restore_checkpoint
from zoo.errors import InputError
from zoo.workdir import WorkDir

X = np.random.default_rng(0).normal(size=(13, 3)).astype("float32")
Y = X[:, :1] * 2 - 1


def make(units=5, seed=1, dtype="float32"):
    """Returns a compiled model whose steps depend on the state of a random generator."""
    keras.utils.set_random_seed(seed)
    sizes = {"dtype": dtype}
    layers = [keras.layers.Dense(units, **sizes), keras.layers.Dropout(0.4), keras.layers.Dense(1, **sizes)]
    model = keras.Sequential(layers)
    model.build((None, 3))
    optimizer = keras.optimizers.Adam(0.05)
    if dtype == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, loss="mse", weighted_metrics=["mae"], run_eagerly=True)
    return model


def steps(model, count):
    return [float(model.train_on_batch(X, Y, return_dict=True)["loss"]) for _ in range(count)]


def everything(model):
    values = [*model.variables, *model.optimizer.variables]
    return [np.array(keras.ops.convert_to_numpy(value)) for value in values]


def assert_same(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_restored_model_goes_on_bit_for_bit(tmp_path, dtype):
    model = make(dtype=dtype)
    steps(model, 3)
    path = CheckpointWriter(WorkDir(tmp_path)).save(3, model, {"rounds": 1, "best": 0.1 + 0.2})
    model.reset_metrics()
    before = everything(model)
    losses = steps(model, 3)
    other = make(seed=99, dtype=dtype)
    assert restore_checkpoint(path, other) == {"rounds": 1, "best": 0.1 + 0.2}
    other.reset_metrics()
    assert_same(everything(other), before)
    assert steps(other, 3) == losses, "optimizer and dropout go on, too"
    assert_same(everything(other), everything(model))


def test_dropout_goes_on_from_its_state_and_not_from_its_start(tmp_path):
    model = make()
    steps(model, 1)
    restored = make()
    path = CheckpointWriter(WorkDir(tmp_path)).save(1, model, {})
    restore_checkpoint(path, restored)
    (state,) = (np.array(v) for v in restored.variables if "seed" in v.path)
    (fresh,) = (np.array(v) for v in make().variables if "seed" in v.path)
    assert state.tolist() != fresh.tolist()


def test_average(tmp_path):
    model = make()
    paths, seen = [], []
    for step in range(1, 4):
        steps(model, 1)
        paths.append(CheckpointWriter(WorkDir(tmp_path)).save(step, model, {}))
        seen.append([np.array(v, "float64") for v in model.trainable_variables])
    seeds = [np.array(v) for v in model.non_trainable_variables]
    load_average(paths[1:], model)
    for variable, *values in zip(model.trainable_variables, *seen[1:], strict=True):
        np.testing.assert_allclose(np.array(variable), np.mean(values, axis=0), rtol=1e-6, atol=1e-8)
    assert_same([np.array(v) for v in model.non_trainable_variables], seeds)
    load_average(paths[:1], model)
    for variable, value in zip(model.trainable_variables, seen[0], strict=True):
        np.testing.assert_array_equal(np.array(variable), value.astype("float32"))


def test_names_and_order(tmp_path):
    assert checkpoint_path(tmp_path, 250).name == "step_00000250.npz"
    assert list_checkpoints(tmp_path / "none") == []
    for step in (1000, 20, 300):
        checkpoint_path(tmp_path, step).touch()
    for other in (".tmp-1-step_00000001.npz", "step_x.npz", "step_1.txt"):
        (tmp_path / other).touch()
    assert [path.name for path in list_checkpoints(tmp_path)] == [f"step_{step:08d}.npz" for step in (20, 300, 1000)]


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    model = make()
    steps(model, 1)
    path = CheckpointWriter(WorkDir(tmp_path)).save(1, model, {})
    other = make(units=6)
    before = everything(other)[:4]
    with pytest.raises(InputError, match=r"step_00000001\.npz is a checkpoint of another model"):
        restore_checkpoint(path, other)
    assert_same(everything(other)[:4], before)


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_nothing_is_unpickled(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    path = tmp_path / "step_00000001.npz"
    np.savez(path, state=trap)
    with pytest.raises(InputError, match=r"step_00000001\.npz is not a checkpoint"):
        restore_checkpoint(path, make())
    trap.dump(path)
    with pytest.raises(InputError, match="is not a checkpoint"):
        restore_checkpoint(path, make())
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", ["half", "no state", "empty", "text"])
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    model = make()
    steps(model, 1)
    path = CheckpointWriter(WorkDir(tmp_path)).save(1, model, {})
    if content == "no state":
        np.savez(path, something=np.zeros(3))
    else:
        data = {"half": path.read_bytes()[:999], "empty": b"", "text": b"hello"}[content]
        path.write_bytes(data)
    with pytest.raises(InputError, match="is not a checkpoint"):
        restore_checkpoint(path, model)


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(path, **arrays):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        CheckpointWriter(WorkDir(tmp_path)).save(1, make(), {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
