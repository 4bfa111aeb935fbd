"""Beginning from another run: its tokenizers, options and weights, and small corrections to them."""

import re

import numpy as np
import pytest
from support.tiny_runs import CLASSIFIER, run_quietly, write_labelled

import zoo
from training.config.resolve import TrainingRun, resolve
from training.config.run_config import RunConfig
from training.hardware.choice import Hardware
from training.loop.build import compile_model
from training.loop.prepare import prepare
from training.optimization.fine_tuning import add_lora, copy_weights
from training.train import main
from zoo.errors import InputError
from zoo.workdir import WorkDir

SHORT = "training.max_steps=2 training.eval_every=2 training.batch_tokens=512 training.precision=float32".split()
MODELS = {
    "self_attention_classifier": {"vocab_size": 11, "num_classes": 3, "model_dim": 6},
    "cnn_classifier": {"vocab_size": 11, "num_classes": 3, "embedding_dim": 5, "num_filters": 3},
    "transformer_tiny": {
        "source_vocab_size": 11,
        "target_vocab_size": 11,
        "num_layers": 1,
        "model_dim": 6,
        "intermediate_dim": 5,
        "num_heads": 2,
    },
    "causal_lm_tiny": {"vocab_size": 11, "num_layers": 1, "model_dim": 6, "intermediate_dim": 5, "num_heads": 2},
}
RECURRENT = {
    "rnnsearch": {
        "source_vocab_size": 11,
        "target_vocab_size": 13,
        "embedding_dim": 3,
        "units": 5,
        "attention_units": 7,
        "readout_units": 2,
    },
    "lstm_lm": {"vocab_size": 11, "embedding_dim": 3, "units": 3, "num_layers": 1},
}
HEAD = "self_attention_classifier/output/"
INPUTS = {
    "seq2seq": {"source": np.array([[5, 6, 7, 2], [8, 2, 0, 0]]), "target": np.array([[1, 5, 6], [1, 9, 0]])},
    "classifier": {"tokens": np.array([[5, 6, 7, 2], [8, 2, 0, 0]])},
    "language_model": {"tokens": np.array([[1, 6, 7, 5], [1, 8, 0, 0]])},
}


def weights_of(workdir):
    return by_path(zoo.load(workdir).model)


def by_path(model):
    return {weight.path: np.array(weight) for weight in model.weights}


def begun(folder, initial, spec, *settings):
    """Returns the configuration and the model of a run that begins from another, before its first step."""
    config = resolve("self_attention_classifier", spec, [f"training.init_from={initial}", *SHORT, *settings])
    run = prepare(WorkDir(folder), TrainingRun(config), Hardware(config.training.precision, cores=1))
    return run.config, compile_model(run.config, run.hardware)


def test_options_tokenizers_and_weights(labelled_workdir, labelled_spec, tmp_path):
    origin, before = zoo.load(labelled_workdir), weights_of(labelled_workdir)
    config, model = begun(tmp_path, labelled_workdir, labelled_spec, "model.dropout=0.2")
    assert config.training.init_from == str(labelled_workdir)
    kept = config.to_dict()
    assert kept["model"] == {**origin.config["model"], "dropout": 0.2} and kept["data"] == origin.config["data"]
    for name in ("text.json", "text.model"):
        assert (tmp_path / "tokenizers" / name).read_bytes() == (labelled_workdir / "tokenizers" / name).read_bytes()
    np.testing.assert_equal(by_path(model), before)


def test_other_classes_get_a_new_last_layer(labelled_workdir, tmp_path):
    spec = write_labelled(tmp_path / "data")
    for split in ("train", "val", "test"):
        path = tmp_path / "data" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tanimal\n", "\tthing\n"))
    config, model = begun(tmp_path / "run", labelled_workdir, spec)
    before = weights_of(labelled_workdir)
    for path, weight in by_path(model).items():
        if path.startswith(HEAD):
            assert weight.shape[-1] == 2 and before[path].shape[-1] == 3
        else:
            np.testing.assert_array_equal(weight, before[path])
    assert config.data.classes == ["human", "thing"]


@pytest.mark.nightly
def test_its_configuration_repeats_it(labelled_workdir, labelled_spec, tmp_path):
    argv = ["--init_from", labelled_workdir, "--data", labelled_spec, "--workdir", tmp_path / "first"]
    assert run_quietly(main, *argv, "--set", *SHORT, "model.dropout=0.2") == 0
    config = tmp_path / "first" / "config.json"
    assert run_quietly(main, "--config", config, "--workdir", tmp_path / "again") == 0
    np.testing.assert_equal(weights_of(tmp_path / "again"), weights_of(tmp_path / "first"))


def test_what_does_not_fit(labelled_workdir, labelled_spec, tmp_path, capsys, subtests):
    (tmp_path / "unfinished").mkdir()
    config = (labelled_workdir / "config.json").read_bytes()
    (tmp_path / "unfinished" / "config.json").write_bytes(config)
    for arguments, message in (
        (["--set", "model.model_dim=8"], r"model\.model_dim=16.* Received: model\.model_dim=8"),
        (["--set", "data.tokenizer=chars"], r"data\.tokenizer=words.* Received: data\.tokenizer=chars"),
        (["--model", "cnn_classifier"], "contains a self_attention_classifier.* Received: cnn_classifier"),
        (["--data", "dates"], "self_attention_classifier is a classifier model; dates is seq2seq data"),
        (["--init_from", tmp_path / "unfinished"], "has no model.keras: its training has not finished"),
    ):
        with subtests.test(message):
            argv = ["--init_from", labelled_workdir, "--data", labelled_spec, "--workdir", tmp_path / "run"]
            assert run_quietly(main, *argv, *arguments) == 2
            error = capsys.readouterr().err
            assert error.startswith("error: ") and re.search(message, error) and error.count("\n") == 1
            assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", MODELS)
