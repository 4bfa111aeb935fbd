"""The embedded server over real HTTP connections, in the row and column formats of TensorFlow Serving."""

import base64
import gzip
import http.client
import json
import logging

from export.server.api import rest_json

SECONDS = 20
PREDICT = "/v1/models/toy:predict"


def rest(server, method, path, body=None):
    connection = http.client.HTTPConnection("localhost", server.rest_port, timeout=SECONDS)
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, body)
    response = connection.getresponse()
    content = json.loads(response.read())
    connection.close()
    assert response.getheader("Content-Type") == "application/json"
    return response.status, content


def test_rest_rows_and_columns(toy_server):
    def ask(**body):
        return rest(toy_server, "POST", PREDICT, body)

    rows = {"predictions": [{"text": "EIN", "log_prob": -0.3}, {"text": "MAß", "log_prob": -0.4}]}
    assert ask(instances=["ein", "Maß"]) == (200, rows)
    body = {"instances": [{"text": "ein"}, {"text": {"b64": base64.b64encode(b"zwei").decode()}}]}
    _, content = rest(toy_server, "POST", "/v1/models/toy/versions/3:predict", body)
    assert [row["text"] for row in content["predictions"]] == ["EIN", "ZWEI"]
    body = {"signature_name": "add", "instances": [{"a": 1, "b": 2.5}, {"a": 3, "b": 4}]}
    assert ask(**body) == (200, {"predictions": [3.5, 7.0]})
    columns = {"outputs": {"y": [[1.0, 2.0], [0.1, 0.2]], "twice": [[2.0, 0.0, 0.0], [0.2, 0.0, 0.0]]}}
    assert ask(signature_name="multiply", inputs=[[1, 0, 0], [0.1, 0, 0]]) == (200, columns)
    named = {"a": [1, 2], "b": [3, 4], "unknown": "is ignored"}
    assert ask(signature_name="add", inputs=named) == (200, {"outputs": [4.0, 6.0]})
    # A signature only describes shapes.
    assert ask(instances=[["a", "b"]])[1]["predictions"][0]["text"] == ["A", "B"]
    assert ask(inputs="a")[1]["outputs"]["text"] == "A"
    assert ask(signature_name="add", inputs={"a": [[1]], "b": [[2], [3]]}) == (200, {"outputs": [[3.0], [4.0]]})


def test_rest_values(toy_server):
    """Numbers that floats hold, pairs of surrogates, and bytes."""
    numbers = [(1 << 24) - 1, 1 << 70, 0.1]  # beyond 64 bits a whole number is a float, as in the stock server
    status, content = rest(toy_server, "POST", PREDICT, {"signature_name": "multiply", "inputs": [numbers]})
    assert (status, content["outputs"]["twice"]) == (200, [[33554430.0, 2.3611832e21, 0.2]])
    body = b'{"instances": ["\\ud83d\\ude00 a", "\\\\ud800"]}'
    status, content = rest(toy_server, "POST", PREDICT, body)
    assert (status, [row["text"] for row in content["predictions"]]) == (200, ["\U0001f600 A", "\\UD800"])
    wrapped = {"b64": base64.encodebytes(b"zwei" * 30).decode().rstrip("=\n")}  # at 76 columns, without padding
    status, content = rest(toy_server, "POST", PREDICT, {"instances": [{"text": wrapped}]})
    assert (status, content["predictions"][0]["text"]) == (200, "ZWEI" * 30)
    encoded = {"b64": base64.b64encode(b"\xff\x00").decode()}
    body = {"signature_name": "raw", "instances": [encoded]}
    assert rest(toy_server, "POST", PREDICT, body) == (200, {"predictions": [encoded]})


def test_rest_unpacks_gzip(toy_server):
    def ask(body):
        connection = http.client.HTTPConnection("localhost", toy_server.rest_port, timeout=SECONDS)
        connection.request("POST", PREDICT, body, {"Content-Encoding": "gzip"})
        response = connection.getresponse()
        status, content = response.status, json.loads(response.read())
        connection.close()
        return status, content

    packed = gzip.compress(b'{"signature_name": "add", "inputs": {"a": [1], "b": [2]}}')
    assert ask(packed) == (200, {"outputs": [3.0]})
    parts = gzip.compress(b'{"signature_name": "add", ') + gzip.compress(b'"inputs": {"a": [1], "b": [2]}}')
    assert ask(parts)[0] == 200
    for damaged in (b"{}", packed[:-8], packed + b"more"):
        assert "not in gzip format" in ask(damaged)[1]["error"]


