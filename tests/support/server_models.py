"""Tiny numeric SavedModels, of TensorFlow 1 and 2, and what the tests of the server share to serve and ask them."""

import contextlib
import http.client
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from export.server import ModelServer, ServerSettings
from export.server.models import manager

SECONDS = 20
SESSION = Path(__file__).with_name("server_session.pbtxt")


class Gate:
    """Holds requests for the signature `gate` in progress while closed; works in the process that wrote the model."""

    def __init__(self):
        self.waiting = threading.Semaphore(0)
        self.opened = threading.Event()


GATE = Gate()


def pass_gate(y):
    GATE.waiting.release()
    assert GATE.opened.wait(SECONDS)
    return y


@contextlib.contextmanager
def closed_gate():
    """Closes the gate for the length of the block."""
    GATE.__init__()
    try:
        yield GATE
    finally:
        GATE.opened.set()


class Scale(tf.Module):
    """`y = factor · x`, and signatures of every kind around it."""

    def __init__(self, factor):
        super().__init__()
        self.factor = tf.Variable(float(factor))

    def scale(self, x):
        return {"y": self.factor * x, "rows": tf.fill([tf.shape(x)[0]], self.factor)}

    def sum(self, x):
        return {"sum": tf.reduce_sum(x, axis=1)}

    def total(self, x):
        return {"total": tf.reduce_sum(x)}

    def inverse(self, x):
        return {"y": tf.debugging.check_numerics(1.0 / x, "no inverse")}

    def gate(self, x):
        y = tf.numpy_function(pass_gate, [self.factor * tf.identity(x)], tf.float32)
        return {"y": tf.ensure_shape(y, [None])}

    @tf.function(jit_compile=True)
    def xla(self, x):
        return {"y": self.factor * x + 1.0}

    def classify(self, inputs):
        x = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
        scores = tf.stack([x, self.factor * x], axis=1)
        return {"classes": tf.tile([["once", "scaled"]], [tf.shape(x)[0], 1]), "scores": scores}

    def regress(self, inputs):
        return {"outputs": self.factor * tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]}


def save_tf2(path: Path, factor: float) -> None:
    """Writes `Scale` as TensorFlow 2 does."""
    model = Scale(factor)
    vectors, rows = tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, None], tf.float32)
    signatures = {
        "serving_default": (model.scale, vectors),
        "sum": (model.sum, rows),
        "total": (model.total, vectors),
        "inverse": (model.inverse, vectors),
        "gate": (model.gate, vectors),
        "xla": (model.xla, vectors),
        "classify": (model.classify, tf.TensorSpec([None], tf.string)),
        "regress": (model.regress, tf.TensorSpec([None], tf.string)),
    }
    tf.saved_model.save(
        model,
        str(path),
        signatures={name: tf.function(method, input_signature=specs) for name, (method, *specs) in signatures.items()},
    )


def save_tf1(path: Path) -> None:
    """Writes the classifier and regressor of `Scale` with the factor 5 the way TensorFlow 1 does."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        factor = v1.get_variable("factor", initializer=5.0)
        examples = v1.placeholder(tf.string, [None], "examples")
        x = v1.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
        plain = v1.placeholder(tf.float32, [None], "plain")
        labels = tf.tile([["once", "scaled"]], [tf.shape(x)[0], 1])
        saved = v1.saved_model
        info, scores = saved.build_tensor_info, tf.stack([x, factor * x], axis=1)
        of = saved.signature_def_utils.build_signature_def
        given = {"inputs": info(examples)}
        classes = {"classes": info(labels), "scores": info(scores)}
        signatures = {
            "serving_default": of({"x": info(plain)}, {"y": info(factor * plain)}, "tensorflow/serving/predict"),
            "classify": of(given, classes, "tensorflow/serving/classify"),
            "scores": of(given, {"scores": info(scores)}, "tensorflow/serving/classify"),
            "regress": of(given, {"outputs": info(factor * x)}, "tensorflow/serving/regress"),
            "column": of(given, {"outputs": info(x[:, tf.newaxis])}, "tensorflow/serving/regress"),
            "flat": of(given, {"scores": info(x)}, "tensorflow/serving/classify"),
            "labels": of(given, {"outputs": info(labels)}, "tensorflow/serving/regress"),
            "nothing": of(given, {"other": info(x)}, "tensorflow/serving/classify"),
        }
        session.run(v1.global_variables_initializer())
        builder = saved.Builder(str(path))
        builder.add_meta_graph_and_variables(session, [saved.tag_constants.SERVING], signature_def_map=signatures)
        builder.save()


def save_models(base: Path) -> dict[object, Path]:
    """Writes version directories to copy from: by factor 2 and 3 those of TensorFlow 2, and `"tf1"`."""
    for factor in (2, 3):
        save_tf2(base / str(factor), factor)
    save_tf1(base / "tf1")
    return {2: base / "2", 3: base / "3", "tf1": base / "tf1"}


def publish(source: Path, target: Path) -> None:
    """Copies a version so that it appears at once."""
    partial = target.with_name(f"{target.name}-partial")
    shutil.copytree(source, partial)
    os.rename(partial, target)


def record(path: Path, *requests) -> None:
    """Writes warm-up requests beside a model."""
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())


class Asker:
    """The official stubs on one channel, with short ways to ask."""

    def __init__(self, channel):
        self.channel = channel
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)

    def predict(self, x, name="scale", timeout=SECONDS, **others):
        """Asks for one output `y`, or for all with `output_filter=()`."""
        response = self.prediction.Predict(question(x, name=name, **others), timeout=timeout)
        outputs = {key: tf.make_ndarray(proto).tolist() for key, proto in response.outputs.items()}
        return outputs["y"] if set(outputs) <= {"y", "rows"} else outputs

    def status(self, name="scale", version=None, label=None):
        """Returns the state of every version, and the errors of those that have one."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = name
        if version is not None:
            request.model_spec.version.value = version
        if label is not None:
            request.model_spec.version_label = label
        entries = self.models.GetModelStatus(request, timeout=SECONDS).model_version_status
        state = get_model_status_pb2.ModelVersionStatus.State.Name
        return {entry.version: state(entry.state) for entry in entries}, [
            entry.status.error_message for entry in entries if entry.status.error_message
        ]

    def reload(self, config, timeout=SECONDS):
        """Sends a new configuration."""
        request = model_management_pb2.ReloadConfigRequest(config=config)
        return self.models.HandleReloadConfigRequest(request, timeout=timeout)


