"""Models written as ONNX, run by ONNX Runtime: the numbers are those of Python, at sizes that vary."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support import checkpoints
from support.tiny_runs import run_quietly

import zoo
from export import onnx
from export.convert import main
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError
from zoo.workdir import WorkDir

IDS = np.random.default_rng(0).integers(4, 10, size=(6, 9)).astype("int32")
IDS[1, 3:] = 0  # padding


def convert(workdir, out, start=("-m", "export.convert")):
    """Runs the command on PyTorch; returns its status, its output and its errors."""
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    command = [sys.executable, *start, str(workdir), "--to", f"onnx:{out}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def converted(workdir, out, start=("-m", "export.convert")):
    """Returns sessions by the name of their file, and what `onnx.json` says about each file."""
    runtime = pytest.importorskip("onnxruntime")
    status, written, errors = convert(workdir, out, start)
    assert status == 0, errors
    assert json.loads(written)["kind"] == "onnx"
    assert (out / "config.json").is_file() and (out / "tokenizers").is_dir()
    described = json.loads((out / "onnx.json").read_text())
    assert described["special_ids"] == {"pad": 0, "start": 1, "end": 2, "unknown": 3}
    files = described["files"]
    WorkDir(out).check(*files, "onnx.json")
    sums = json.loads((out / "checksums.json").read_text(encoding="utf-8"))
    assert {"onnx.json", *files} <= sums.keys()
    sessions = {name: runtime.InferenceSession(out / name) for name in files}
    for name, session in sessions.items():
        assert [value["name"] for value in files[name]["inputs"]] == [value.name for value in session.get_inputs()]
        assert [value["name"] for value in files[name]["outputs"]] == [value.name for value in session.get_outputs()]
        assert files[name]["largest_difference"] <= 1e-4
    return sessions, files


def steps(session, described, token_ids, **memory):
    """Returns the logits [B, T, V] of one step after another for tokens [B, T], as `onnx.json` tells its reader to."""
    sizes, state = {"batch": len(token_ids), "capacity": 14}, {}
    for value in described["inputs"]:
        if value["name"].startswith("state_"):
            shape = [sizes.get(size, size) for size in value["shape"]]
            state[value["name"]] = np.zeros(shape, value["dtype"])
    memory = {value["name"]: memory[value["name"]] for value in described["inputs"] if value["name"] in memory}
    names, logits = [value["name"] for value in described["outputs"]], []
    for last in token_ids.T:
        found = dict(zip(names, session.run(names, {"last": last, **memory, **state}), strict=True))
        state = {name: found[f"next_{name}"] for name in state}
        logits.append(found["logits"])
    return np.stack(logits, axis=1)


@pytest.mark.nightly
def test_a_classifier(tmp_path, labelled_workdir, labelled_run):
    sessions, files = converted(labelled_workdir, tmp_path / "out")
    assert files["model.onnx"]["inputs"] == [{"name": "tokens", "dtype": "int32", "shape": ["batch", "length"]}]
    for rows, length in [(1, 1), (6, 9)]:
        ids = IDS[:rows, :length]
        [logits] = sessions["model.onnx"].run(["logits"], {"tokens": ids})
        np.testing.assert_allclose(logits, labelled_run.model({"tokens": ids}), atol=1e-4)


@pytest.mark.nightly
def test_weights_that_are_too_large_for_a_file_stand_beside_it(tmp_path, labelled_workdir, labelled_run):
    limited = "from export import convert, onnx; onnx.LARGEST_FILE = 100; raise SystemExit(convert.command())"
    sessions, files = converted(labelled_workdir, tmp_path / "out", ("-c", limited))
    assert files["model.onnx"]["external_data"] == "model.onnx.data"
    sums = json.loads((tmp_path / "out" / "checksums.json").read_text(encoding="utf-8"))
    assert "model.onnx.data" in sums
    size = sum(4 * np.prod(weight.shape) for weight in labelled_run.model.trainable_weights)
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size >= 0.9 * size
    [logits] = sessions["model.onnx"].run(["logits"], {"tokens": IDS})
    np.testing.assert_allclose(logits, labelled_run.model({"tokens": IDS}), atol=1e-4)


def test_only_weights_above_the_limit_stand_beside_their_file(tmp_path):
    class Program:
        def save(self, path, external_data):
            saved.append((path.name, external_data))

    saved = []
    assert onnx.LARGEST_FILE < 2**31
    for size, data in [(onnx.LARGEST_FILE, ""), (onnx.LARGEST_FILE + 1, "step.onnx.data")]:
        assert onnx._save(Program(), tmp_path / "step.onnx", size) == data
    assert saved == [("step.onnx", False), ("step.onnx", True)]


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["minilm", "mpnet"])
def test_a_sentence_encoder(family, tmp_path):
    import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", tmp_path / "run")
    run = zoo.load(tmp_path / "run")
    sessions, _ = converted(tmp_path / "run", tmp_path / "out")
    for rows, length in [(1, 2), (6, 9)]:
        ids = IDS[:rows, :length]
        [vectors] = sessions["model.onnx"].run(["vectors"], {"tokens": ids})
        np.testing.assert_allclose(vectors, run.model({"tokens": ids}), atol=1e-4)


@pytest.mark.nightly
def test_steps_of_a_language_model(tmp_path, lines_workdir, lines_run):
    sessions, files = converted(lines_workdir, tmp_path / "out")
    for rows, length in [(1, 3), (6, 9)]:
        ids = np.maximum(IDS[:rows, :length], 4)
        found = steps(sessions["step.onnx"], files["step.onnx"], ids)
        np.testing.assert_allclose(found, lines_run.model({"tokens": ids}), atol=1e-4)


@pytest.mark.nightly
def test_steps_within_a_window(tmp_path):
    """Of 4 positions, which is less than the length of the texts: the cache forgets the first of them."""
    import_checkpoint(f"hf:{checkpoints.FIXTURES / 'phi3'}", tmp_path / "run")
    model = zoo.load(tmp_path / "run").model
    sessions, files = converted(tmp_path / "run", tmp_path / "out")
    ids = np.maximum(IDS, 4)
    found = steps(sessions["step.onnx"], files["step.onnx"], ids)
    np.testing.assert_allclose(found, model({"tokens": ids}), atol=1e-4)


@pytest.mark.nightly
def test_a_translator(tmp_path, text_workdir, text_run):
    sessions, files = converted(text_workdir, tmp_path / "out")
    names = [value["name"] for value in files["encode.onnx"]["outputs"]]
    source, target = IDS, np.maximum(IDS[:, :7], 4)
    memory = dict(zip(names, sessions["encode.onnx"].run(names, {"source": source}), strict=True))
    found = steps(sessions["step.onnx"], files["step.onnx"], target, **memory)
    np.testing.assert_allclose(found, text_run.model({"source": source, "target": target}), atol=1e-4)


@pytest.mark.nightly
def test_a_recurrent_translator_is_refused_and_nothing_is_left(tmp_path):
    pytest.importorskip("onnxruntime")
    status, _, errors = convert("preset:dates_rnnsearch", tmp_path / "out")
    assert status == 2
    assert "error: onnx: RNNSearch cannot be converted: the exporter does not support loops over tokens" in errors
    assert not [*tmp_path.iterdir()]


def test_another_backend_or_a_missing_package_is_named(tmp_path, monkeypatch, capsys):
    arguments = ["preset:sums_causal_lm_tiny", "--to", f"onnx:{tmp_path / 'out'}"]
    with pytest.raises(InputError, match="onnx: .*KERAS_BACKEND=torch.*tensorflow"):
        main(arguments)
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(onnx, "importlib", SimpleNamespace(import_module=missing))
    monkeypatch.delitem(sys.modules, "onnx", raising=False)
    assert run_quietly(main, *arguments) == 2
    assert "requires onnx, which is not installed: pip install" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
