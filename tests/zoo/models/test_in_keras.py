"""Named models with Keras' own `fit`, `evaluate` and `predict`, on arrays as a Keras user has them."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import zoo
from zoo.errors import InputError

SOURCE = np.array([[5, 7, 4, 2], [9, 2, 0, 0], [4, 6, 2, 0]])
TARGET = np.array([[1, 4, 5], [1, 7, 0], [1, 0, 0]])
FOLLOWING = np.array([[4, 5, 2], [7, 2, 0], [2, 0, 0]])
SIZES = {"model_dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8, "dropout": 0.0}
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(scope="module")
def models():
    return {
        "seq2seq": zoo.create_model("transformer_tiny", source_vocab_size=11, target_vocab_size=11, **SIZES),
        "language_model": zoo.create_model("causal_lm_tiny", vocab_size=11, **SIZES),
        "classifier": zoo.create_model("transformer_classifier", vocab_size=11, num_classes=3, **SIZES),
    }


@pytest.mark.nightly
def test_models_take_arrays_pairs_and_dicts(models, subtests):
    for name, model in models.items():
        arrays = [SOURCE, TARGET] if len(model.input_names) == 2 else [TARGET]
        named = dict(zip(model.input_names, arrays, strict=True))
        given = arrays if len(arrays) > 1 else arrays[0]
        with subtests.test(name):
            expected = keras.ops.convert_to_numpy(model(named))
            for inputs in (given, tuple(arrays) if len(arrays) > 1 else keras.ops.convert_to_tensor(TARGET), named):
                np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(inputs)), expected)
            np.testing.assert_allclose(model.predict_on_batch(given), expected, atol=1e-5)


@pytest.mark.nightly
def test_padding_does_not_count_in_losses_and_metrics_of_keras(models, subtests):
    for name in ("seq2seq", "language_model"):
        model = models[name]
        inputs = [SOURCE, TARGET] if len(model.input_names) == 2 else TARGET
        logits = keras.ops.convert_to_numpy(model(inputs)).astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses = -np.take_along_axis(log_probs, FOLLOWING[..., None], -1)[..., 0]
        right = logits.argmax(-1) == FOLLOWING
        real = FOLLOWING != 0
        with subtests.test(name):
            model.compile("adam", LOSS, metrics=["accuracy"], run_eagerly=True)  # tracing takes seconds
            found = model.evaluate(inputs, FOLLOWING, verbose=0, return_dict=True)
            assert found["loss"] == pytest.approx(losses[real].mean(), abs=1e-5)
            assert found["accuracy"] == pytest.approx(right[real].mean(), abs=1e-6)
            before = [weight.copy() for weight in model.get_weights()]
            model.fit(inputs, FOLLOWING, verbose=0)
            assert any((old != new).any() for old, new in zip(before, model.get_weights(), strict=True))


@pytest.mark.nightly
def test_a_classifier_is_fitted_in_three_lines(models):
    model = models["classifier"]
    model.compile(keras.optimizers.Adam(0.1), LOSS, metrics=["accuracy"])
    history = model.fit(SOURCE, np.array([0, 1, 2]), epochs=20, verbose=0).history
    assert history["accuracy"][-1] == 1 and history["loss"][-1] < history["loss"][0] / 10


@pytest.mark.nightly
def test_a_model_is_loaded_from_its_file_by_a_program_that_imports_zoo_alone(models, tmp_path):
    models["classifier"].save(tmp_path / "model.keras")
    program = "import sys, numpy, zoo; print(tuple(zoo.load_model(sys.argv[1])(numpy.array([[4, 6, 2, 0]])).shape))"
    words = [sys.executable, "-c", program, str(tmp_path / "model.keras")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "(1, 3)" in done.stdout, done.stderr
    (tmp_path / "bad.keras").write_bytes(b"no model")
    for name in ("none.keras", "bad.keras"):
        with pytest.raises(InputError, match=name):
            zoo.load_model(tmp_path / name)


def test_other_inputs_are_one_line_that_names_what_is_read(models, subtests):
    for name, inputs, *words in (
        ("classifier", TARGET.astype("float32"), "`tokens` [batch, length]", "float32 [3, 3]"),
        ("classifier", TARGET[0], "`tokens`", "[3]"),
        ("classifier", {"token": TARGET}, "`tokens`", "'token'"),
        ("classifier", "a text", "`tokens`", "str"),
        ("seq2seq", SOURCE, "`source` [batch, length] and `target`", "int64 [3, 4]"),
        ("seq2seq", [SOURCE], "`source`", "list of 1"),
        ("seq2seq", {"source": SOURCE}, "`target`"),
    ):
        with subtests.test(f"{name} {type(inputs).__name__}"), pytest.raises(InputError) as caught:
            models[name](inputs)
        message = str(caught.value)
        assert not [word for word in words if word not in message] and "\n" not in message, message