def test_rest_status_and_metadata(toy_server):
    entry = {"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert rest(toy_server, "GET", "/v1/models/toy") == (200, {"model_version_status": [entry]})
    assert rest(toy_server, "GET", "/v1/models/toy/versions/3") == (200, {"model_version_status": [entry]})
    status, content = rest(toy_server, "GET", "/v1/models/toy/metadata")
    assert status == 200
    assert content["model_spec"] == {"name": "toy", "signature_name": "", "version": "3"}
    signature = content["metadata"]["signature_def"]["signature_def"]["multiply"]
    assert [dim["size"] for dim in signature["inputs"]["x"]["tensor_shape"]["dim"]] == ["-1", "3"]


CLASSIFY = "/v1/models/toy:classify"
SURROGATE = "JSON Parse error: The surrogate pair in string is invalid."
LOSSY = "Cannot convert JSON value: %s to float without loss of precision."
DEEP = b'{"instances": ' + b"[" * 500 + b"]" * 500 + b"}"
BAD_REST = {
    "path": ("GET", "/v1/nowhere", None, 400, "Malformed request: GET /v1/nowhere"),
    "far path": ("GET", "/nowhere", None, 404, "Not found: /nowhere"),
    "no name": ("GET", "/v1/models", None, 400, "Missing model name in request."),
    "method": ("GET", PREDICT, None, 400, "Malformed request: GET /v1/models/toy:predict"),
    "verb": ("POST", "/v1/models/toy:explain", {}, 400, "Malformed request"),
    "model": (
        "POST",
        "/v1/models/other:predict",
        {"instances": ["a"]},
        404,
        "Servable not found for request: Latest(other)",
    ),
    "version": ("POST", "/v1/models/toy/versions/9:predict", {"instances": ["a"]}, 404, "Specific(toy, 9)"),
    "status": ("GET", "/v1/models/other", None, 404, "Could not find any versions of model other"),
    "huge version": ("GET", f"/v1/models/toy/versions/{1 << 70}", None, 400, "to numeric."),
    "json": ("POST", PREDICT, b"{", 400, "JSON Parse error"),
    "empty": ("POST", PREDICT, b"", 400, "JSON Parse error"),
    "encoding": ("POST", PREDICT, b'{"instances": ["\xff"]}', 400, "JSON Parse error"),
    "deep": ("POST", PREDICT, DEEP, 400, "at most 24 dimensions"),
    "very deep": ("POST", PREDICT, DEEP.replace(b"[", b"[" * 400).replace(b"]", b"]" * 400), 400, "JSON Parse error"),
    "dimensions": (
        "POST",
        PREDICT,
        b'{"instances": ' + b"[" * 25 + b'"a"' + b"]" * 25 + b"}",
        400,
        "at most 24 dimensions",
    ),
    "huge": (
        "POST",
        PREDICT,
        b'{"instances": [1e400]}',
        400,
        "JSON Parse error: Number too big to be stored in double.",
    ),
    "huge whole": ("POST", PREDICT, b'{"instances": [-1%s]}' % (b"0" * 5000), 400, "Number too big to be stored"),
    "no object": ("POST", PREDICT, ["a"], 400, 'JSON Value: ["a"] Is not object'),
    "no key": ("POST", PREDICT, {"text": ["a"]}, 400, "Missing 'inputs' or 'instances' key"),
    "both keys": ("POST", PREDICT, {"inputs": ["a"], "instances": ["a"]}, 400, "expecting only one of"),
    "no instances": ("POST", PREDICT, {"instances": []}, 400, "No values in 'instances' array"),
    "no list": ("POST", PREDICT, {"instances": 5}, 400, "Excepting 'instances' to be an list/array"),
    "signature": ("POST", PREDICT, {"signature_name": "nope", "inputs": []}, 400, '"nope" not found in signature def'),
    "signature's type": ("POST", PREDICT, {"signature_name": 1, "inputs": []}, 400, "must be a string value"),
    "type": ("POST", PREDICT, {"instances": [1]}, 400, "JSON Value: 1 Type: Number is not of expected type: string"),
    "base64": ("POST", PREDICT, {"instances": [{"b64": "#"}]}, 400, "Unable to base64 decode"),
    "no base64": ("POST", PREDICT, {"inputs": [{"b": "a"}]}, 400, '{"b": "a"} not formatted correctly for base64 data'),
    "surrogate": ("POST", PREDICT, b'{"instances": ["\\ud800"]}', 400, SURROGATE),
    "surrogate key": ("POST", PREDICT, b'{"inputs": {"text": ["a"], "\\udfff": 1}}', 400, SURROGATE),
    "surrogate signature": ("POST", PREDICT, b'{"signature_name": "\\uD800", "inputs": []}', 400, SURROGATE),
    "surrogate feature": ("POST", CLASSIFY, b'{"examples": [{"\\ud800\\ud800": 1.0}]}', 400, SURROGATE),
    "mixture": ("POST", PREDICT, {"instances": [{"text": "a"}, "b"]}, 400, "object but got list at item 1 of"),
    "other mixture": ("POST", PREDICT, {"instances": ["b", {"a": "b"}]}, 400, "value/list but got object at item 1 of"),
    "wrong name": ("POST", PREDICT, {"instances": [{"txt": "a"}]}, 400, "element: 0 key: txt of 'instances' list"),
    "missing name": (
        "POST",
        PREDICT,
        {"signature_name": "add", "instances": [{"a": 1}]},
        400,
        'JSON object: {"a": 1} keys must be equal to: a,b',
    ),
    "missing input": ("POST", PREDICT, {"signature_name": "add", "inputs": {"a": [1]}}, 400, "Missing named input: b"),
    "plain rows": ("POST", PREDICT, {"signature_name": "add", "instances": [1]}, 400, "expecting list of objects"),
    "ragged": ("POST", PREDICT, {"signature_name": "multiply", "instances": [[1, 2, 3], [1]]}, 400, "not of one shape"),
    "shape": ("POST", PREDICT, {"signature_name": "multiply", "instances": [[1, 2]]}, 400, "Matrix size-incompatible"),
    "bool": ("POST", PREDICT, {"signature_name": "multiply", "instances": [[True, 1, 1]]}, 400, "expected type: float"),
    "too large": ("POST", PREDICT, {"signature_name": "multiply", "instances": [[1e39, 1, 1]]}, 400, LOSSY % "1e+39"),
    "whole": ("POST", PREDICT, {"signature_name": "multiply", "instances": [[0, 1 << 24, 1]]}, 400, LOSSY % (1 << 24)),
    "graph": ("POST", PREDICT, {"signature_name": "number", "instances": ["x"]}, 400, "could not correctly convert"),
    "half": (
        "POST",
        PREDICT,
        {"signature_name": "types", "instances": [{"integer": 1, "flag": True, "half": 1, "brain": 1}]},
        400,
        "Failed to write JSON value for tensor type",
    ),
    "batch": (
        "POST",
        PREDICT,
        {"signature_name": "normalize", "instances": ["a"]},
        400,
        "Tensor name: text has inconsistent batch size: 1 expecting: 3",
    ),
}


def test_bad_rest_requests(toy_server):
    wrong = []
    for name, (method, path, body, status, message) in BAD_REST.items():
        received, content = rest(toy_server, method, path, body)
        if (received, set(content)) != (status, {"error"}) or message not in content["error"]:
            wrong.append((name, received, content))
    assert wrong == []
    value = {}
    for _ in range(2000):
        value = {"a": value}
    assert rest_json.quote(value) == "Object", "what is too deep to be quoted is named"


def test_an_internal_failure_is_answered_in_json_and_logged_without_the_request(toy_server, caplog, monkeypatch):
    secret = "my secret"
    # Handlers of other tests, whose files are closed, would complain about that along with the exception.
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def broken(*_):
        raise KeyError(secret)

    monkeypatch.setattr("export.server.api.rest_json.read_inputs", broken)
    status, content = rest(toy_server, "POST", PREDICT, {"instances": ["a"]})
    assert (status, content) == (500, {"error": "Internal error; the server's log has the details."})
    (entry,) = [entry for entry in caplog.records if entry.getMessage() == "request_broke"]
    assert (entry.fields["kind"], "in broken" in entry.fields["where"]) == ("KeyError", True)
    assert secret not in caplog.text + str(entry.fields)
