"""ALiBi for a single head, whose slope of the paper no distance in a sentence makes felt."""

import keras
import numpy as np
from keras import ops

import zoo
from zoo.models.shared.positions import TwoSidedALiBiPositions

SIZES = {"key_dim": 4, "value_dim": 4, "query_dim": 8, "memory_dim": 8}


def test_slopes():
    for first_slope, slopes in ((0.0, [1 / 256]), (0.5, [0.5]), (0.0, [1 / 16, 1 / 256]), (0.5, [0.5, 1 / 32])):
        positions = TwoSidedALiBiPositions(first_slope)
        positions.build_for_attention(num_heads=len(slopes), **SIZES)
        before = ops.convert_to_numpy(positions.bias([1], [0]))[:, 0, 0]
        np.testing.assert_allclose(before, [-slope * (1 + head % 2) for head, slope in enumerate(slopes)], rtol=1e-6)


def test_the_slope_is_saved(tmp_path):
    options = {"vocab_size": 11, "num_classes": 3, "model_dim": 8, "positions": "alibi"}
    model = zoo.create_model("self_attention_classifier", alibi_slope=0.5, **options)
    tokens = {"tokens": np.array([[5, 6, 7, 8, 2]], "int32")}
    answers = ops.convert_to_numpy(model(tokens))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(tokens)), answers)
    flat = zoo.create_model("self_attention_classifier", **options)
    flat.set_weights(model.get_weights())
    assert np.abs(ops.convert_to_numpy(flat(tokens)) - answers).max() > 1e-4
