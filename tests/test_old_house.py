"""What the house wrote before it was rearranged loads, and answers as it did; see fixtures/old_house/README.md."""

import contextlib
import json
import shutil
from functools import cache
from pathlib import Path

import keras
import numpy as np
import pytest
from fixtures.old_house import users  # noqa: F401 - registers what is in the files
from fixtures.old_house.questions import LENGTH, ask, ask_export, ask_model, plain, summary
from keras import ops
from support.models import FLAT
from support.tiers import nightly_unless
from support.tiny_runs import run_quietly

import export.saved_model
import training.evaluate
import training.train
import zoo
import zoo.layers
from training.config.run_config import RunConfig
from training.data.formats.senses import twins
from zoo.workdir import WorkDir

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ROOT / "tests/fixtures/old_house"

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow wrote the answers")


def last_line(capsys, main, *arguments):
    """Runs a command at the root of the repository, by which the files name their data; returns what it says last."""
    with contextlib.chdir(ROOT):
        assert run_quietly(main, *arguments) in (0, None)
    return capsys.readouterr().out.splitlines()[-1]


# What was answered.


@cache
def kept(name):
    return json.loads((HOUSE / name).read_text(encoding="utf-8"))


def each_of(kind, fast=()):
    """Returns a mark that runs a test with each name of a kind; those that are not fast are nightly."""
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


def test_public_names_and_registered_models_are_as_they_were():
    found = kept("index.json")
    assert all(hasattr(zoo.layers, name) and name in zoo.layers.__all__ for name in found["zoo.layers"])
    assert all(hasattr(zoo, name) for name in found["zoo"])
    assert set(found["names"]["presets"]) <= set(zoo.list_presets())
    for name, (task, config) in found["specs"].items():
        spec = zoo.get_spec(name)
        assert spec.task == task, name
        assert config.items() <= spec.config.items(), name


@each_of("layers", ["blocks"])
def test_layers(name, new_garbage_alone):
    model, expected = keras.saving.load_model(HOUSE / f"layers/{name}.keras"), arrays("layers.npz")[name]
    outputs = dict(zip(model.output_names, model([expected["inputs"][i.name] for i in model.inputs]), strict=True))
    outputs = {key: ops.convert_to_numpy(output) for key, output in outputs.items()}
    # Another machine may round another way.
    check_arrays(outputs, expected["outputs"], 1e-2 if name == "quantized" else 1e-5)


@each_of("models", ["rnnsearch", "rnn_encdec", "transformer", "cnn_classifier", "lstm_lm"])
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
@each_of("workdirs", ["tsv_words"])
def test_work_directories(name):
    texts, expected = kept("answers.json")[name]
    check(ask(zoo.load(HOUSE / "workdirs" / name), texts), expected)


@tensorflow_only
def test_work_directories_of_translators_and_language_models_are_read():
    texts, expected = kept("answers.json")["text_subword"]
    check(zoo.load(HOUSE / "workdirs/text_subword").translate(texts, max_length=LENGTH), expected["translate"])
    texts, expected = kept("answers.json")["lines_chars"]
    check(plain(zoo.load(HOUSE / "workdirs/lines_chars").score(texts)), expected["score"])


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
def test_evaluation(name, tmp_path, capsys):
    workdir = shutil.copytree(HOUSE / "workdirs" / name, tmp_path / name)
    found, expected = json.loads(last_line(capsys, training.evaluate.main, workdir)), kept("evaluation.json")[name]
    check({key: found[key] for key in expected}, expected)


@tensorflow_only
@pytest.mark.nightly
def test_an_unfinished_run_goes_on(tmp_path, capsys):
    workdir, expected = shutil.copytree(HOUSE / "unfinished", tmp_path / "run"), kept("unfinished.json")
    found = json.loads(last_line(capsys, training.train.main, "--workdir", workdir, "--resume"))
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
@each_of("exports", ["senses"])
def test_exports(name):
    texts, expected = kept("exports.json")[name]
    check(ask_export(HOUSE / "exports" / name / "1", texts, expected), expected)


@tensorflow_only
@pytest.mark.nightly
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
def test_work_directories_are_exported_as_they_were(name, tmp_path, capsys):
    texts, expected = kept("exports.json")[name]
    options = kept("index.json")["export_options"][name]
    workdir = HOUSE / "workdirs" / name
    last_line(capsys, export.saved_model.main, workdir, "--output", tmp_path / name, *options)
    check(ask_export(tmp_path / name / "1", texts, expected), expected)
