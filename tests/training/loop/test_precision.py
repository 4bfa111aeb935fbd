"""The precision of a run where the machine does not tell: measured on its own steps."""

import json

import keras
import pytest
from support.tiny_runs import CONVOLUTIONS, train

from training.hardware import precision as hardware
from training.loop import precision as module

SHORT = [setting for setting in CONVOLUTIONS if not setting.startswith("training.precision")]
SHORT += ["training.max_steps=2", "training.eval_every=2"]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A processor with instructions for bfloat16, whose steps take what the test says; returns what was measured."""
    monkeypatch.setattr(hardware, "processor", lambda field: "flags : avx512_bf16")
    monkeypatch.setattr(hardware, "_has_accelerator", lambda: False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    measured = []

    def make(worth=0.0, **seconds):
        def quickest(models, inputs):
            measured.append({name: model.dtype_policy.name for name, model in models.items()})
            assert inputs.keys() == {"tokens"}
            return seconds

        monkeypatch.setattr(module, "_WORTH_MEASURING", worth)
        if seconds:
            monkeypatch.setattr(module, "_fastest_passes", quickest)
        return measured

    return make


def precision_of(run):
    return json.loads((run / "config.json").read_text())["training"]["precision"]


@pytest.mark.nightly
@pytest.mark.parametrize(("float32", "bfloat16", "chosen"), [(0.2, 0.195, "float32"), (0.288, 0.2, "mixed_bfloat16")])
def test_the_faster_one_is_taken_and_kept(machine, labelled_spec, tmp_path, capsys, float32, bfloat16, chosen):
    measured = machine(float32=float32, mixed_bfloat16=bfloat16)
    run = tmp_path / "run"
    assert train("cnn_classifier", labelled_spec, run, "--set", *SHORT) == 0
    assert measured == [{"float32": "float32", "mixed_bfloat16": "mixed_bfloat16"}]
    error = capsys.readouterr().err
    times = f"{1000 * float32:.0f} ms in float32, {1000 * bfloat16:.0f} ms in mixed_bfloat16: {chosen} (measured in "
    assert f"a forward pass takes {times}" in error and f"tensorflow, {chosen}\n" in error
    assert precision_of(run) == chosen
    if chosen == "float32":
        return
    longer = ["training.max_steps=4", "training.precision=auto"]
    assert train("cnn_classifier", labelled_spec, run, "--resume", "--set", *longer) == 0
    assert len(measured) == 1 and precision_of(run) == chosen


@pytest.mark.nightly
def test_a_measured_run_is_the_run_that_names_its_precision(machine, labelled_spec, tmp_path, capsys):
    machine()
    assert train("cnn_classifier", labelled_spec, tmp_path / "measured", "--set", *SHORT) == 0
    assert " ms in mixed_bfloat16: " in capsys.readouterr().err
    precision = f"training.precision={precision_of(tmp_path / 'measured')}"
    assert train("cnn_classifier", labelled_spec, tmp_path / "named", "--set", *SHORT, precision) == 0
    assert " ms in " not in capsys.readouterr().err
    models = [keras.saving.load_model(tmp_path / name / "model.keras") for name in ("measured", "named")]
    for first, second in zip(*(model.get_weights() for model in models), strict=True):
        assert (first == second).all()


@pytest.mark.nightly
def test_a_short_training_is_not_measured(machine, labelled_spec, tmp_path, capsys):
    measured = machine(worth=1e9, float32=2.0, mixed_bfloat16=1.0)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", "--set", *SHORT) == 0
    assert measured == [] and precision_of(tmp_path / "run") == "float32"
    assert " ms in " not in capsys.readouterr().err


@pytest.mark.nightly
def test_what_was_measured_is_remembered_for_this_model_and_machine(machine, labelled_spec, tmp_path, capsys):
    measured = machine(float32=0.3, mixed_bfloat16=0.2)
    for name, sizes in (("first", []), ("second", []), ("wider", ["model.num_filters=3"])):
        assert train("cnn_classifier", labelled_spec, tmp_path / name, "--set", *SHORT, *sizes) == 0
        assert precision_of(tmp_path / name) == "mixed_bfloat16"
        assert len(measured) == (2 if name == "wider" else 1)
        assert ("in an earlier measurement" in capsys.readouterr().err) == (name == "second")
    for path in (tmp_path / "keras").rglob("precision-*"):
        path.write_bytes(b"\xff damaged")
    assert train("cnn_classifier", labelled_spec, tmp_path / "damaged", "--set", *SHORT) == 0
    assert len(measured) == 3
