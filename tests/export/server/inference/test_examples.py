"""Classify, Regress, MultiInference and Predict of models from TensorFlow 1 and 2, over gRPC and REST."""

import json
import urllib.error
import urllib.request

import pytest
from google.protobuf import text_format
from support.server_models import (
    classify_request,
    entry,
    models,
    multi_request,
    publish,
    question,
    refusal,
    regress_request,
    serving,
)

MODELS = ["scale", "old"]
FACTORS = {"scale": 2.0, "old": 5.0}


@pytest.fixture(scope="module")
def served(scale_models, tmp_path_factory):
    """A server with `scale`, written by TensorFlow 2, and `old`, written by TensorFlow 1; and how to ask it."""
    base = tmp_path_factory.mktemp("inference")
    for name, source in (("scale", 2), ("old", "tf1")):
        (base / name).mkdir()
        publish(scale_models[source], base / name / "1")
    file = base / "models.config"
    file.write_text(text_format.MessageToString(models(*(entry(name, base / name) for name in MODELS))))
    with serving(model_config_file=str(file), rest_api_port=0) as both:
        yield both


@pytest.fixture(scope="module")
def ask(served):
    return served[1]


@pytest.fixture(scope="module")
def rest(served):
    def ask_rest(path, body):
        url = f"http://localhost:{served[0].rest_port}/v1/models/{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, json.dumps(body).encode()) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]

    return ask_rest


def table(response):
    return [[(one.label, one.score) for one in row.classes] for row in response.result.classifications]


def test_classify_and_regress(ask):
    for name, factor in FACTORS.items():
        response = ask.prediction.Classify(classify_request(1.0, 3.0, name=name))
        assert table(response) == [[("once", x), ("scaled", factor * x)] for x in (1.0, 3.0)]
        assert (response.model_spec.version.value, response.model_spec.signature_name) == (1, "classify")
        with_context = ask.prediction.Classify(classify_request(None, 3.0, name=name, context=7.0))
        assert [row[0][1] for row in table(with_context)] == [7.0, 3.0], "an example's own feature wins"
    without_labels = ask.prediction.Classify(classify_request(1.0, name="old", signature="scores"))
    assert table(without_labels) == [[("", 1.0), ("", 5.0)]]
    for name, signature, factor in (("scale", "regress", 2.0), ("old", "regress", 5.0), ("old", "column", 1.0)):
        response = ask.prediction.Regress(regress_request(1.0, 3.0, name=name, signature=signature))
        assert [row.value for row in response.result.regressions] == [factor, 3 * factor]


def test_multi_inference(ask):
    """Each signature has its own input in `scale`, and all have one in `old`."""
    for name, factor in FACTORS.items():
        request = multi_request((name, "classify", "classify"), (name, "regress", "regress"))
        classified, regressed = ask.prediction.MultiInference(request).results
        assert [row.classes[1].score for row in classified.classification_result.classifications] == [
            factor,
            2 * factor,
        ]
        assert [row.value for row in regressed.regression_result.regressions] == [factor, 2 * factor]
        assert regressed.model_spec.signature_name == "regress"


INVALID, FAILED = "INVALID_ARGUMENT", "FAILED_PRECONDITION"
BAD_EXAMPLES = {
    "no model": ("Classify", classify_request(1.0, name=""), INVALID, "ModelSpec has no name specified."),
    "signature": ("Classify", classify_request(1.0, signature="no"), INVALID, "found with the name: no"),
    "empty": ("Classify", classify_request(), INVALID, "Input is empty."),
    "inputs": ("Classify", classify_request(1.0, signature="serving_default"), FAILED, "No class"),
    "outputs": ("Classify", classify_request(1.0, name="old", signature="nothing"), FAILED, '"classes" or'),
    "flat": ("Classify", classify_request(1.0, name="old", signature="flat"), INVALID, "but got [1]"),
    "regress": ("Regress", regress_request(1.0, signature="classify"), INVALID, "Expected one output Tensor"),
    "values": ("Regress", regress_request(1.0, name="old", signature="labels"), INVALID, "got [1,2]"),
    "no outputs": ("Regress", regress_request(1.0, name="old", signature="nothing"), FAILED, "No regress"),
    "method": ("MultiInference", multi_request(("old", "classify", "predict")), "UNIMPLEMENTED", "Unsupported"),
    "twice": ("MultiInference", multi_request(*[("old", "regress", "regress")] * 2), INVALID, "Duplicate"),
    "models": (
        "MultiInference",
        multi_request(("old", "classify", "classify"), ("scale", "regress", "regress")),
        INVALID,
        "must access the same model name",
    ),
    "tasks": ("MultiInference", multi_request(), INVALID, "ModelSpec has no name specified."),
    "unnamed": (
        "MultiInference",
        multi_request(("old", "classify", "classify"), ("", "regress", "regress")),
        INVALID,
        "Found ModelSpec with an empty model name.",
    ),
    "scalar": ("Predict", question(signature="nowhere"), FAILED, '"nowhere" not found.'),
    "numerics": ("Predict", question([0.0], signature="inverse"), INVALID, "no inverse"),
}  # fmt: skip


def test_bad_examples(ask):
    wrong = []
    for name, (method, request, code, message) in BAD_EXAMPLES.items():
        received, details = refusal(getattr(ask.prediction, method), request)
        if received != code or message not in details:
            wrong.append((name, received, details))
    assert wrong == []


def test_rest_classify_and_regress(rest):
    body = {"signature_name": "classify", "examples": [{"x": 1.5}, {"x": [3.0]}]}
    results = [[["once", 1.5], ["scaled", 7.5]], [["once", 3.0], ["scaled", 15.0]]]
    assert rest("old:classify", body) == (200, {"results": results})
    body = {"signature_name": "regress", "context": {"x": 0.1}, "examples": [{}, {"x": 3.0}]}
    assert rest("scale/versions/1:regress", body) == (200, {"results": [0.2, 6.0]})


BAD_REST = [
    ({}, "key 'examples' is expected"),
    ({"examples": {}}, "value to be an list/array"),
    ({"examples": []}, "is an empty array"),
    ({"examples": [1]}, "Example must be JSON object but got JSON Number"),
    ({"examples": [{"x": None}]}, "Feature: x has element with unexpected JSON type: Null"),
    ({"examples": [{"x": [[1]]}]}, "unexpected JSON type: Array"),
    ({"examples": [{"x": [1.0, "a"]}]}, "Unexpected element type in feature: x expecting type: float"),
    ({"examples": [{"x": 1e39}]}, "to float without loss of precision"),
    ({"examples": [{"x": 1 << 63}]}, "Only int64 is supported"),
    ({"examples": [{"x": {"b64": "#"}}]}, "Unable to base64 decode"),
    ({"examples": [{"x": "\ud800"}]}, "The surrogate pair in string is invalid."),
    ({"examples": [{"x": True}]}, "Data types don't match"),
]


def test_bad_rest_examples(rest):
    wrong = []
    for body, message in BAD_REST:
        status, error = rest("scale:classify", {"signature_name": "classify", **body})
        if status != 400 or message not in error:
            wrong.append((body, status, error))
    assert wrong == []
