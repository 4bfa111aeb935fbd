"""The tables of conformance, and the command."""

import dataclasses
import importlib.util

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the checks run on TensorFlow", allow_module_level=True)

import tensorflow as tf

from benchmarks.conformance import __main__ as command
from benchmarks.conformance import report
from benchmarks.conformance.checks import CHECKS
from benchmarks.conformance.report import FAIL, NOT_APPLICABLE, PASS, Result
from benchmarks.conformance.subjects import POSITIONS, SINGLE, SUBJECTS, Missing, Subject, find

BY_NAME = {check.name: check for check in CHECKS}
SINGLE_HEAD = {subject.name: subject for subject in SUBJECTS}["zoo.layers.ScaledDotProductAttention"]


def test_missing_packages_and_layers_are_named():
    there = dataclasses.replace(SINGLE_HEAD, note="there")
    absent = [dataclasses.replace(SINGLE_HEAD, path=path) for path in ("no_such_package.layers.A", "zoo.layers.A")]
    found, missing = report.available([there, *absent])
    assert found == [there]
    assert missing == [
        "no_such_package is not installed; left out: no_such_package.layers.A",
        "zoo.layers has no A; left out: zoo.layers.A",
    ]
    with pytest.raises(Missing):
        find("zoo.layers.A")


def test_report():
    checks = BY_NAME["scores have their shape"], BY_NAME["masks are ANDed"]
    first = Subject("keras.layers.A", SINGLE, dict, {})
    second = Subject("zoo.layers.B", SINGLE, dict, {}, note="blockwise")
    third = Subject("keras_hub.layers.C", POSITIONS, dict, {})
    results = {
        first: {checks[0]: Result(PASS), checks[1]: Result(FAIL, "it did this")},
        second: {checks[0]: Result(NOT_APPLICABLE, "there are none"), checks[1]: Result(PASS)},
        third: {},
    }
    text = report.markdown(results, ["keras_hub is not installed; left out: all of it"])
    for line in (
        "| Single head | item | Keras A | zoo B, blockwise |",
        "| masks are ANDed | 1 | **fail** | pass |",
        "| scores have their shape | 6 | pass | – |",
        "| passed of those that apply | | 1 of 2 | 1 of 1 |",
        "- keras_hub is not installed; left out: all of it",
        "- Keras A\n  - masks are ANDed: it did this",
        "- zoo B, blockwise\n  - scores have their shape: there are none",
        "| Positions | item | KerasHub C |",
    ):
        assert line in text
    assert f"Keras {keras.__version__}" in text and f"TensorFlow {tf.__version__}" in text


def test_command_writes_the_table(tmp_path, capsys):
    file = tmp_path / "table.md"
    arguments = ["--layer", "keras.layers.A*", "--check", "scores are [ab]*", "--output", str(file)]
    assert command.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out == file.read_text(encoding="utf-8")
    assert "| scores are after the softmax | 6 | pass | pass |" in out
    assert "keras.layers.AdditiveAttention: 1 of 2" in err


def test_command_without_a_match_or_a_package(monkeypatch, capsys):
    def refused(arguments):
        with pytest.raises(SystemExit, match="2"):
            command.main(arguments)
        return capsys.readouterr().err

    assert "--layer 'nothing*'" in refused(["--layer", "nothing*"])
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "tensorflow" in refused([])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "keras_hub" else there(name))
    err = refused(["--layer", "keras*.RotaryEmbedding"])
    assert "keras_hub.layers.RotaryEmbedding" in err
    assert "Traceback" not in err
