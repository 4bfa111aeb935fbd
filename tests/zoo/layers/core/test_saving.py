"""Quantised layers and models, saved and reloaded."""

import keras
import numpy as np
import pytest
from support.layers.cases import CASES, first_of_each_class, with_each
from support.layers.contract import arrays, build, built, to_numpy

import zoo
from zoo import layers

FAST = (layers.MultiHeadAttention, layers.AdditiveAttention, layers.LuongAttentionCell, layers.FeedForward)
IDS = np.array([[3, 5, 2, 0]], "int32")
TASKS = {
    "seq2seq": ({"source_vocab_size": 13, "target_vocab_size": 13}, {"source": IDS, "target": IDS}),
    "classifier": ({"vocab_size": 11, "num_classes": 3}, {"tokens": IDS}),
    "language_model": ({"vocab_size": 11}, {"tokens": IDS}),
    "sentence_encoder": ({"vocab_size": 11}, {"tokens": IDS}),
}
HUGE = ("transformer_base", "transformer_big", "student_base")  # the small and tiny ones are the same in fewer numbers

pytestmark = pytest.mark.usefixtures("new_garbage_alone")


def _modes(layer):
    return [part.quantization_mode for part in layer._flatten_layers()]


def _check_reload(model, inputs, mode, path):
    """Quantises a model and checks that it is the same when it is reloaded."""
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):  # such as dropout
        model.quantize(mode)
    assert mode in _modes(model)
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert _modes(loaded) == _modes(model)
    results = zip(*(keras.tree.flatten(each(inputs)) for each in (loaded, model)), strict=True)
    for result, expected in results:
        np.testing.assert_array_equal(to_numpy(result), to_numpy(expected))


QUANTIZED = [
    case
    for case in first_of_each_class(CASES)
    if any(hasattr(part, "enable_lora") for part in built(case)._flatten_layers())
]


@with_each(QUANTIZED, FAST)
def test_layers(case, tmp_path):
    _check_layer(case, "int8", tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["int4", "float8"])
@pytest.mark.parametrize("case", [case for case in QUANTIZED if case.covers in FAST], ids=lambda case: case.name)
def test_other_modes(case, mode, tmp_path):
    _check_layer(case, mode, tmp_path)


def _check_layer(case, mode, tmp_path):
    symbolic = [keras.Input((*(None,) * (len(shape) - 2), shape[-1])) for shape in case.inputs.values()]
    model = keras.Model(symbolic, build(case)(*symbolic))
    _check_reload(model, list(arrays(case).values()), mode, tmp_path / "model.keras")


def _model(name):
    """Returns a model that was not called yet, and inputs for it."""
    sizes, inputs = TASKS[zoo.get_spec(name).task]
    return zoo.create_model(name, **sizes), inputs


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["transformer_tiny", "causal_lm_tiny", "transformer_classifier"])
def test_models(name, tmp_path):
    model, inputs = _model(name)
    _check_reload(model, inputs, "int8", tmp_path / "model.keras")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("name", [name for name in zoo.list_models() if name not in HUGE])
def test_a_model_that_was_not_called_yet(name):
    (model, inputs), (twin, _) = _model(name), _model(name)
    twin.set_weights(model.get_weights())
    expected = to_numpy(twin(inputs))
    model.quantize("int8")
    assert "int8" in _modes(model)
    assert np.abs(to_numpy(model(inputs)) - expected).max() <= 0.1 * np.abs(expected).max()
