"""The cases of serving: when each goal is missed, and that server, clients and attacks work on a toy model."""

import argparse
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.runner.process import Failed
from benchmarks.serving import __main__ as command
from benchmarks.serving import attacks, beside_ctranslate2, cases, connections
from benchmarks.serving import server as servers
from benchmarks.serving.attacks import Attack
from benchmarks.serving.clients import Clients, Counted, Tally
from benchmarks.serving.exports import Exports, in_process
from benchmarks.serving.protocol import MODEL, Response
from export.serve import ModelServer

LONG, SHORT = Response(("ein Mann",), (-1.0,)), Response(("ein",), (-0.5,))
WRONG = Response(("eine Frau",), (-1.0,))


def tally(*got, failures=None, seconds=1.0):
    """Returns what clients got: versions with responses to the only request."""
    counted = [Counted(0, version, response, 10) for version, response in got]
    return Tally(seconds, counted, failures or {}, (1.0, 1.5, 2.0, 3.0))


FINE, FAILED = tally((1, LONG)), tally((1, LONG), failures={"UNAVAILABLE: gone": 1})
NOTHING = tally()


def verdicts(text):
    """Returns what a case says of each target."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.endswith(("| met |", "| missed |"))]
    return {row[0]: row[-1] for row in rows}


def missed(text):
    return {name for name, verdict in verdicts(text).items() if verdict == "missed"}


def test_latency_and_throughput():
    within = [10.0] * 3
    assert verdicts(cases.judge_latency({"in process": within, "over gRPC": [13.9] * 3})) == {"over gRPC": "met"}
    assert missed(cases.judge_latency({"in process": within, "over gRPC": [14.1] * 3})) == {"over gRPC"}
    for one, many, expected in (
        (FINE, tally((1, LONG), seconds=0.2), set()),
        (FINE, tally((1, LONG), seconds=0.5), {"ratio"}),
        (FINE, tally((1, LONG), (1, WRONG), seconds=0.2), {"wrong"}),
        (FINE, tally((1, LONG), failures={"INTERNAL: no": 1}, seconds=0.2), {"failed"}),
        (NOTHING, NOTHING, {"ratio", "wrong", "failed"}),
    ):
        turns = {1: [cases.Turn(one, 0.2)] * 3, 16: [cases.Turn(many, 0.1)] * 3}
        assert missed(cases.judge_throughput(turns, [LONG])) == expected


def test_swaps():
    for got, expected in (
        (tally((1, LONG), (2, SHORT), (3, LONG)), set()),
        (tally((1, LONG), (2, LONG)), {"mixed or wrong"}),
        (tally((1, LONG), (2, SHORT._replace(log_probs=LONG.log_probs))), {"mixed or wrong"}),
        (tally((1, LONG), (2, SHORT), failures={"NOT_FOUND: gone": 1}), {"failed"}),
        (FINE, {"versions that answered"}),
    ):
        text = cases.judge_swaps(got, [[LONG], [SHORT]], 3)
        assert missed(text) == expected
        assert ("NOT_FOUND: gone" in text) == ("failed" in expected)


def test_soak():
    def samples(*sizes):
        return [(6.0 * number, size * 1e6) for number, size in enumerate(sizes)]

    flat = samples(100, 300, 310, 305, 306, 307, 309, 310, 311)
    name = "memory, largest less smallest"
    assert verdicts(cases.judge_soak(flat, FINE, [LONG]))[name] == "met", "what grows at first does not count"
    growing = samples(300, *range(300, 320, 2))
    assert missed(cases.judge_soak(growing, FINE, [LONG])) == {name}
    assert "+20.00 MB" in cases.judge_soak(growing, FINE, [LONG])
    assert missed(cases.judge_soak(flat, FAILED, [LONG])) == {"failed"}
    assert missed(cases.judge_soak(flat, FINE, [WRONG])) == {"wrong"}


def test_hostile():
    fine, other = Attack("a", "NOT_FOUND", "NOT_FOUND"), Attack("b", "INTERNAL", "INVALID_ARGUMENT", "why | not")
    assert not missed(cases.judge_hostile([fine], FINE, [LONG], 0))
    assert missed(cases.judge_hostile([fine, other], FINE, [LONG], 0)) == {"answered as by the stock server"}
    assert missed(cases.judge_hostile([fine], FAILED, [LONG], 0)) == {"good requests that failed"}
    assert missed(cases.judge_hostile([fine], FINE, [WRONG], 0)) == {"good requests with a wrong answer"}


# A toy in place of a translator


def save_shout(base, length):
    """Writes a model that translates the first so many bytes of a text into capitals."""

    class Shout(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def shout(self, text):
            size = tf.cast(tf.strings.length(text), tf.float32)
            return {"text": tf.strings.upper(tf.strings.substr(text, 0, length)), "log_prob": -size}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def attention(self, text):
            return {"attention": tf.zeros([tf.shape(text)[0], 20_000])}

    model = Shout()
    signatures = {"serving_default": model.shout, "attention": model.attention}
    tf.saved_model.save(model, str(base / "1"), signatures=signatures)
    return base


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """The base path of the toy, which has one version."""
    return save_shout(tmp_path_factory.mktemp("serving") / "shout", 1000)


@pytest.fixture(scope="module")
def running(toy):
    """A server of the toy in this process, with the address and the port of one in a process of its own."""
    server = ModelServer(MODEL, toy, port=0, host=servers.HOST)
    server.start()
    yield argparse.Namespace(address=f"{servers.HOST}:{server.port}", port=server.port)
    server.stop(grace=0.0)


@pytest.mark.nightly
def test_clients_count_answers_and_failures(running, toy):
    requests = [["ein Mann"], ["eine Frau", "am Meer"]]
    expected = list(map(in_process(toy / "1"), requests))
    assert expected[1] == Response(("EINE FRAU", "AM MEER"), (-9.0, -7.0))
    with Clients(running.address, requests) as clients:
        found = clients.run(3, 0.2)
        assert clients.answer_each() == expected
        assert found.responses >= 3 and found.failed == 0
        assert {each.version for each in found.counted} == {1}
        assert found.wrong(lambda _: expected) == 0
        assert found.wrong(lambda _: expected[::-1]) == found.responses
        found = clients.at_rate(100, 0.1)
        assert found.responses == 10 and found.wrong(lambda _: expected) == 0
    with Clients(running.address, requests, "predict text") as clients:
        assert clients.answer_each() == [Response(each.texts) for each in expected]
    with Clients(f"{servers.HOST}:1", requests) as clients:
        found = clients.run(1, 0.0)
        assert found.responses == 0 and found.failed >= 1
        assert "UNAVAILABLE" in str(found.failures)


@pytest.mark.nightly
def test_every_attack_gets_what_the_stock_server_says(running, monkeypatch):
    monkeypatch.setattr(attacks, "LARGE", 1 << 20)
    monkeypatch.setattr(connections, "UNREAD", 0)
    found = [*attacks.requests(running), *connections.connections(running, ["ein Mann"] * 3, 150)]
    assert [each for each in found if each.got != each.stock] == []
    assert len(found) > 15


def test_a_version_appears_whole(toy, tmp_path):
    servers.publish(toy / "1", tmp_path, 7)
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert (tmp_path / "7" / "saved_model.pb").samefile(toy / "1" / "saved_model.pb")


def test_a_server_that_does_not_start_says_why(tmp_path):
    with pytest.raises(Failed, match="[Nn]o versions"), servers.serving(tmp_path):
        pass


@pytest.mark.weekly
def test_every_case_runs(toy, tmp_path, monkeypatch):
    for name, value in {"attacks.LARGE": 1 << 20, "attacks.LIMIT": 1 << 19, "connections.UNREAD": 0}.items():
        monkeypatch.setattr(f"benchmarks.serving.{name}", value)
    short = save_shout(tmp_path / "short", 3)
    text = tmp_path / "text"
    text.write_text("Ein Mann.\nEine Frau.\n" * 4, encoding="utf-8")
    exports = Exports(Path("runs/en-de"), tmp_path, text)
    exports.folder = tmp_path
    monkeypatch.setattr(exports, "base", lambda **options: short if "max_length" in options else toy)
    options = argparse.Namespace(seconds=2.0, rounds=10, connections=150)
    verdicts_by_case = {
        case.__name__: verdicts(case(exports, options)) for case in (cases.hostile, cases.soak, cases.swaps)
    }
    assert {verdict for case in verdicts_by_case.values() for verdict in case.values()} == {"met"}, verdicts_by_case
    assert set(verdicts(cases.throughput(exports, options))) == {"ratio", "wrong", "failed"}
    assert set(verdicts(cases.latency(exports, options))) == {"over gRPC"}


def test_exports_are_made_once(monkeypatch, tmp_path):
    made = []

    def export(workdir, base, version, **options):
        made.append((workdir, options))
        (base / str(version)).mkdir(parents=True)

    monkeypatch.setattr("benchmarks.serving.exports.export_saved_model", export)
    text = tmp_path / "text"
    text.write_text("Ein Mann.\n\nEine Frau.\n", encoding="utf-8")
    exports = Exports(Path("runs/en-de"), tmp_path, text)
    assert exports.requests == [["Ein Mann."], ["Eine Frau."]]
    assert exports.base(max_length=3) == exports.base(max_length=3) != exports.base()
    assert made == [(Path("runs/en-de"), {"max_length": 3}), (Path("runs/en-de"), {})]


def test_command_with_bad_arguments(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name, content in (("text", "Ein Mann.\n"), ("empty", "\n")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    for arguments, *words in (
        (["nowhere", "--text", "text"], "nowhere", "work directory"),
        (["run", "other/run", "--text", "text"], "names"),
        (["run", "--text", "empty"], "empty"),
        (["run", "--text", "text", "--connections", "0"], "--connections", "0"),
    ):
        with pytest.raises(SystemExit) as error:
            command.main(arguments)
        message = capsys.readouterr().err
        assert error.value.code == 2 and all(word in message for word in words)
    assert (*beside_ctranslate2.CASES, *cases.CASES) == command.CASES
