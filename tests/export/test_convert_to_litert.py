"""Models written for LiteRT, run by its interpreter: the numbers are those of Python, at sizes that vary."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from export import litert
from export.convert import main
from export.litert import litert_model, without_new_axes
from zoo.errors import InputError
from zoo.vocabulary import START

# TensorFlow would have the package `ai-edge-litert` run its own files.
pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")

SIZES = [(1, 5), (3, 8)]  # rows and tokens
ROOM = 12  # of a cache
IDS = np.random.default_rng(0).integers(4, 10, size=(3, 9)).astype("int32")
IDS[1, 3:] = 0  # padding


@pytest.fixture
def interpreter(tmp_path, capsys):
    """Returns a function that converts a work directory and returns the interpreter of what was written."""

    def convert(workdir):
        main([str(workdir), "--to", f"litert:{tmp_path / 'out'}"])
        written = json.loads(capsys.readouterr().out)
        assert written["kind"] == "litert" and written["tensors"] > 0
        found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
        assert {"config.json", "model.tflite"} <= found and any(name.startswith("tokenizers/") for name in found)
        return tf.lite.Interpreter(str(tmp_path / "out" / "model.tflite"))

    return convert


def numbers(run, ids):
    return np.asarray(run.model(ids))


def empty_state(interpreter, rows):
    """Returns the state before the first step: zeros with room for some tokens, and as many rows as the batch has."""
    details = interpreter.get_signature_runner("step").get_input_details()
    state = {}
    for name, detail in details.items():
        if name.startswith("state"):
            free = [rows, *[ROOM] * 3]  # the first size that varies is of the rows, others are of the room
            shape = [free.pop(0) if size < 0 else size for size in detail["shape_signature"]]
            state[name] = np.zeros(shape, detail["dtype"])
    return state


def steps(interpreter, token_ids, **memory):
    """Returns the logits [B, T, V] of one step after another for tokens [B, T]."""
    step, state, logits = interpreter.get_signature_runner("step"), empty_state(interpreter, len(token_ids)), []
    known = {name for name in step.get_input_details() if not name.startswith("state")}
    memory = {name: value for name, value in memory.items() if name in known}
    for last in token_ids.T:
        state = step(last=last, **memory, **state)
        logits.append(state.pop("logits"))
    return np.stack(logits, axis=1)


@pytest.mark.nightly
def test_classifier(interpreter, labelled_workdir, labelled_run):
    runner = interpreter(labelled_workdir).get_signature_runner()
    for rows, length in SIZES:
        ids = IDS[:rows, :length]
        expected = numbers(labelled_run, {"tokens": ids})
        np.testing.assert_allclose(runner(tokens=ids)["logits"], expected, atol=2e-5)


@pytest.mark.nightly
def test_language_model(interpreter, lines_workdir, lines_run):
    made = interpreter(lines_workdir)
    for rows, length in SIZES:
        ids = np.maximum(IDS[:rows, :length], 4)
        np.testing.assert_allclose(steps(made, ids), numbers(lines_run, {"tokens": ids}), atol=2e-5)


SMALL = {"model_dim": 8, "intermediate_dim": 12, "num_heads": 2, "num_layers": 2}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("causal_lm_tiny", {"visibility": "global", "window": 2, "global_tokens": 2}),
        ("causal_lm_tiny", {"self_attention": "ssru"}),
        ("retnet_lm", {}),
        ("retnet_lm", {"self_attention": "delta_rule", "positions": "none"}),
    ],
)
def test_caches_of_a_fixed_size(name, options):
    model = zoo.create_model(name, vocab_size=10, **SMALL, **options)
    made = tf.lite.Interpreter(model_content=litert_model(model, "language_model"))
    ids = IDS[::2]
    np.testing.assert_allclose(steps(made, ids), np.asarray(model({"tokens": ids})), atol=2e-5)


@pytest.mark.nightly
def test_encoder_of_latent_attention():
    sizes = {"source_vocab_size": 10, "target_vocab_size": 10, "key_dim": 4, **SMALL}
    model = zoo.create_model("transformer_tiny", self_attention="latent", positions="rotary", **sizes)
    made = tf.lite.Interpreter(model_content=litert_model(model, "seq2seq"))
    memory = made.get_signature_runner("encode")(source=IDS)
    expected = keras.tree.flatten(model.encode(IDS, training=False))
    for found, value in zip(memory.values(), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=2e-5)


@pytest.mark.nightly
def test_translator(interpreter, text_workdir, text_run):
    made = interpreter(text_workdir)
    for rows, length in SIZES:
        source, target = IDS[:rows, :length], np.full((rows, length), START, "int32")
        target[:, 1:] = np.maximum(IDS[:rows, 1:length], 4)
        memory = made.get_signature_runner("encode")(source=source)
        expected = numbers(text_run, {"source": source, "target": target})
        np.testing.assert_allclose(steps(made, target, **memory), expected, atol=2e-5)


@pytest.mark.nightly
def test_a_recurrent_translator_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    arguments = ["preset:dates_rnnsearch", "--to", f"litert:{tmp_path / 'out'}"]
    with pytest.raises(InputError, match="litert: .*RNNSearch"):
        main(arguments)
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(InputError, match="litert: .*KERAS_BACKEND=tensorflow.*jax"):
        main(arguments)
    assert not [*tmp_path.iterdir()]


@pytest.mark.nightly
def test_what_the_converter_does_not_have_is_named():
    model = zoo.create_model("birnn_classifier", vocab_size=10, num_classes=2, embedding_dim=4, units=3)
    model({"tokens": IDS})
    with pytest.raises(InputError, match="litert: .*loops"):
        litert_model(model, "classifier")


SLICES = {
    "one": lambda x: x[:, None],
    "two": lambda x: x[:, None, :, None],
    "around": lambda x: x[None, ..., None],
    "behind": lambda x: x[..., None, :, None],
    "beside a place": lambda x: x[:, 1, None, :],
    "beside a place at the end": lambda x: x[..., 2, None],
    "beside a part": lambda x: x[None, 1:, :-1, None, ::2],
    "none": lambda x: x[:, 1:],
}


def test_slices_that_add_axes():
    value = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
    for name, take in SLICES.items():
        function = tf.function(take).get_concrete_function(tf.TensorSpec([None, None, None], tf.float32))
        graph = without_new_axes(function.graph.as_graph_def())
        assert not any(node.attr["new_axis_mask"].i for node in graph.node)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            names = [function.inputs[0].name, function.outputs[0].name]
            given, result = tf.graph_util.import_graph_def(graph, return_elements=names, name="")
            np.testing.assert_array_equal(session.run(result, {given: value}), take(value), err_msg=name)


def test_the_reason_is_one_line():
    foreign = "'tf.Erfinv' is neither custom nor flex"
    assert litert._reason(f"<unknown>:0: error: {foreign}\nnote: more") == foreign
    assert litert._reason("Quantization failed.\n") == "Quantization failed"
    assert litert._reason(" ") == "no reason was given"
