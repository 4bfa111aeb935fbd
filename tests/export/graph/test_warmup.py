"""What a server replays before a new version answers: whoever asks first then waits no longer than others."""

import inspect
import statistics
import time

import pytest
import tensorflow as tf
from support.exports import LoadedModel
from tensorflow_serving.apis import prediction_log_pb2

from export.client import Client
from export.server.models.loader import WARMUP_FILE, warm_up

NOT_OF_A_TASK = {"predict", "start", "stream", "signatures", "close"}
ASKED = {
    "text": {"translate": {}, "attention": {}},
    "labelled": {"classify": {}},
    "lines": {"generate": {}, "generate with a draw": {"temperature": 0.5}},
}


class Sent(Exception):
    """Ends a call once it is known what it asks for."""


def asked_by_client(name, options, monkeypatch):
    """Returns the signature and the outputs that a method of the client asks for."""

    def send(self, signature, inputs, outputs):
        raise Sent(signature, outputs)

    monkeypatch.setattr(Client, "_send", send)
    with Client("localhost:1") as client, pytest.raises(Sent) as sent:
        getattr(client, name.split()[0])(["a"], **options)
    return sent.value.args


def worth_asking(model):
    """Yields each signature of a model with all of its outputs, and the default one with each alone."""
    for name, signature in model.signatures.items():
        yield name, frozenset(signature.outputs)
        if name == "serving_default" and len(signature.outputs) > 1:
            yield from ((name, frozenset([output])) for output in signature.outputs)


def recorded(path):
    for record in tf.data.TFRecordDataset(str(path / WARMUP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        yield getattr(log, log.WhichOneof("log_type")).request


@pytest.mark.parametrize("kind", ASKED)
def test_what_is_asked_most_and_what_the_client_asks_for(kind, request, monkeypatch):
    path = request.getfixturevalue(f"{kind}_export") / "1"
    model = LoadedModel(path, 1)
    expected = {*worth_asking(model)}
    outputs = {name: frozenset(each.outputs) for name, each in model.signatures.items()}
    found = []
    for each in recorded(path):
        name = each.model_spec.signature_name
        found.append((name, frozenset(getattr(each, "output_filter", ())) or outputs[name]))
    assert set(found) == expected and len(found) == len(expected), "each of them once"
    for name, options in ASKED[kind].items():
        signature, wanted = asked_by_client(name, options, monkeypatch)
        assert (signature, frozenset(wanted) or outputs[signature]) in expected


def test_no_method_of_the_client_is_forgotten():
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert methods == {name.split()[0] for each in ASKED.values() for name in each} | NOT_OF_A_TASK


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ASKED)
def test_the_first_request_takes_no_longer_than_others(kind, request):
    """Without warm-up it takes about a hundred times as long; the bound leaves room for a busy machine."""
    path = request.getfixturevalue(f"{kind}_export") / "1"
    model = LoadedModel(path, 1)
    warm_up(model, path)
    inputs = {each.model_spec.signature_name: each.inputs for each in recorded(path) if hasattr(each, "inputs")}
    for name, outputs in worth_asking(model):
        if name in inputs:
            feeds = {key: tf.make_ndarray(proto) for key, proto in inputs[name].items()}
            seconds = [seconds_of(model, name, feeds, outputs) for _ in range(9)]
            assert seconds[0] < 10 * statistics.median(seconds[1:]) + 0.02, (name, outputs)


def seconds_of(model, name, feeds, outputs):
    begin = time.perf_counter()
    model.predict(name, feeds, sorted(outputs))
    return time.perf_counter() - begin
