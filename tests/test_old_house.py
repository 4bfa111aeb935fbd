"""What the house wrote before it was rearranged loads, and answers as it did; see fixtures/old_house/README.md."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import keras
import numpy as np
import pytest
from fixtures.old_house import users  # noqa: F401 - registers what is in the files
from fixtures.old_house.questions import ask, ask_export, ask_model, summary
from keras import ops
from support.models import FLAT
from support.tiers import nightly_unless

import zoo
import zoo.layers
from training.config.run_config import RunConfig
from training.data.formats.senses import twins
from zoo.workdir import WorkDir

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "tests/fixtures/old_house"
MODELS = (
    "rnnsearch rnn_encdec luong_local_p convs2s transformer transformer_t5_like_llama self_attention_classifier "
    "transformer_classifier birnn_classifier cnn_classifier causal_lm_modern lstm_lm"
).split()

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow wrote the answers")


def command(module, *arguments, **environment):
    """Runs a command in a process of its own, at the root of the repository, and returns its last line, from JSON."""
    argv = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


# What was answered.


@cache
def kept(name):
    return json.loads((HOUSE / name).read_text(encoding="utf-8"))


def each_of(kind, fast=()):
    """Returns a mark that runs a test with each name of a kind; those that are not fast are slow."""
    return pytest.mark.parametrize("name", nightly_unless(fast.__contains__, kept("index.json")["names"][kind]))


@cache
def arrays(name):
    """Returns the arrays of an .npz as {file: {"inputs" or "outputs": {name: array}}}."""
    found = {}
    with np.load(HOUSE / name) as file:
        for key in file.files:
            stem, kind, part = key.split("/")
            found.setdefault(stem, {}).setdefault(kind, {})[part] = file[key]
    return found


def check(found, expected, tolerance=1e-5, where="answers"):
    """Checks that answers are as they were: texts letter for letter, numbers up to a tolerance."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where  # TensorFlow sorts the outputs of a loaded graph anyhow
    if isinstance(expected, dict | list):
        assert len(found) == len(expected), where
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            check(found[key], expected[key], tolerance, f"{where}, {key}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), where
    else:
        assert found == expected, where


def check_arrays(found, expected, tolerance=1e-5):
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)


# The tests.


def test_public_names_are_there():
    found = kept("index.json")
    assert all(hasattr(zoo.layers, name) and name in zoo.layers.__all__ for name in found["zoo.layers"])
    assert all(hasattr(zoo, name) for name in found["zoo"])
    assert set(found["names"]["presets"]) <= set(zoo.list_presets())


def test_registered_models_are_as_they_were():
    for name, (task, config) in kept("index.json")["specs"].items():
        spec = zoo.get_spec(name)
        assert spec.task == task, name
        assert config.items() <= spec.config.items(), name


@each_of("layers", ["blocks", "recurrent", "quantized"])
def test_layers(name):
    model, expected = keras.saving.load_model(HOUSE / f"layers/{name}.keras"), arrays("layers.npz")[name]
    outputs = dict(zip(model.output_names, model([expected["inputs"][i.name] for i in model.inputs]), strict=True))
    outputs = {key: ops.convert_to_numpy(output) for key, output in outputs.items()}
    # Another machine may round another way.
    check_arrays(outputs, expected["outputs"], 1e-2 if name == "quantized" else 1e-5)


@each_of("models", MODELS)
def test_models(name):
    spec, options = kept("models.json")[name]
    zoo.get_spec(spec).load_class()
    model, expected = keras.saving.load_model(HOUSE / f"models/{name}.keras"), arrays("models.npz")[name]
    check_arrays(ask_model(model, expected["inputs"]), expected["outputs"])
    since = {"start_seed": None} if options.get("start_state") == "random" else {}  # zeros outside training, then
    made = zoo.create_model(spec, dtype="float32", **options, **since)
    assert made.get_config() == model.get_config()
    assert [each.shape for each in made.weights] == [each.shape for each in model.weights]


@tensorflow_only
@each_of("workdirs", ["text_subword", "tsv_words", "lines_chars"])
def test_work_directories(name):
    texts, expected = kept("answers.json")[name]
    check(ask(zoo.load(HOUSE / "workdirs" / name), texts), expected)


@tensorflow_only
@each_of("presets", ["senses_self_attention_classifier"])
def test_presets(name):
    """A preset answers as it did; where another has taken its name, its work directory does."""
    texts, expected = kept("presets.json")[name]
    replaced = HOUSE / "presets" / name
    check(ask(zoo.load(replaced if replaced.is_dir() else f"preset:{name}"), texts), expected)


def test_what_was_trained_on_senses_was_trained_on_the_twins():
    kept_run = RunConfig.of_workdir(WorkDir(HOUSE / "presets/senses_self_attention_classifier"))
    assert kept_run.data.spec == "senses:twins"
    assert kept_run.open_data().split("train").texts == [text for text, _ in twins.examples("train")]


@tensorflow_only
@each_of("evaluation")
def test_evaluation(name, tmp_path):
    workdir = shutil.copytree(HOUSE / "workdirs" / name, tmp_path / name)
    found, expected = json.loads(command("training.evaluate", workdir)), kept("evaluation.json")[name]
    check({key: found[key] for key in expected}, expected)


@tensorflow_only
@pytest.mark.nightly
def test_an_unfinished_run_goes_on(tmp_path):
    workdir, expected = shutil.copytree(HOUSE / "unfinished", tmp_path / "run"), kept("unfinished.json")
    found = json.loads(command("training.train", "--workdir", workdir, "--resume"))
    check({key: found[key] for key in expected["metrics"]}, expected["metrics"], 1e-4)
    # The gradient of a key's bias is rounding alone, of which Adam makes whole steps.
    found, expected = (
        {row[0]: row for row in rows} for rows in (summary(zoo.load(workdir).model), expected["weights"])
    )
    assert found.keys() == expected.keys()
    for path in found:
        numbers = 2 if path.endswith(FLAT) else 4
        check(found[path][:numbers], expected[path][:numbers], 1e-4, path)


@tensorflow_only
@each_of("exports", ["senses", "lines_subword"])
def test_exports(name):
    texts, expected = kept("exports.json")[name]
    check(ask_export(HOUSE / "exports" / name / "1", texts, expected), expected)


@tensorflow_only
def test_the_client_samples_from_older_exports():
    """Those take one seed for all texts of a request; later ones one for each."""
    from export.client import Client
    from export.serve import ModelServer

    server = ModelServer("old", HOUSE / "exports/lines_subword", port=0, host="localhost")
    server.start()
    try:
        with Client(f"localhost:{server.port}", "old") as client:
            texts = client.generate(["a", "b", "a"], temperature=2.0, seed=5)
            numbers = {"seed": np.int32(5), "temperature": np.float32(2), "top_p": np.float32(1)}
            assert texts == client.predict("sample", {"text": ["a", "b", "a"], **numbers})["text"].tolist()
    finally:
        server.stop()


@tensorflow_only
@each_of("exports")
def test_work_directories_are_exported_as_they_were(name, tmp_path):
    texts, expected = kept("exports.json")[name]
    options = kept("index.json")["export_options"][name]
    command("export.saved_model", HOUSE / "workdirs" / name, "--output", tmp_path / name, *options)
    check(ask_export(tmp_path / name / "1", texts, expected), expected)
