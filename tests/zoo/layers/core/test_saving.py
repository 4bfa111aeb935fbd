"""Layers and models that are quantised or have low-rank corrections, in functional models, saved and reloaded."""

import keras
import numpy as np
import pytest
from support.layers.cases import CASES, first_of_each_class, with_each
from support.layers.contract import arrays, build, built, to_numpy

import zoo
from zoo import layers

FAST = (layers.MultiHeadAttention, layers.LuongAttentionCell)
IDS = np.array([[3, 5, 2, 0]], "int32")
TASKS = {
    "seq2seq": ({"source_vocab_size": 13, "target_vocab_size": 13}, {"source": IDS, "target": IDS}),
    "classifier": ({"vocab_size": 11, "num_classes": 3}, {"tokens": IDS}),
    "language_model": ({"vocab_size": 11}, {"tokens": IDS}),
    "sentence_encoder": ({"vocab_size": 11}, {"tokens": IDS}),
}

pytestmark = [
    pytest.mark.usefixtures("new_garbage_alone"),
    pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method"),  # such as dropout
]


def _projections(layer):
    kinds = (keras.layers.Dense, keras.layers.EinsumDense)
    return [part for part in layer._flatten_layers() if isinstance(part, kinds)]


WITH_PROJECTIONS = [case for case in first_of_each_class(CASES) if _projections(built(case))]


def _modes(layer):
    return [part.quantization_mode for part in layer._flatten_layers()]


def _outputs(model, inputs):
    return [to_numpy(each) for each in keras.tree.flatten(model(inputs))]


def _check_reload(model, inputs, mode, path):
    """Quantises a model and checks that it is the same when it is reloaded."""
    model.quantize(mode)
    assert mode in _modes(model)
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert _modes(loaded) == _modes(model)
    for result, expected in zip(_outputs(loaded, inputs), _outputs(model, inputs), strict=True):
        np.testing.assert_array_equal(result, expected)


def _in_a_model(case):
    symbolic = [keras.Input((*(None,) * (len(shape) - 2), shape[-1])) for shape in case.inputs.values()]
    return keras.Model(symbolic, build(case)(*symbolic)), list(arrays(case).values())


@with_each(WITH_PROJECTIONS, FAST)
def test_layers(case, tmp_path):
    (model, inputs), (adapted, _) = _in_a_model(case), _in_a_model(case)
    expected = _outputs(model, inputs)
    before = len(adapted.weights)
    for dense in _projections(adapted):
        dense.enable_lora(2)
    assert len(adapted.weights) > before
    assert not any(part.kernel is weight for part in _projections(adapted) for weight in adapted.trainable_weights)
    for result, reference in zip(_outputs(adapted, inputs), expected, strict=True):  # they begin as the identity
        np.testing.assert_allclose(result, reference, atol=1e-6)
    _check_reload(model, inputs, "int8", tmp_path / "model.keras")
    for result, reference in zip(_outputs(model, inputs), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=0.1 * max(1.0, np.abs(reference).max()))


@pytest.mark.nightly
@pytest.mark.parametrize("case", [case for case in WITH_PROJECTIONS if case.covers in FAST], ids=lambda case: case.name)
def test_other_modes(case, tmp_path):
    for mode in ("int4", "float8"):
        _check_reload(*_in_a_model(case), mode, tmp_path / f"{mode}.keras")


def _model(name):
    """Returns a model that was not called yet, and inputs for it."""
    sizes, inputs = TASKS[zoo.get_spec(name).task]
    return zoo.create_model(name, **sizes), inputs


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["transformer_tiny", "causal_lm_tiny", "transformer_classifier"])
def test_models(name, tmp_path):
    model, inputs = _model(name)
    _check_reload(model, inputs, "int8", tmp_path / "model.keras")


OF_EACH_CLASS = list({zoo.get_spec(name).model_class: name for name in reversed(zoo.list_models())}.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", OF_EACH_CLASS)
def test_a_model_that_was_not_called_yet(name):
    (model, inputs), (twin, _) = _model(name), _model(name)
    twin.set_weights(model.get_weights())
    expected = to_numpy(twin(inputs))
    model.quantize("int8")
    assert "int8" in _modes(model)
    assert np.abs(to_numpy(model(inputs)) - expected).max() <= 0.1 * np.abs(expected).max()
