"""Decoding with untrained models: as many steps for everyone, processes, tables."""

import ast
import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from support.tiny_runs import write_text

from benchmarks import kept as keeping
from benchmarks.decoding import exact, untrained
from benchmarks.decoding.untrained_cases import BATCH, CASES, LENGTH, NOTES, PEERS, REQUEST, TEST_SET
from benchmarks.peers import REQUIREMENTS
from benchmarks.process import Failed

FOLDER = Path(untrained.__file__).parent / "peers"
PROJECT = ("zoo", "training", "export", "benchmarks")

STUB = """
import json, sys
kind = sys.argv[1]
if kind == "missing":
    raise ImportError("there is no such library")
for turn, line in enumerate(sys.stdin):
    if kind == "dying" and turn == 3:
        raise MemoryError("none left")
    words = "w " * (5 if kind == "short" else 16)
    told = {"seconds": 0.5 * int(line), "processor": 0.75, "texts": [words], "versions": {"numpy": "2"}}
    print(json.dumps(told), flush=True)
"""


@pytest.fixture
def searches(monkeypatch, tmp_path):
    """Stands for contestants, whose names say what they do."""
    stub = tmp_path / "stub.py"
    stub.write_text(STUB, encoding="utf-8")

    def unmade():
        raise Failed("pip install nothing==0: ERROR: No matching distribution")

    def prepare(case, inputs, base, threads, tiny):
        kinds = {"zoo": "good", "zoo, in parts": "short", "CTranslate2": "good", "OpenNMT-tf": "missing"}
        kinds |= {"Hugging Face": "dying"}
        commands = {name: lambda kind=kind: [sys.executable, str(stub), kind] for name, kind in kinds.items()}
        return {**commands, "Joey NMT": unmade}, [16] * 64

    monkeypatch.setattr(untrained, "prepare", prepare)


def test_contestants_run_or_say_why_not(searches):
    found = untrained.measure(CASES[REQUEST], None, (), rounds=3, threads=1, tiny=False)
    greedy, beam = found["beams"]["1"], found["beams"]["5"]
    assert greedy["zoo"] == {"seconds": [0.5] * 3, "processor": [0.75] * 3} and beam["zoo"]["seconds"] == [2.5] * 3
    for results in (greedy, beam):
        assert results["zoo, in parts"]["failed"] == "16 symbols were to be found. Received: {5}."
        assert results["OpenNMT-tf"]["failed"].endswith("ImportError: there is no such library")
        assert results["Joey NMT"]["failed"].startswith("pip install nothing==0")
        assert results["Hugging Face"]["failed"].endswith("MemoryError: none left")
    assert "numpy 2" in found["versions"] and not untrained.is_complete(found)
    lines = untrained.table(CASES[REQUEST], found).splitlines()
    (row,) = (line for line in lines if line.startswith("| beam 5 | CTranslate2 |"))
    assert row.startswith("| beam 5 | CTranslate2 | 2,500 ms (2,500–2,500) | 750 ms | 410 | 1.00× as fast |")
    assert "| CTranslate2 | beam 5 | 1.00× | ≥ 1.0× | met |" in lines
    assert "| OpenNMT-tf and Hugging Face | greedy | not yet measured | ≥ 2.0× | |" in lines


def test_some_of_the_contestants(searches):
    found = untrained.measure(CASES[TEST_SET], None, ("zoo", "CT"), rounds=1, threads=1, tiny=False)
    assert set(found["beams"]) == {"5"} and list(found["beams"]["5"]) == ["zoo", "zoo, in parts", "CTranslate2"]
    # Of a test set, text does not say how many symbols it has: its contestants look at them by themselves.
    assert untrained.is_complete(found)


def test_targets_count_those_they_are_about():
    others, all_but = CASES[REQUEST].targets[0], CASES[TEST_SET].targets[1]
    assert [name for name in NOTES if others.counts(name)] == ["OpenNMT-tf", "Hugging Face Marian"]
    assert [name for name in NOTES if all_but.counts(name)] == list(PEERS)


def test_symbols():
    assert untrained.symbols_of([16] * BATCH) == BATCH * 16
    assert untrained.symbols_of([2] * BATCH + [7, 5]) == BATCH * 2 + 2 * 7


