"""A small request that stands for much is refused before any of it is expanded."""

import gzip
import json
import tracemalloc

import pytest
import tensorflow as tf
from support.server_models import (
    classify_request,
    examples,
    get,
    multi_request,
    publish,
    question,
    refusal,
    serving,
)
from tensorflow_serving.apis import predict_pb2

from export.server.errors import RequestError
from export.server.inference.limits import Limits

ROWS, BYTES = 1000, 1 << 16


def tensor(dtype, shape, **values):
    """Returns a Predict request whose one input has a shape that may be larger than its values."""
    request = predict_pb2.PredictRequest(model_spec={"name": "scale"})
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(0, tf.float32))
    request.inputs["x"].Clear()
    request.inputs["x"].dtype = dtype.as_datatype_enum
    for size in shape:
        request.inputs["x"].tensor_shape.dim.add(size=size)
    for name, items in values.items():
        getattr(request.inputs["x"], name).extend(items)
    return request


def with_long_context(request, rows=10):
    """Returns a request of small examples, all of which have a large context."""
    request.input.CopyFrom(examples(*[1.0] * rows, context=1.0))
    feature = request.input.example_list_with_context.context.features.feature["y"]
    feature.bytes_list.value.append(b"y" * (BYTES // rows))
    return request


MULTI = ("scale", "classify", "classify"), ("scale", "regress", "regress")
TOO_LARGE = {
    "one string for many": (tensor(tf.string, [1 << 18], string_val=[b"a"]), "262144 rows"),
    "no string for many": (tensor(tf.string, [1 << 18]), "262144 rows"),
    "one number for many": (tensor(tf.float32, [1 << 62], float_val=[1.0]), f"{1 << 62} rows"),
    "a wide row": (tensor(tf.float32, [1, 1 << 40], float_val=[1.0]), f"{4 << 40} bytes"),
    "strings in a row": (tensor(tf.string, [1, 1 << 12], string_val=[b"a"]), "bytes"),
    "a long string for many": (tensor(tf.string, [100], string_val=[b"a" * 1000]), "bytes"),
    "a long string at the end": (tensor(tf.string, [100], string_val=[b"a", b"a" * 1000]), "bytes"),
    "nothing, of a large shape": (tensor(tf.float32, [0, 1 << 40]), "bytes"),
    "a number for many empty rows": (tensor(tf.float32, [1 << 40, 0]), f"{1 << 40} rows"),
    "dimensions": (tensor(tf.float32, [2] * 100_000), "at most 24 dimensions"),
    "examples": (classify_request(*[1.0] * (ROWS + 1)), "1001 rows"),
    "long examples": (with_long_context(classify_request()), "bytes"),
    "long examples for several": (with_long_context(multi_request(*MULTI)), "bytes"),
}


SMALL_ENOUGH = [
    tensor(tf.string, [ROWS], string_val=[b"a"]),
    tensor(tf.int8, [1, BYTES], int_val=[1]),
    tensor(tf.float32, [], float_val=[1.0]),
    classify_request(*[1.0] * 400),
    multi_request(*MULTI),
    predict_pb2.PredictRequest(),
]


def test_what_takes_too_much_is_refused_without_expanding_it():
    for name, (request, message) in TOO_LARGE.items():
        tracemalloc.start()
        try:
            with pytest.raises(RequestError, match=message) as caught:
                Limits(ROWS, BYTES).check_request(request)
            assert tracemalloc.get_traced_memory()[1] < 1 << 22, name
        finally:
            tracemalloc.stop()
        assert caught.value.code.name == "INVALID_ARGUMENT", name
    for request in SMALL_ENOUGH:
        Limits(ROWS, BYTES).check_request(request)


@pytest.fixture(scope="module")
def served(scale_models, tmp_path_factory):
    base = tmp_path_factory.mktemp("limits")
    publish(scale_models[2], base / "1")
    with serving(base, rest_api_port=0, max_request_rows=3, max_request_bytes=2000) as both:
        yield both


def test_every_way_in_has_the_limits(served):
    server, ask = served
    code, details = refusal(ask.prediction.Predict, question([1.0] * 4))
    assert code == "INVALID_ARGUMENT" and all(word in details for word in ("4 rows", "3", "--max_request_rows"))
    assert "24 dimensions" in refusal(ask.prediction.Predict, tensor(tf.string, [1] * 33, string_val=[b"a"]))[1]
    for method, request in (("Classify", classify_request(*[1.0] * 4)), ("MultiInference", multi_request(*MULTI))):
        request.input.CopyFrom(examples(*[1.0] * 4))
        assert "4 rows" in refusal(getattr(ask.prediction, method), request)[1]
    for method, body in (
        ("predict", {"instances": [1.0] * 4}),
        ("predict", {"inputs": [1.0] * 4}),
        ("regress", {"examples": [{"x": 1.0}] * 4}),
    ):
        response, content = get(server, f"/v1/models/scale:{method}", "POST", json.dumps(body))
        assert (response.status, "4 rows" in content) == (400, True)
    assert ask.predict([1.0] * 3) == [2.0] * 3


def test_nothing_larger_is_even_read(served):
    server, ask = served
    code, details = refusal(ask.prediction.Predict, question(name="a" * 3000))
    assert (code, "larger than max" in details) == ("RESOURCE_EXHAUSTED", True)
    body = json.dumps({"instances": [1.0], "more": "a" * 3000}).encode()
    assert get(server, "/v1/models/scale:predict", "POST", body)[0].status == 413
    packed = {"Content-Encoding": "gzip"}
    response, content = get(server, "/v1/models/scale:predict", "POST", gzip.compress(body), packed)
    assert (response.status, "unpacks to more than the 2000 bytes of --max_request_bytes" in content) == (400, True)
