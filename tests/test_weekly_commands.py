"""The commands that measure, in their smallest sizes, and the experiments: each runs to its end.

Contestants that are not installed here say so; no environment is made for them.
"""

import dataclasses
import sys

import keras
import pytest

from benchmarks import attention, decoding, drafts, growth, rematerialization, shortlist, start, training
from benchmarks.faults import __main__ as faults
from benchmarks.runner import store
from experiments import __main__ as experiments
from experiments import dates, translation
from experiments.catalog import NAMES

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the measurements run on TensorFlow"),
]
ONCE = ["--rounds", "1", "--tiny"]
# These train up to six translators each, here for a tenth of the steps, in which none need learn what they ask.
SHORT = {"agreement", "alignment", "bottleneck", "scores", "state", "zoo"}
MEASUREMENTS = {
    "attention": (attention, ["--case", "multi_head", "--memory_rounds", "1", *ONCE], ["zoo.layers", "PyTorch"]),
    "growth": (growth, ["--layer", "dot", *ONCE], ["DotAttention"]),
    "training": (
        training,
        ["--case", "wide_step", "--contestant", "zoo, f", "--contestant", "KerasHub, f", "--threads", "1", *ONCE],
        ["| zoo | float32 |", "| KerasHub | float32 |"],
    ),
    "decoding": (decoding, ["--contestant", "zoo, in", "--threads", "1", *ONCE], ["| greedy | zoo, in parts |"]),
    "drafts": (
        drafts,
        ["untrained:causal_lm_tiny", *("--texts", "1", "--prompt_size", "12", "--max_length", "30", "--rounds", "1")],
        ["| 0 | ", "| 1 of 1 |"],
    ),
    "shortlist": (shortlist, ONCE, ["student_tiny` | 60 | greedy", "student_tiny` | 60 | beam 5"]),
    "rematerialization": (
        rematerialization,
        ["--model", "transformer_tiny", "--batch", "2", "--length", "7", "--vocabulary", "50"],
        ['"remat": false', '"remat": true'],
    ),
}


@pytest.fixture(autouse=True)
def nothing_is_kept_or_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(store, "FOLDER", tmp_path / "stored")
    monkeypatch.setattr("benchmarks.runner.case.python_of", lambda peer: sys.executable)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # which a command sets otherwise for its process
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    for name, case in growth.CASES.items():
        few = dataclasses.replace(case, contestants=case.contestants[:2], warm_up=0)  # tiny, all lengths are one
        monkeypatch.setitem(growth.CASES, name, few)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_runs_in_tiny_sizes(name, tmp_path, capfd):
    module, arguments, rows = MEASUREMENTS[name]
    more = ["--plot", str(tmp_path / "plot.png")] if module is growth else []
    assert module.main([*arguments, *more]) == 0
    out = capfd.readouterr().out
    assert "ended with status" not in out and all(row in out for row in rows), out


def test_the_start_is_measured(monkeypatch):
    monkeypatch.setattr(start, "MODELS", ("transformer_tiny",))
    found = start.measure(rounds=1, first_steps=1)
    (seconds,) = found["first_step"]["transformer_tiny"]["seconds"]
    assert 0 < found["list_models"][0] < found["process"][0] < seconds
    assert "transformer_tiny" in start.section(found)


def test_faults_are_met_as_promised(capfd):
    assert faults.main(["--quick"]) == 0, capfd.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_experiment_finds_its_directions_or_runs_to_its_end(name, tmp_path, monkeypatch):
    for module in (translation, dates) if name in SHORT else ():
        monkeypatch.setattr(module, "QUICK_STEPS", 24)
    try:
        experiments.main([name, "--quick", "--workdir", str(tmp_path)])
    except SystemExit as end:
        assert name in SHORT and end.code == experiments.REFUTED
    page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    has_verdict = name != "agreement"  # which, quick, has nothing to compare the layers of one model with
    assert ("onfirmed**" in page) == has_verdict and "not yet run" not in page.lower() and "| --- |" in page
