"""Several models, version policies, labels and how all that changes while the server runs."""

import http.client
import json
import shutil
import threading
import time
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf import text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.server_models import (
    PLATFORM,
    SECONDS,
    Asker,
    closed_gate,
    entry,
    get,
    models,
    publish,
    question,
    record,
    refusal,
    serving,
    until,
)
from tensorflow_serving.config import model_server_config_pb2

from export.server import ModelServer, ServerSettings, ServingError
from export.server.models.manager import Manager

HealthStatus = health_pb2.HealthCheckResponse


@pytest.fixture
def base(scale_models, tmp_path):
    """A base path with version 1, which doubles."""
    base = tmp_path / "base"
    base.mkdir()
    publish(scale_models[2], base / "1")
    return base


def test_a_version_in_use_stays_until_its_request_is_through(base, scale_models):
    with serving(base) as (_, ask), futures.ThreadPoolExecutor() as pool, closed_gate() as gate:
        held = pool.submit(ask.predict, [1.0], signature="gate")
        assert gate.waiting.acquire(timeout=SECONDS)
        publish(scale_models[3], base / "2")
        until(lambda: ask.predict([1.0]) == [3.0])
        until(lambda: ask.status()[0] == {1: "UNLOADING", 2: "AVAILABLE"})
        assert not held.done()
        gate.opened.set()
        assert held.result(SECONDS) == [2.0], "answered by the version that it began with"
        until(lambda: ask.status()[0] == {1: "END", 2: "AVAILABLE"})
        assert refusal(ask.prediction.Predict, question(version=1))[0] == "NOT_FOUND"
        shutil.rmtree(base / "2")
        until(lambda: ask.predict([1.0]) == [2.0])  # removing the newest rolls back
        shutil.rmtree(base)
        assert ask.predict([1.0]) == [2.0], "a base path that is gone takes nothing down"


def test_a_broken_version_replaces_nothing_and_is_tried_again(base, scale_models):
    with serving(base) as (_, ask):
        publish(scale_models[3], base / "2-copy")
        record(base / "2-copy", question(signature="nowhere"))
        (base / "2-copy").rename(base / "2")
        until(lambda: ask.status()[0] == {1: "AVAILABLE", 2: "END"})
        (error,) = ask.status()[1]
        assert 'fails in warm-up (FAILED_PRECONDITION): Serving signature key "nowhere" not found.' in error
        assert ask.predict([1.0]) == [2.0]
        shutil.rmtree(base / "2" / "assets.extra")
        until(lambda: ask.predict([1.0]) == [3.0])


def test_policies_labels_and_reload(base, scale_models, tmp_path):
    publish(scale_models[3], base / "2")
    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(models(
        entry("scale", base, "specific { versions: 1 versions: 2 }", [("stable", 1), ("canary", 2)]),
        entry("newest", base),
        entry("all", base, "all {}"),
    )))  # fmt: skip
    flags = {"rest_api_port": 0, "allow_version_labels_for_unavailable_models": True}
    with serving(model_config_file=str(file), **flags) as (server, ask):
        for path, status in (("labels/stable", 200), ("versions/2", 200), ("labels/beta", 400)):
            assert rest_status(server, f"{path}/metadata") == status
        assert rest_status(server, "labels/beta") == 200, "asked for a status the stock server ignores labels"
        assert ask.status(label="beta")[0] == {1: "AVAILABLE", 2: "AVAILABLE"}
        assert ask.predict([1.0], label="stable") == [2.0]
        assert ask.predict([1.0], label="canary") == [3.0]
        assert ask.predict([1.0], version=1) == [2.0]
        assert ask.predict([1.0]) == [3.0]
        assert ask.status("newest")[0] == {2: "AVAILABLE"}
        assert ask.status("all")[0] == {1: "AVAILABLE", 2: "AVAILABLE"}
        code, details = refusal(ask.prediction.Predict, question(label="beta"))
        assert code == "INVALID_ARGUMENT" and "beta" in details
        code, details = refusal(ask.reload, models(entry("scale", base, "all {}", [("stable", 7)])))
        assert code == "FAILED_PRECONDITION" and "version 7 of model scale" in details
        ask.reload(models(entry("scale", base, "latest { num_versions: 2 }", [("stable", 2)]), entry("again", base)))
        assert ask.predict([1.0], label="stable") == [3.0]
        assert ask.predict([1.0], name="again") == [3.0]
        assert server.core.names() == ["again", "scale"]
        assert refusal(ask.prediction.Predict, question(name="all")) == (
            "NOT_FOUND",
            "Servable not found for request: Latest(all)",
        )


