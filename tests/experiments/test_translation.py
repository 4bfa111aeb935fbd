"""Translators as cells: what is asked of the commands, and what is not done twice."""

import json
import sys

import pytest
from support.every import every

import zoo
from experiments import translation
from experiments.catalog.zoo import MODELS
from experiments.experiment import Cell, ExperimentRequest
from training.config.resolve import resolve
from training.config.run_config import RunConfig
from zoo.errors import InputError
from zoo.workdir import WorkDir

WEIGHTS = 2_100_000


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run, none of which does anything."""
    asked = []

    def run(module, *arguments):
        asked.append((module, *arguments))
        return {"seconds": 5.0, "megabytes": 7.0}

    monkeypatch.setattr(translation, "_run", run)
    return asked


def test_settings_are_those_of_a_run(tmp_path):
    with every() as failures:
        for model in MODELS:
            for quick in (False, True):
                request = ExperimentRequest(tmp_path, quick, data=None if quick else "text:multi30k:en-de")
                with failures.of(f"{model}, quick={quick}"):
                    asked = translation.settings(model, {}, Cell({}, 3), request)
                    given = [f"{key}={value}" for key, value in asked.items()]
                    config = resolve(model, translation.data(request), given)
                    assert config.training.seed == 3 and config.training.max_steps == translation.steps(request)
                    assert config.data.lowercase is not quick and config.training.batch_tokens == 2048


def test_a_training_is_begun_once_and_goes_on(commands, tmp_path):
    request = ExperimentRequest(tmp_path, steps=40)
    path = translation.trained("rnnsearch", {"score": "dot"}, Cell({}, 2), request)
    assert path.name.startswith("rnnsearch_score=dot_seed=2_")
    assert "model.score=dot" in commands[0] and "--set" in commands[0]
    assert translation.trained("rnnsearch", {"score": "dot"}, Cell({"other": 1}, 2), request) == path
    assert len(commands) == 1 and json.loads((path / "used.json").read_text())["steps"] == 40

    (path / "used.json").unlink()
    (path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"step": 30}\n', encoding="utf-8")
    translation.trained("rnnsearch", {"score": "dot"}, Cell({}, 2), request)
    assert commands[1] == ("training.train", "--workdir", str(path), "--resume")
    assert json.loads((path / "used.json").read_text()) == {"seconds": 5.0, "megabytes": 7.0, "steps": 10.0}


def test_trainings_that_differ_share_nothing(commands, tmp_path):
    requests = [
        ExperimentRequest(tmp_path),
        ExperimentRequest(tmp_path, quick=True),
        ExperimentRequest(tmp_path, steps=7),
        ExperimentRequest(tmp_path, data="x"),
    ]
    paths = {translation.trained("rnnsearch", {}, Cell({}), request) for request in requests}
    assert len(paths) == len(commands) == len(requests)


def test_a_test_set_is_looked_at_once(commands, monkeypatch, tmp_path):
    own = resolve("rnnsearch", "dates", [])
    monkeypatch.setattr(RunConfig, "of_workdir", lambda workdir: own)
    (tmp_path / "evaluation").mkdir()

    def run(module, *arguments):
        commands.append(arguments)
        spec = arguments[arguments.index("--data") + 1]
        file = tmp_path / "evaluation" / f"test_{len(commands)}.json"
        file.write_text(json.dumps({"data": spec, "by_length": {"buckets": []}}), encoding="utf-8")
        return {"seconds": 5.0}

    monkeypatch.setattr(translation, "_run", run)
    assert translation.tested(tmp_path)["test_seconds"] == 5
    assert translation.tested(tmp_path, "text:joined:a-b")["data"] == "text:joined:a-b"
    assert translation.tested(tmp_path)["data"] == "dates" and len(commands) == 2


def test_qualities_are_told_by_length_and_failures_by_status(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InputError, match=r"training\.train ended with 1"):
        translation._run("training.train")
    buckets = [{"from": 1, "bleu_lower_tokenized": 2.0}, {"from": 6, "bleu_lower_tokenized": 3.0}]
    test = {"bleu_lower_tokenized": 5.0, "exact_match": 0.5, "by_length": {"buckets": buckets}}
    assert translation.qualities(test) == {"bleu": 5.0, "exact_match": 0.5, "bleu_from_1": 2.0, "bleu_from_6": 3.0}


@pytest.mark.nightly
def test_weights_are_equal_within_a_tenth(tmp_path):
    with every() as failures:
        for model in MODELS:
            asked = translation.settings(model, {}, Cell({}), ExperimentRequest(tmp_path, data="text:multi30k:en-de"))
            options = {key.removeprefix("model."): value for key, value in asked.items() if key.startswith("model.")}
            made = zoo.create_model(model, source_vocab_size=6000, target_vocab_size=6000, **options)
            with failures.of(model):
                assert abs(made.count_params() / WEIGHTS - 1) < 0.11


@pytest.mark.nightly
def test_tokens_of_a_step_are_those_of_the_target(text_workdir):
    config, run = RunConfig.of_workdir(WorkDir(text_workdir)), zoo.load(text_workdir)
    targets = run.tokenizers.target.encode(config.open_data().split("train").target)
    tokens = sum(len(row) + 1 for row in targets)  # the end
    mean = translation._tokens_per_step(text_workdir)
    assert tokens / mean == pytest.approx(round(tokens / mean)) and mean <= config.training.batch_tokens