def question(x=(1.0,), name="scale", signature="", version=None, label=None, output_filter=(), **inputs):
    """Returns a Predict request with the input `x` and others by name."""
    request = predict_pb2.PredictRequest(output_filter=output_filter)
    request.model_spec.name, request.model_spec.signature_name = name, signature
    if version is not None:
        request.model_spec.version.value = version
    if label is not None:
        request.model_spec.version_label = label
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.asarray(x, np.float32)))
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def examples(*values, context=None):
    """Returns the `Input` of the classify and regress methods."""

    def example(**features):
        lists = {key: tf.train.Feature(float_list=tf.train.FloatList(value=[x])) for key, x in features.items()}
        return tf.train.Example(features=tf.train.Features(feature=lists))

    if context is None:
        return input_pb2.Input(example_list=input_pb2.ExampleList(examples=[example(x=x) for x in values]))
    listed = input_pb2.ExampleListWithContext(
        examples=[example(**({} if x is None else {"x": x})) for x in values], context=example(x=context)
    )
    return input_pb2.Input(example_list_with_context=listed)


def classify_request(*values, name="scale", signature="classify", **others):
    request = classification_pb2.ClassificationRequest(input=examples(*values, **others))
    request.model_spec.name, request.model_spec.signature_name = name, signature
    return request


def regress_request(*values, name="scale", signature="regress", **others):
    request = regression_pb2.RegressionRequest(input=examples(*values, **others))
    request.model_spec.name, request.model_spec.signature_name = name, signature
    return request


def multi_request(*tasks, values=(1.0, 2.0)):
    """Returns a MultiInference request of (model, signature, method) tasks."""
    request = inference_pb2.MultiInferenceRequest(input=examples(*values))
    for name, signature, method in tasks:
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = name, signature
    return request


def refusal(call, request):
    """Returns status and message of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS)
    return caught.value.code().name, caught.value.details()


@contextlib.contextmanager
def serving(base=None, **settings):
    """Serves `scale` from a base path, or what the settings say; yields the server and an `Asker`."""
    defaults = {"port": 0, "host": "localhost", "file_system_poll_wait_seconds": 0.05}
    defaults["tensorflow_session_config_file"] = str(SESSION)
    if base is not None:
        defaults |= {"model_name": "scale", "model_base_path": str(base)}
    server = ModelServer(ServerSettings(**(defaults | settings)))
    # In a process of many tests it takes a second for each version that goes.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "gc", SimpleNamespace(collect=lambda: None))
        yield from _asked(server)


def _asked(server):
    server.start()
    try:
        with grpc.insecure_channel(f"localhost:{server.port}") as channel:
            yield server, Asker(channel)
    finally:
        server.stop(grace=0.0)


PLATFORM = 'model_platform: "tensorflow"'


def entry(name, base, policy="", labels=()):
    marks = "".join(f'version_labels {{ key: "{label}" value: {version} }}' for label, version in labels)
    policy = f"model_version_policy {{ {policy} }}" if policy else ""
    return f'config {{ name: "{name}" base_path: "{base}" {PLATFORM} {policy} {marks} }}'


def models(*entries):
    text = f"model_config_list {{ {' '.join(entries)} }}"
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


def get(server, path, method="GET", body=None, headers=None):
    """Asks over REST; returns the response and its content."""
    connection = http.client.HTTPConnection("localhost", server.rest_port, timeout=SECONDS)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    return response, content


def metric(server, name, *labels):
    """Returns the sum of what the page of metrics has under a name and labels."""
    lines = get(server, "/metrics")[1].splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{") and all(x in line for x in labels)
    )


def until(condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