BAD_CONFIGS = {
    "twice": ([entry("a", "/b"), entry("a", "/c")], "INVALID_ARGUMENT", "Illegal to list model a multiple times"),
    "relative": ([entry("a", "b")], "INVALID_ARGUMENT", "to have an absolute path or URI; got base_path()=b"),
    "no path": ([entry("a", r"/b\000c")], "INVALID_ARGUMENT", "to have an absolute path or URI; got base_path()=/b\0c"),
    "platform": (
        [entry("a", "/b").replace('"tensorflow"', '"pytorch"')],
        "INVALID_ARGUMENT",
        "unsupported platform pytorch",
    ),
    "no platform": ([entry("a", "/b").replace(PLATFORM, "")], "INVALID_ARGUMENT", "Illegal setting neither"),
    "both": ([entry("a", "/b").replace(PLATFORM, f"model_type: TENSORFLOW {PLATFORM}")], "INVALID_ARGUMENT", "both"),
    "type": ([entry("a", "/b").replace(PLATFORM, "model_type: OTHER")], "INVALID_ARGUMENT", "choice 2 not supported"),
    "missing": ([entry("a", "/nowhere")], "UNKNOWN", "Some models did not become available: {{name: a version: 0}, }"),
}


def rest_status(server, path):
    connection = http.client.HTTPConnection("localhost", server.rest_port, timeout=SECONDS)
    connection.request("GET", f"/v1/models/scale/{path}")
    status = connection.getresponse().status
    connection.close()
    return status


def test_bad_reloads_leave_the_models_alone(base):
    with serving(base) as (_, ask):
        empty = model_server_config_pb2.ModelServerConfig()
        assert refusal(ask.reload, empty)[1].startswith("ServerModelConfig type not supported by HandleReload")
        for entries, code, message in BAD_CONFIGS.values():
            received, details = refusal(ask.reload, models(*entries, entry("scale", base)))
            assert received == code
            assert message in details
            assert ask.predict([1.0]) == [2.0]


def test_a_base_path_that_cannot_be_read_holds_up_no_other_model(base, scale_models, tmp_path, monkeypatch):
    bad, is_dir = tmp_path / "bad", Path.is_dir
    bad.mkdir()
    publish(scale_models[2], bad / "1")

    def refused(path, **others):
        if path.parent == bad:
            raise PermissionError(13, "Permission denied")
        return is_dir(path, **others)

    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(models(entry("bad", bad), entry("scale", base))))
    with serving(model_config_file=str(file)) as (_, ask):
        monkeypatch.setattr(Path, "is_dir", refused)
        publish(scale_models[3], base / "2")
        until(lambda: ask.predict([1.0]) == [3.0])
        ask.reload(models(entry("bad", bad), entry("scale", base), entry("more", base)))
        assert ask.predict([1.0], name="more") == [3.0]
        assert ask.predict([1.0], name="bad") == [2.0]


def test_a_base_path_that_is_not_there_is_logged_and_in_the_status(base, tmp_path, caplog):
    def logged():
        return [record.fields for record in caplog.records if record.getMessage() == "base_path_unreadable"]

    with serving(base) as (_, ask):
        ask.reload(models(entry("scale", tmp_path / "gone")))
        assert ask.predict([1.0]) == [2.0]
        states, (error,) = ask.status()
        assert states == {1: "AVAILABLE"}
        assert f"{tmp_path / 'gone'} (No such file or directory)" in error
        until(lambda: ask.status()[1] == [error])
        code, _ = refusal(ask.reload, models(entry("scale", base), entry("new", tmp_path / "nowhere")))
        assert code == "UNKNOWN"
        with pytest.raises(grpc.RpcError, match="any versions of model new: .*nowhere"):
            ask.status("new")
        assert ask.status() == ({1: "AVAILABLE"}, [])
        ask.reload(models(entry("scale", tmp_path / "gone")))
    assert [fields["model"] for fields in logged()] == ["scale", "new", "scale"], (
        "each said once, however often it is polled"
    )


def test_a_version_is_let_go_once(tmp_path, monkeypatch):
    manager = Manager(lambda *_: SimpleNamespace(close=lambda: None))
    manager.aspire("scale", {1: tmp_path})
    monkeypatch.setattr(manager, "available", lambda name: {1})  # what two threads may have seen
    manager.stop()
    manager.stop()
    with manager.use("scale", 1) as model:
        assert model is None


def test_the_configuration_file_is_followed(base, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(models(entry("one", base))))
    with serving(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05) as (server, ask):
        assert ask.predict([1.0], name="one") == [2.0]
        file.write_text("not a configuration")
        file.write_text(text_format.MessageToString(models(entry("two", base))))
        until(lambda: server.core.names() == ["two"] and server.core.available("two"))
        assert ask.predict([1.0], name="two") == [2.0]


def test_a_configuration_that_is_refused_is_tried_until_it_is_accepted(base, scale_models, tmp_path, caplog):
    """A label is added together with its version, which takes a while to load."""
    file = tmp_path / "models.config"
    before, after = (
        text_format.MessageToString(models(entry("scale", base, "all {}", labels))) for labels in ([], [("new", 2)])
    )

    def write(text):  # at once: a server that reads a file half written refuses it
        (tmp_path / "new.config").write_text(text)
        (tmp_path / "new.config").replace(file)

    def events():
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith("config_")]

    caplog.set_level("INFO", "export.server")
    write(before)
    with serving(model_config_file=str(file), model_config_file_poll_wait_seconds=0.05) as (_, ask):
        write(after)
        until(lambda: events() == ["config_refused"])
        publish(scale_models[3], base / "2")
        until(lambda: "config_reloaded" in events())
        assert ask.predict([1.0], label="new") == [3.0]
        write(before)
        until(lambda: len(events()) == 3)
        assert events() == ["config_refused", "config_reloaded", "config_reloaded"], "each said once"


