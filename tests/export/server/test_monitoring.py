"""What a server says of itself: metrics and logs, without what users wrote."""

import json
import logging

import pytest
from support.server_models import (
    classify_request,
    get,
    metric,
    question,
    refusal,
    serving,
)
from support.tiers import nightly_unless

from export.serve import read_settings
from export.server import logs
from export.server.api import services


def test_metrics_have_the_stock_names(served, ask):
    def read(name, *labels):
        return metric(served[0], name, *labels)

    ask.predict([1.0])
    refusal(ask.prediction.Predict, question(signature="nowhere"))
    ask.prediction.Classify(classify_request(1.0, 2.0))
    count = ":tensorflow:serving:request_count"
    before = read(count, 'model_name="scale"', 'status="OK"')
    ask.predict([1.0])
    assert read(count, 'model_name="scale"', 'status="OK"') == before + 1
    assert read(count, 'model_name="scale"', 'status="FAILED_PRECONDITION"') >= 1
    refusal(ask.prediction.Predict, question(name="a name that nobody serves"))
    page, latency = get(served[0], "/metrics")[1], ":tensorflow:serving:request_latency"
    assert "a name that nobody serves" not in page, "or else names could fill the memory"
    assert f"# TYPE {count} counter" in page
    assert f"# TYPE {latency} histogram" in page
    assert read(f"{latency}_count", 'API="Predict"', 'entrypoint="GRPC"') >= 2
    assert 'API="Predict",entrypoint="GRPC",le="10.0"' in page
    assert read(":tensorflow:serving:runtime_latency_sum", 'API="Predict"', 'runtime="TF1"') > 0
    assert read(":tensorflow:serving:request_example_count_total", 'model="scale"') >= 2
    assert read(":tensorflow:serving:model_warmup_latency_count", 'status="OK"') == 1


def test_metrics_count_every_request_over_rest_once(served):
    def counts():
        serving, scale = ":tensorflow:serving", 'model_name="scale"'
        return [
            metric(served[0], f"{serving}:{name}", *labels)
            for name, *labels in (
                ("request_latency_count", scale, 'API="predict"', 'entrypoint="REST"'),
                ("request_latency_count", scale, 'API=""', 'entrypoint="REST"'),
                ("request_latency_count", scale, 'API="Predict"', 'entrypoint="REST"'),
                ("runtime_latency_count", scale, 'API="Predict"'),
                ("request_count", scale, 'status="OK"'),
                ("request_count", scale, 'status="INVALID_ARGUMENT"'),
                ("request_count", 'model_name="unknown"', 'status="INVALID_ARGUMENT"'),
                ("request_count", 'model_name="unknown"', 'status="NOT_FOUND"'),
            )
        ]

    before = counts()
    get(served[0], "/v1/models/scale:predict", "POST", '{"instances": [1.0]}')
    get(served[0], "/v1/models/scale:predict", "POST", "{")
    for path in ("models/scale", "models/scale/metadata", "nowhere", "models/other"):
        get(served[0], f"/v1/{path}")
    assert [after - count for after, count in zip(counts(), before, strict=True)] == [1, 2, 0, 1, 3, 1, 1, 1]


# Logs


@pytest.fixture
def logged(capsys):
    """Has logs written as the command has them at a level; gives a function that returns what they say of requests."""
    loggers = [logging.getLogger(name) for name in ("", "export.server", "waitress.queue")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def requests():
        return [event for event in map(json.loads, capsys.readouterr().err.splitlines()) if event["event"] == "request"]

    yield requests
    for logger, (logger.handlers, logger.propagate, level) in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("level", nightly_unless("warning".__eq__, ["warning", "error", "info"]))
def test_logs_say_nothing_of_what_users_wrote_unless_asked(base, logged, level):
    secret = question([0.0], signature="inverse", more="my secret")
    logs.write_to_stderr(level)
    for flags, count, shown in (
        ([], 0, False),
        (["--log_requests"], 2, False),
        (["--log_contents"], 1, True),
        (["--log_requests", "--log_contents"], 2, True),
    ):
        settings = read_settings(["--model_base_path=x", *flags])
        with serving(base, log_requests=settings.log_requests, log_contents=settings.log_contents) as (_, ask):
            ask.predict([1.0])
            refusal(ask.prediction.Predict, secret)
        entries = logged()
        assert [entry["status"] for entry in entries] == ["OK", "INVALID_ARGUMENT"][2 - count :]
        assert ("my secret" in str(entries)) is shown


def test_an_internal_failure_is_answered_and_logged_without_the_request(served, ask, caplog, capfd, monkeypatch):
    secret = "my secret"
    # Handlers of other tests, whose files are closed, would complain about that along with the exception.
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def broken(*_):
        raise KeyError(secret)

    monkeypatch.setitem(services._INFERENCE, "Predict", broken)
    code, details = refusal(ask.prediction.Predict, question())
    assert (code, details) == ("INTERNAL", "Internal error; the server's log has the details.")
    (entry,) = [entry for entry in caplog.records if entry.getMessage() == "request_broke"]
    assert entry.fields["kind"] == "KeyError"
    assert "in broken" in entry.fields["where"]
    assert secret not in caplog.text + str(entry.fields) + "".join(capfd.readouterr())