def test_merged_corrections_answer_alike(name):
    """Also where a layer is shared, or an embedding is the output's matrix."""
    spec = zoo.get_spec(name)
    options = MODELS[name] | ({"max_length": 9} if spec.task == "language_model" else {})
    model, plain = zoo.create_model(name, **options), zoo.create_model(name, **options)
    before = model.get_weights()
    add_lora(model, 2)
    trained = model.trainable_variables
    names = {variable.path for variable in trained}
    head = {path for path in names if path.startswith(f"{name}/output/")} if spec.task == "classifier" else set()
    assert len(head) == (2 if spec.task == "classifier" else 0)
    assert len(names) > len(head) and all("lora_" in path for path in names - head)
    chance = np.random.default_rng(0)
    for variable in trained:
        variable.assign(chance.normal(size=variable.shape) * 0.5)
    copy_weights(model, plain)
    inputs = {key: value.astype("int32") for key, value in INPUTS[spec.task].items()}
    expected = np.array(model(inputs))
    np.testing.assert_allclose(np.array(plain(inputs)), expected, rtol=1e-4, atol=1e-4)
    plain.set_weights(before)
    assert not np.allclose(np.array(plain(inputs)), expected, atol=1e-2)


def test_recurrent_models_take_no_corrections():
    for name, options in RECURRENT.items():
        with pytest.raises(InputError, match=rf"{name} is recurrent.* training.lora_rank=2"):
            add_lora(zoo.create_model(name, **options), 2)


def test_the_rank_is_below_the_sides_of_matrices(capsys):
    """The additive score of this model ends in a vector, which takes no correction of any rank."""
    model = zoo.create_model("transformer_tiny_additive", **MODELS["transformer_tiny"])
    for rank in (3, 200):
        with pytest.raises(InputError, match=f"which is 3 for {model.name}/.*. Received: training.lora_rank={rank}"):
            add_lora(model, rank)
    total = model.count_params()
    vectors = {variable.path for variable in model.trainable_variables if variable.shape[-1] == 1}
    add_lora(model, 2)
    assert not vectors & {variable.path for variable in model.trainable_variables}
    matrices, corrected, others = re.search(
        r"for (\d+) matrices of (\S+) weights; (\S+) other weights", capsys.readouterr().err
    ).groups()
    assert int(matrices) * 2 == len(model.trainable_variables)
    assert int(corrected.replace(",", "")) + int(others.replace(",", "")) == total


@pytest.mark.nightly
def test_lora_run(labelled_workdir, labelled_spec, tmp_path, capsys):
    """It learns, changes matrices by what has the given rank, leaves the rest alone, and can be resumed."""
    workdir = tmp_path / "run"
    settings = [*CLASSIFIER, "training.max_steps=2", "training.eval_every=2", "training.lora_rank=1"]
    settings = [setting for setting in settings if not setting.startswith("model.model_dim")]
    argv = ["--init_from", labelled_workdir, "--data", labelled_spec, "--workdir", workdir, "--set", *settings]
    assert run_quietly(main, *argv) == 0
    assert "of them trained" in capsys.readouterr().err
    before, after = weights_of(labelled_workdir), weights_of(workdir)
    assert before.keys() == after.keys(), "an ordinary model"
    ranks = {
        path: np.linalg.matrix_rank((weight - before[path]).reshape(len(weight), -1), tol=1e-5)
        for path, weight in after.items()
        if weight.ndim > 1 and not path.startswith(HEAD)
    }
    assert set(ranks.values()) <= {0, 1} and 1 in ranks.values()
    for path, weight in after.items():
        if weight.ndim == 1 and not path.startswith(HEAD):
            np.testing.assert_array_equal(weight, before[path])
    card = (workdir / "MODEL_CARD.md").read_text()
    assert f"- Parameters: {sum(weight.size for weight in before.values()):,}\n" in card

    capsys.readouterr()
    assert run_quietly(main, "--workdir", workdir, "--resume", "--set", "training.lora_rank=2") == 2
    assert "training.lora_rank=1" in capsys.readouterr().err
    WorkDir(workdir).model.unlink()
    assert run_quietly(main, "--workdir", workdir, "--resume", "--set", "training.lora_rank=1") == 0
    for path, weight in weights_of(workdir).items():
        np.testing.assert_allclose(weight, after[path], rtol=1e-5, atol=1e-6)


def test_a_preset_is_a_beginning():
    names = zoo.list_presets()
    if not names:
        pytest.skip("there are no presets")
    run = zoo.load(f"preset:{names[0]}")
    settings = [f"training.init_from=preset:{names[0]}"]
    config = resolve(run.spec.name, run.config["data"]["spec"], settings)
    kept = RunConfig.from_dict(run.config)
    assert {key: config.model[key] for key in run.spec.config} == {key: kept.model[key] for key in run.spec.config}
