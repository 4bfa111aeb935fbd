"""The embedded server over real gRPC connections, asked through the official stubs."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

SECONDS = 20


@pytest.fixture(scope="module")
def channel(toy_server):
    with grpc.insecure_channel(f"localhost:{toy_server.port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def status_stub(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def question(inputs=None, signature="", name="toy", version=None, output_filter=()):
    request = predict_pb2.PredictRequest(output_filter=output_filter)
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for key, value in (inputs or {}).items():
        request.inputs[key].CopyFrom(value if isinstance(value, TensorProto) else tf.make_tensor_proto(value))
    return request


def ask(stub, *args, **kwargs):
    response = stub.Predict(question(*args, **kwargs), timeout=SECONDS)
    return {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}


def refusal(call, request):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS)
    return caught.value.code(), caught.value.details()


# Predict


def test_predict(stub):
    """Strings with the default signature, numbers, some outputs, a version, and shapes that are only described."""
    response = stub.Predict(question({"text": ["ein", "Maß", ""]}), timeout=SECONDS)
    assert list(response.outputs["text"].string_val) == [b"EIN", "Maß".encode().upper(), b""]
    np.testing.assert_allclose(response.outputs["log_prob"].float_val, [-0.3, -0.4, 0.0], rtol=1e-6)
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("toy", 3, "serving_default")
    x = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], np.float32)
    outputs = ask(stub, {"x": x}, "multiply")
    np.testing.assert_array_equal(outputs["y"], [[1, 2], [8, 10]])
    np.testing.assert_array_equal(outputs["twice"], 2 * x)
    assert set(ask(stub, {"x": x}, "multiply", output_filter=["y"])) == {"y"}
    assert ask(stub, {"text": ["a"]}, version=3)["text"] == b"A"
    assert ask(stub, {"text": "a"})["text"] == b"A"
    assert ask(stub, {"text": [["a", "b"]]})["text"].tolist() == [[b"A", b"B"]]
    assert ask(stub, {"a": [[1.0]], "b": [[2.0], [3.0]]}, "add")["sum"].tolist() == [[3.0], [4.0]]


def test_predict_other_types(stub):
    types = {"integer": np.int32, "flag": np.bool_, "half": np.float16, "brain": tf.bfloat16.as_numpy_dtype}
    outputs = ask(stub, {name: np.array([0, 1], dtype) for name, dtype in types.items()}, "types")
    expected = {"integer": [1, 2], "flag": [True, False], "half": [0, 2], "brain": [0, 2], "double": [0, 1]}
    assert {name: array.astype(float).tolist() for name, array in outputs.items()} == expected
    assert {name: outputs[name].dtype for name in types} == {name: np.dtype(dtype) for name, dtype in types.items()}


def test_predict_accepts_an_empty_batch_and_the_short_form_of_the_protocol(stub):
    assert ask(stub, {"x": np.zeros([0, 3], np.float32)}, "multiply")["y"].shape == (0, 2)
    short = tf.make_tensor_proto([7.0], shape=[2, 3])  # one value and a shape
    assert len(short.float_val) == 1
    np.testing.assert_array_equal(ask(stub, {"x": short}, "multiply")["y"], [[63, 84], [63, 84]])


def labelled(label):
    request = question({"text": ["a"]})
    request.model_spec.version_label = label
    return request


FLOATS = np.zeros([1, 3], np.float32)
CONTRADICTION = tf.make_tensor_proto(np.zeros([4, 3], np.float32))
CONTRADICTION.tensor_content = b"12345678"
ENDLESS = tf.make_tensor_proto(np.zeros([1, 3], np.float32))
ENDLESS.ClearField("tensor_content")
ENDLESS.tensor_shape.dim[0].size = 1 << 40
BAD_REQUESTS = {
    "no model": (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
    "model": (question(name="other"), "NOT_FOUND", "Servable not found for request: Latest(other)"),
    "signature": (question(signature="nope"), "FAILED_PRECONDITION", 'Serving signature key "nope" not found.'),
    "loader's signature": (question(signature="__saved_model_init_op"), "FAILED_PRECONDITION", "not found"),
    "missing": (
        question({"a": [1.0]}, "add"),
        "INVALID_ARGUMENT",
        "1!=2 len({a}) != len({a,b}). Sent extra: {}. Missing",
    ),
    "none": (question({}, "add"), "INVALID_ARGUMENT", "Missing but required: {a,b}."),
    "extra": (question({"text": ["a"], "more": ["b"]}), "INVALID_ARGUMENT", "Sent extra: {more}"),
    "unknown": (
        question({"txt": ["a"]}),
        "INVALID_ARGUMENT",
        "alias not found in signature: txt. Inputs expected to be",
    ),
    "type": (question({"text": [1.0]}), "INVALID_ARGUMENT", "Expects arg[0] to be string but float is provided"),
    "double": (
        question({"x": FLOATS.astype(float)}, "multiply"),
        "INVALID_ARGUMENT",
        "arg[0] to be float but double is provided",
    ),
    "shape": (question({"x": FLOATS[:, :2]}, "multiply"), "INVALID_ARGUMENT", "Matrix size-incompatible"),
    "output": (
        question({"text": ["a"]}, output_filter=["nope"]),
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: nope Outputs expected to be in the set {log_prob,text}.",
    ),
    "same output": (question({"text": ["a"]}, output_filter=["text", "text"]), "INVALID_ARGUMENT", "duplicate output"),
    "contradiction": (question({"x": CONTRADICTION}, "multiply"), "INVALID_ARGUMENT", "tensor parsing error: x"),
    "endless": (
        question({"x": ENDLESS}, "multiply"),
        "INVALID_ARGUMENT",
        "1099511627776 rows, expanded",
    ),
    "version": (question({"text": ["a"]}, version=2), "NOT_FOUND", "Specific(toy, 2)"),
    "label": (labelled("stable"), "INVALID_ARGUMENT", "Unrecognized servable version label: stable"),
    "no type": (question({"x": TensorProto()}, "multiply"), "INVALID_ARGUMENT", "type invalid"),
    "shapes": (question({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]}, "add"), "INVALID_ARGUMENT", "Incompatible shapes"),
    "graph": (question({"text": ["x"]}, "number"), "INVALID_ARGUMENT", "could not correctly convert string"),
}


def test_bad_requests(stub):
    wrong = []
    for name, (request, code, message) in BAD_REQUESTS.items():
        received, details = refusal(stub.Predict, request)
        if received != grpc.StatusCode[code] or message not in details:
            wrong.append((name, received, details))
    assert wrong == []
    code, details = refusal(stub.Predict, question(signature="\U0001f600" * 3000))
    assert (code, details[-1]) == (grpc.StatusCode.FAILED_PRECONDITION, "…"), "a long message is cut"


def test_a_large_message_passes(stub):
    text = "a" * (20 << 20)  # gRPC's own limit is 4 MiB
    request = question({"text": [text]}, output_filter=["log_prob"])
    assert stub.Predict(request, timeout=SECONDS).outputs["log_prob"].float_val[0] == np.float32(-len(text) / 10)


def test_requests_in_parallel(stub):
    texts = [f"text {number}" for number in range(64)]
    futures = [stub.Predict.future(question({"text": [text]}), timeout=SECONDS) for text in texts]
    assert [future.result().outputs["text"].string_val[0].decode() for future in futures] == [t.upper() for t in texts]


# Metadata and status


def test_metadata(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "toy"
    response = stub.GetModelMetadata(request, timeout=SECONDS)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert {"serving_default", "attention", "multiply"} <= set(signatures.signature_def)
    assert signatures.signature_def["serving_default"].inputs["text"].dtype == tf.string.as_datatype_enum
    assert response.model_spec.version.value == 3
    for name, fields, code, word in (
        ("toy", [], "INVALID_ARGUMENT", "metadata_field"),
        ("toy", ["weights"], "INVALID_ARGUMENT", "weights"),
        ("other", ["signature_def"], "NOT_FOUND", "Latest(other)"),
    ):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        request.model_spec.name = name
        received, details = refusal(stub.GetModelMetadata, request)
        assert received == grpc.StatusCode[code] and word in details


def test_status(status_stub):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "toy"
    (entry,) = status_stub.GetModelStatus(request, timeout=SECONDS).model_version_status
    assert (entry.version, entry.state) == (3, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    request.model_spec.version.value = 4
    assert refusal(status_stub.GetModelStatus, request) == (
        grpc.StatusCode.NOT_FOUND,
        "Could not find version 4 of model toy",
    )
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "other"
    assert refusal(status_stub.GetModelStatus, request) == (
        grpc.StatusCode.NOT_FOUND,
        "Could not find any versions of model other",
    )
