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


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
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


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_what_is_no_checkpoint_of_the_model_is_refused(tmp_path, subtests):
    """And nothing is unpickled."""
    model, trap = make(), np.array([Trap(tmp_path / "sprung")], dtype=object)
    path = CheckpointWriter(WorkDir(tmp_path)).save(1, make(units=6), {})
    contents = {
        "of another model": lambda: None,
        "half": lambda: path.write_bytes(path.read_bytes()[:999]),
        "no state": lambda: np.savez(path, something=np.zeros(3)),
        "empty": lambda: path.write_bytes(b""),
        "text": lambda: path.write_bytes(b"hello"),
        "a pickled state": lambda: np.savez(path, state=trap),
        "a pickle": lambda: trap.dump(path),
    }
    before = everything(model)[:4]
    for name, write in contents.items():
        with subtests.test(name):
            write()
            message = "is a checkpoint of another model" if name == "of another model" else "is not a checkpoint"
            with pytest.raises(InputError, match=rf"step_00000001\.npz {message}"):
                restore_checkpoint(path, model)
    assert_same(everything(model)[:4], before)
    assert not (tmp_path / "sprung").exists()


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(path, **arrays):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        CheckpointWriter(WorkDir(tmp_path)).save(1, make(), {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