def test_warm_up_comes_before_the_first_answer(base, monkeypatch):
    from export.server.models.saved_model import LoadedModel

    asked = []
    run = LoadedModel.run
    monkeypatch.setattr(LoadedModel, "run", lambda self, feeds, *rest: asked.append(1) or run(self, feeds, *rest))
    record(base / "1", question(), question([1.0, 2.0], signature="inverse"))
    with serving(base):
        assert len(asked) == 2
    asked.clear()
    with serving(base, enable_model_warmup=False):
        assert asked == []


def test_a_model_that_loads_answers_so_at_once(base, monkeypatch):
    loading, loads, load = threading.Event(), threading.Event(), ModelServer._load

    def slowly(*arguments):
        loading.set()
        assert loads.wait(SECONDS)
        return load(*arguments)

    monkeypatch.setattr(ModelServer, "_load", slowly)
    flags = {"model_name": "scale", "model_base_path": str(base), "rest_api_port": 0, "host": "localhost", "port": 0}
    server = ModelServer(ServerSettings(**flags, enable_grpc_healthcheck_service=True))
    server.listen()
    try:
        with grpc.insecure_channel(f"localhost:{server.port}") as channel, futures.ThreadPoolExecutor() as pool:
            ask, health = Asker(channel), health_pb2_grpc.HealthStub(channel)

            def is_loading():
                assert ask.status() == ({1: "LOADING"}, [])
                (version,) = json.loads(get(server, "/v1/models/scale")[1])["model_version_status"]
                assert (version["version"], version["state"]) == ("1", "LOADING")
                assert refusal(ask.prediction.Predict, question()) == ("UNAVAILABLE", "Model scale is loading.")
                assert refusal(ask.prediction.Predict, question(name="other"))[0] == "NOT_FOUND"
                response, content = get(server, "/v1/models/scale:predict", "POST", '{"instances": [1.0]}')
                assert (response.status, json.loads(content)) == (503, {"error": "Model scale is loading."})
                assert (
                    health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING
                )

            is_loading()  # as soon as it listens, and while a version is read
            start = pool.submit(server.start)
            assert loading.wait(SECONDS)
            is_loading()
            loads.set()
            start.result(SECONDS)
            assert ask.predict([1.0]) == [2.0]
            assert ask.status()[0] == {1: "AVAILABLE"}
            assert health.Check(health_pb2.HealthCheckRequest()).status == HealthStatus.SERVING
    finally:
        server.stop(grace=0.0)


def started(**settings):
    return ModelServer(ServerSettings(port=0, host="localhost", **settings)).start()


def test_a_server_without_a_model_does_not_start(base, scale_models, tmp_path):
    shutil.rmtree(base / "1" / "variables")
    with pytest.raises(ServingError, match="SavedModel"):
        started(model_base_path=str(base))
    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(models(entry("a", tmp_path / "none"))))
    with pytest.raises(ServingError, match="directory"):
        started(model_config_file=str(file))
    file.write_text("model_config_list { config { nome: 'a' } }")
    with pytest.raises(ServingError, match="Error parsing text-format tensorflow.serving.ModelServerConfig: .*: 1:30"):
        started(model_config_file=str(file))
    file.write_text("custom_model_config {}")
    with pytest.raises(ServingError, match="custom"):
        started(model_config_file=str(file))
    publish(scale_models[2], base / "3")
    file.write_text(text_format.MessageToString(models(entry("a", base, "", [("stable", 3)]))))
    with pytest.raises(ServingError, match="version 3 .*model a.*--allow_version_labels_for_unavailable_models"):
        started(model_config_file=str(file))


def test_requests_never_fail_while_versions_change(base, scale_models):
    """Every answer is of one version, whichever that is, and none is missing."""
    answered, wrong = [], []

    def ask_on(ask, stop):
        while not stop.done():
            try:
                answer = ask.prediction.Predict(question([1.0, 10.0]), timeout=SECONDS)
                factor = answer.outputs["rows"].float_val[0]
                if list(answer.outputs["y"].float_val) != [factor, 10 * factor]:
                    wrong.append(answer)
            except grpc.RpcError as error:
                wrong.append(error)
            answered.append(1)
            time.sleep(0.001)

    with serving(base) as (_, ask), futures.ThreadPoolExecutor() as pool:
        stop = futures.Future()
        clients = [pool.submit(ask_on, ask, stop) for _ in range(3)]
        for version in range(2, 5):
            publish(scale_models[2 + version % 2], base / str(version))
            until(lambda version=version: ask.status()[0].get(version) == "AVAILABLE")
        until(lambda: len(answered) > 20)
        stop.set_result(None)
        for client in clients:
            client.result()
    assert wrong == []
