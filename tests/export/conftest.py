"""A toy SavedModel and a server that serves it, shared by the tests of server and client."""

from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from support.exports import Case
from support.server_models import save_models, serving

import zoo
from export.saved_model import export_saved_model
from export.serve import ModelServer

TOKENS = 5


class Toy(tf.Module):
    """Signatures of every kind that the tests ask for; no model of this project."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def shout(self, text):
        return {"text": tf.strings.upper(text), "log_prob": -tf.cast(tf.strings.length(text), tf.float32) / 10.0}

    def attention(self, text):
        source = tf.strings.unicode_split(text, "UTF-8").to_tensor("", shape=[None, TOKENS])
        target = tf.strings.upper(source)
        real = tf.cast(tf.not_equal(source, ""), tf.float32)  # [B, S]
        weights = tf.eye(TOKENS, batch_shape=[1]) * real[:, tf.newaxis, :]
        weights = tf.tile(weights[:, tf.newaxis, tf.newaxis], [1, 2, 3, 1, 1])
        return {
            "text": tf.strings.upper(text),
            "source_tokens": source,
            "target_tokens": target,
            "attention": weights,
        }

    def multiply(self, x):
        return {"y": x @ self.weights, "twice": 2.0 * x}

    def add(self, a, b):
        return {"sum": a + b}

    def types(self, integer, flag, half, brain):
        return {
            "integer": integer + 1,
            "flag": ~flag,
            "half": half * 2,
            "brain": brain * 2,
            "double": tf.cast(half, "float64"),
        }

    def normalize(self, text):
        return {"text": tf_text.normalize_utf8(text, "NFKC"), "classes": tf.constant(["a", "b", "c"])}

    def raw(self, text):
        return {"raw_bytes": text}

    def number(self, text):
        return {"number": tf.strings.to_number(text)}

    def slow(self, steps):
        return {"steps": tf.while_loop(lambda i: i < steps, lambda i: [i + 1], [tf.constant(0)])[0][tf.newaxis]}


def save_toy(path: Path) -> None:
    """Writes the toy model as one version."""
    toy = Toy()
    strings, floats = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.float32)
    inputs = {
        "serving_default": (toy.shout, [strings]),
        "attention": (toy.attention, [strings]),
        "multiply": (toy.multiply, [tf.TensorSpec([None, 3], tf.float32)]),
        "add": (toy.add, [floats, floats]),
        "types": (
            toy.types,
            [tf.TensorSpec([None], dtype) for dtype in (tf.int32, tf.bool, tf.float16, tf.bfloat16)],
        ),
        "normalize": (toy.normalize, [strings]),
        "raw": (toy.raw, [strings]),
        "number": (toy.number, [strings]),
        "slow": (toy.slow, [tf.TensorSpec([], tf.int32)]),
    }
    signatures = {name: tf.function(method, input_signature=specs) for name, (method, specs) in inputs.items()}
    tf.saved_model.save(toy, str(path), signatures=signatures)


@pytest.fixture(scope="session")
def toy_base(tmp_path_factory) -> Path:
    """The base path of the toy model, which has one version: 3."""
    base = tmp_path_factory.mktemp("toy")
    save_toy(base / "3")
    (base / "not-a-version").mkdir()
    return base


@pytest.fixture(scope="session")
def toy_server(toy_base):
    """A running server of the toy model, named `toy`, gRPC and REST on free ports."""
    server = ModelServer("toy", toy_base, port=0, rest_port=0, host="localhost")
    server.start()
    yield server
    server.stop(grace=1.0)


@pytest.fixture(scope="session")
def scale_models(tmp_path_factory) -> dict[object, Path]:
    """Version directories to copy from: by factor 2 and 3 those of TensorFlow 2, and `"tf1"`."""
    return save_models(tmp_path_factory.mktemp("scale"))


@pytest.fixture(scope="session")
def text_server(text_export):
    """A server of the Transformer, named `en-de`; its warm-up would take longer than all that is asked."""
    settings = {"model_name": "en-de", "model_base_path": str(text_export), "enable_model_warmup": False}
    with serving(rest_api_port=0, **settings) as (server, _):
        yield server


@pytest.fixture(scope="session")
def text_case(text_run, text_export, text_server) -> Case:
    """The Transformer and its export."""
    return Case(text_run, text_export, text_server)


@pytest.fixture(scope="session")
def dates_case(dates_run, dates_export) -> Case:
    """The recurrent model and its export."""
    return Case(dates_run, dates_export)


@pytest.fixture(scope="session")
def preset_case(shared) -> Case:
    """The recurrent model that comes with the package, and an export of it with few signatures."""
    preset = "preset:dates_rnnsearch"

    def make(base):
        export_saved_model(preset, base, signatures="score")

    return Case(zoo.load(preset), shared("exports/preset", make))


@pytest.fixture(scope="session")
def labelled_case(labelled_run, labelled_export) -> Case:
    """The classifier and its export."""
    return Case(labelled_run, labelled_export)


@pytest.fixture(scope="session")
def lines_case(lines_run, lines_export) -> Case:
    """The language model and its export."""
    return Case(lines_run, lines_export)
