"""Muon for hidden matrices, and Adam for the rest."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from training.config.options import TrainingConfig
from training.optimization.optimizer import Muon, make_optimizer
from zoo.errors import InputError

SETTINGS = TrainingConfig(optimizer="muon", learning_rate=0.1, warmup_steps=0, clip_norm=0.0)


def model_of(name="rnnsearch", **options):
    sizes = {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 7, "tied_embeddings": "none"}
    return zoo.create_model(name, source_vocab_size=13, target_vocab_size=17, **(options or sizes))


def test_which_variables_are_muons():
    model = model_of()
    optimizer = make_optimizer(SETTINGS, 1, model)
    muon = {v.path.partition("/")[2] for v in model.trainable_variables if not optimizer._should_use_adamw(v)}
    assert isinstance(optimizer, Muon) and muon
    assert all(path.endswith(("kernel", "recurrent_kernel")) for path in muon)
    others = {v.path.partition("/")[2] for v in model.trainable_variables} - muon
    assert any("source" in path for path in others) and any("target" in path for path in others)
    assert any(path.startswith("output") and path.endswith("kernel") for path in others)
    assert any(path.endswith("score/kernel") for path in others)  # [units, 1], a vector


def test_output_layers_are_not_muons():
    concatenated = {"positions": "concat", "concat_projection": False, "tied_embeddings": "none"}
    for model in (model_of(), model_of("transformer_tiny", num_layers=1, **concatenated)):
        optimizer = make_optimizer(SETTINGS, 1, model)
        (output,) = (v for v in model.trainable_variables if v.name == "kernel" and v.shape[-1] == 17)
        assert optimizer._should_use_adamw(output)


def _newton_schulz(matrix):
    """The iteration of Jordan et al. 2024, which brings all singular values near to 1."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def test_a_step():
    model = model_of()
    optimizer = make_optimizer(SETTINGS, 1, model)
    optimizer.build(model.trainable_variables)
    chance = np.random.default_rng(0)
    before = [ops.convert_to_numpy(v).copy() for v in model.trainable_variables]
    grads = [chance.normal(size=v.shape).astype("float32") for v in model.trainable_variables]
    optimizer.apply([ops.convert_to_tensor(g) for g in grads], model.trainable_variables)
    for variable, old, gradient in zip(model.trainable_variables, before, grads, strict=True):
        change = ops.convert_to_numpy(variable) - old
        if optimizer._should_use_adamw(variable):
            expected = -0.1 * np.sign(gradient)  # Adam's first step
        else:
            # With Nesterov's momentum the first direction is that of the gradient.
            expected = -0.1 * 0.2 * np.sqrt(max(variable.shape)) * _newton_schulz(gradient)
        np.testing.assert_allclose(change, expected, atol=2e-4, err_msg=variable.path)


@pytest.mark.nightly
def test_it_trains():
    """In a graph, and what is no hidden matrix as well."""
    model = keras.Sequential([keras.layers.Embedding(11, 5), keras.layers.Dense(7), keras.layers.Dense(11)])
    model.build((None, 3))
    model.compile(make_optimizer(SETTINGS, 1, model), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = np.array([[4, 5, 2]], "int32"), np.array([[6, 7, 2]], "int32")
    losses = [float(model.train_on_batch(x, y)) for _ in range(9)]
    assert losses[-1] < 0.3 * losses[0]


def test_several_devices_are_refused():
    with pytest.raises(InputError, match="training.optimizer=muon.*training.devices=2"):
        make_optimizer(SETTINGS, 2, model_of())
