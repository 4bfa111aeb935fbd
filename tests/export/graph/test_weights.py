"""Weights as an export holds them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask

from export.graph.weights import store_weights
from export.saved_model import export_saved_model

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "the old man sees a child", "my horse"]


def test_a_matrix_takes_less_room_and_is_read_from_there():
    model = keras.Sequential([keras.Input([96]), keras.layers.Dense(128, use_bias=False)])
    inputs = np.eye(96, dtype="float32")
    expected = model(inputs).numpy()
    for kind, size, tolerance in (("float32", 4, 0.0), ("bfloat16", 2, 2**-8), ("int8", 1, 2**-6)):
        (held, *scales), reading = store_weights([model], kind)
        assert held.dtype.size == size and held.shape == (96, 128)
        assert [scale.shape.num_elements() for scale in scales] == ([128] if kind == "int8" else [])
        whole = tf.identity(held)
        with reading():
            np.testing.assert_allclose(model(inputs), expected, rtol=0, atol=tolerance * np.abs(expected).max())
        held.assign(tf.zeros_like(held))
        with reading():
            assert not np.any(model(inputs))
        held.assign(whole)  # in float32 it is the model's own


def bytes_of(path):
    return sum(file.stat().st_size for file in (path / "variables").glob("*.data-*"))


@pytest.mark.nightly
@pytest.mark.parametrize(("weights", "share", "tolerance"), [("bfloat16", 0.7, 0.1), ("int8", 0.6, 0.3)])
def test_smaller_weights(text_workdir, text_run, text_export, tmp_path, weights, share, tolerance):
    path = export_saved_model(text_workdir, tmp_path, weights=weights, signatures="score")
    assert bytes_of(path) < share * bytes_of(text_export / "1")
    model, whole = LoadedModel(path, 1), LoadedModel(text_export / "1", 1)
    targets = text_run.translate(TEXTS)
    scores = ask(model, "score", source=TEXTS, target=targets)["log_prob"]
    expected = ask(whole, "score", source=TEXTS, target=targets)["log_prob"]
    np.testing.assert_allclose(scores, expected, atol=tolerance * np.abs(expected).max())
    assert not np.array_equal(scores, expected), "the stored weights are the ones that are read"
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    kinds = {reader.get_variable_to_dtype_map()[name] for name in reader.get_variable_to_shape_map()}
    assert tf.as_dtype(weights) in kinds