def test_peers_are_there_and_need_nothing_of_the_project():
    for peer in PEERS.values():
        assert peer.environment in REQUIREMENTS
        tree = ast.parse((FOLDER / f"{peer.environment}_search.py").read_text(encoding="utf-8"))
        names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert "searching" in names and not {name.partition(".")[0] for name in names} & {*PROJECT}


def test_batches_of_peers_are_those_of_ours(monkeypatch, tmp_path):
    for folder in (FOLDER, untrained.MODELS):
        monkeypatch.syspath_prepend(str(folder))
    import searching

    rows = [[4] * length for length in (3, 1, 2, 5, 4)]
    (tmp_path / "ids.json").write_text(json.dumps(rows), encoding="ascii")
    found = searching.batches({"sources": str(tmp_path / "ids.json"), "batch": 2})
    assert [batch.shape for batch in found] == [(1, 5), (2, 4), (2, 2)]
    assert (found[1] == [[4, 4, 4, 0], [4, 4, 4, 4]]).all()
    searching.check(found[0], np.array([[4, 5, 6, 7, 8]]))
    searching.check(found[0], np.array([[4, 5, 2, 7, 8]]), end=None)
    for short in ([[4, 5, 6]], [[4, 5, 2, 0, 0]]):
        with pytest.raises(ValueError, match="symbols were to be found"):
            searching.check(found[0], np.array(short))
    for name in ("searching", "worker"):
        sys.modules.pop(name)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the measurements run on TensorFlow")
def test_ours_takes_all_steps(monkeypatch, tmp_path):
    import zoo
    from zoo.inference import seq2seq_run as seq2seq

    inputs = untrained.made_up(tiny=True)
    untrained.write_workdir(tmp_path / "run", inputs.tokenizer)
    run = zoo.load(tmp_path / "run")
    texts = [*inputs.texts[:2], " ".join(inputs.texts[2].split()[:4])]
    assert [len(row) for row in run.source_ids(texts)] == [LENGTH, LENGTH, 5]
    monkeypatch.setattr(seq2seq, "Translator", exact.exact_length(seq2seq.Translator))
    exact.check(run, texts, batch=2, beam=1)
    monkeypatch.setattr(seq2seq.Seq2SeqRun, "nbest", lambda *_, **__: [[seq2seq.Hypothesis("", 0.0, [4])]] * 3)
    with pytest.raises(ValueError, match="48 symbols were to be found. Received: 3."):
        exact.check(run, texts, batch=2, beam=1)


def test_the_source_of_a_test_split(tmp_path):
    inputs = untrained.test_split(write_text(tmp_path), tiny=True)
    assert len(inputs.texts) == BATCH // 8 and inputs.tokenizer.vocab_size > 50
    assert inputs.texts[0] == (tmp_path / "test.en").read_text(encoding="utf-8").splitlines()[0]


def test_command(monkeypatch, tmp_path, capsys):
    given = []

    def measure(case, inputs, wanted, rounds, threads, tiny):
        given.append((case.name, inputs, wanted, rounds))
        return {"where": "a machine", "versions": [], "symbols": 7, "beams": {str(beam): {} for beam in case.beams}}

    monkeypatch.setattr(keeping, "FOLDER", tmp_path)
    monkeypatch.setattr(untrained, "measure", measure)
    monkeypatch.setattr(untrained, "made_up", lambda tiny: "made up")
    monkeypatch.setattr(untrained, "test_split", lambda spec, tiny: spec)
    for _ in range(2):
        assert untrained.main(["--contestant", "zoo"]) == 0
    assert given == [(REQUEST, "made up", ["zoo"], 15)], "what is finished is kept"
    assert "64 sentences of 16 symbols" in capsys.readouterr().out
    untrained.main(["--case", TEST_SET, "--data", f"text:{tmp_path}:en-de", "--tiny"])
    assert given[1] == (TEST_SET, f"text:{tmp_path}:en-de", [], untrained.MOST)
    assert "Tiny sizes" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        untrained.main(["--case", TEST_SET])
    assert "needs --data" in capsys.readouterr().err
