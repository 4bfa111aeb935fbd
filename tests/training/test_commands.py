"""The commands on bad input: exit status 2, one clear line on standard error, nothing on standard output."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from support.tiny_runs import TRANSFORMER, run_quietly, write_text

import training.evaluate
import training.train
from export import saved_model


@pytest.fixture
def folder(tmp_path):
    """A folder of good parallel text, to be spoilt."""
    write_text(tmp_path / "data", sizes=(6, 3, 3))
    return tmp_path / "data"


@pytest.fixture
def failure(capfd):
    def run(main, *argv) -> str:
        capfd.readouterr()
        status = run_quietly(main, *argv)
        output = capfd.readouterr()
        assert (status, output.out) == (2, ""), output
        assert output.err.count("\n") == 1 and output.err.endswith("\n"), output.err
        return output.err

    return run


@pytest.fixture
def train(failure, folder, tmp_path):
    """Runs `training.train` on the folder and returns its one line; no run is left behind."""

    def run(*arguments, data=f"text:{folder}:en-de", model="transformer_tiny", workdir=tmp_path / "run"):
        line = failure(training.train.main, "--model", model, "--data", data, "--workdir", workdir, *arguments)
        assert not (workdir / "config.json").exists()
        return line

    return run


def spoil(path, number, line: bytes):
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_unequal_line_counts(train, folder, split):
    with (folder / f"{split}.de").open("a") as file:
        file.write("noch eine Zeile\n")
    number = len((folder / f"{split}.de").read_text().splitlines())
    assert re.match(rf"error: {folder}/{split}\.de:{number}: .*unequal line counts, {number - 1} in", train())


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_invalid_utf8(train, folder, split):
    spoil(folder / f"{split}.en", 2, b"caf\xe9")
    assert train().startswith(f"error: {folder}/{split}.en:2: invalid UTF-8 (byte 0xe9).")


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_empty_split(train, folder, split):
    for language in ("en", "de"):
        (folder / f"{split}.{language}").write_bytes(b"")
    assert train().startswith(f"error: {folder}/{split}.en:1: empty file; a split needs at least one line.")


def test_a_blank_line_on_one_side(train, folder):
    spoil(folder / "train.de", 3, b"  ")
    assert train().startswith(f"error: {folder}/train.de:3: blank line, but train.en has text there.")


def test_a_missing_file(train, folder):
    (folder / "val.de").unlink()
    assert train().startswith(f"error: {folder}/val.de: no such file.")


def test_a_missing_folder(train, tmp_path):
    line = train(data=f"text:{tmp_path / 'elsewhere'}:en-de")
    assert line.startswith(f"error: {tmp_path}/elsewhere: no such folder.")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dats", "error: Unknown data SPEC 'dats'. Did you mean dates"),
        ("text:here", "error: Malformed data SPEC 'text:here'; expected text:DIR:SRC-TGT"),
        ("dates:en", "error: The data SPEC 'dates' takes no argument. Received: 'dates:en'."),
        ("", "error: Unknown data SPEC ''."),
    ],
)
def test_unknown_spec(train, spec, message):
    assert train(data=spec).startswith(message)


def test_unknown_model(train):
    line = train(model="transformer-tiny")
    assert line.startswith("error: Unknown model 'transformer-tiny'. Did you mean transformer_tiny")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.max_step=5", "error: Unknown setting 'training.max_step'. Did you mean training.max_steps"),
        ("model.head=2", "error: Unknown option of model transformer_tiny 'head'."),
        (
            "training.max_steps=ten",
            "error: `training.max_steps` must be a positive integer. Received: max_steps='ten'.",
        ),
        ("max_steps=5", "error: --set takes SECTION.KEY=VALUE"),
        ("model.num_layers=0", "error: `model.num_layers` must be a positive integer. Received: num_layers=0."),
        ("model.num_heads=3", "error: `model_dim` must be even and a multiple of `num_heads`."),
        ("data.vocab_size=10", "error: This text needs a vocab_size of at least"),
    ],
)
def test_bad_settings(train, setting, message):
    assert message in train("--set", setting)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: --workdir"),
        (["--workdir=x"], "the following arguments are required: --model, --data, unless a --config has them"),
        (["--workdir=x", "--model=rnnsearch"], "the following arguments are required: --data, unless a --config has"),
        ("--model=rnnsearch --data=dates --workdir=x --steps=5".split(), "unrecognized arguments: --steps=5"),
        (
            "--model=m --data=d --workdir=x --dry_run --coordinator=h:1 --num_processes=2 --process_id=0".split(),
            "--dry_run is for one process",
        ),
    ],
)
def test_bad_usage_of_train(failure, argv, message):
    line = failure(training.train.main, *argv)
    assert line.startswith(f"training.train: error: {message}") and line.endswith(" (see --help)\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nmax_step = 5", "error: Unknown setting 'training.max_step'. Did you mean training.max_steps"),
        ("[training", "file.toml: Expected ']'"),
    ],
)
def test_bad_files_of_settings(train, tmp_path, text, message):
    (tmp_path / "file.toml").write_text(text)
    assert message in train("--config", tmp_path / "file.toml")


def test_a_dry_run_is_for_jax(train, tmp_path):
    line = train("--dry_run")
    assert line.startswith("error: --dry_run reads what XLA makes of a step on JAX, which KERAS_BACKEND=jax chooses; ")
    assert not (tmp_path / "run").exists()


def test_data_of_another_task(train):
    line = train(model="cnn_classifier")
    assert "error: cnn_classifier is a classifier model; text:" in line and line.endswith(":en-de is seq2seq data.\n")


@pytest.mark.parametrize("model", ["rnnsearch", "transformer_tiny", "causal_lm_tiny"])
def test_labelled_data_for_another_task(train, labelled_spec, model):
    task = "language_model" if model == "causal_lm_tiny" else "seq2seq"
    line = train(data=labelled_spec, model=model)
    assert line == f"error: {model} is a {task} model; {labelled_spec} is classifier data.\n"


def test_a_name_that_is_too_long(train, tmp_path):
    long = tmp_path / ("x" * 300)
    assert train(data=f"lines:{long}", model="lstm_lm") == f"error: {long}: File name too long\n"
    assert train("--init_from", long) == f"error: {long}/config.json: File name too long\n"


def test_more_devices_than_there_are(train):
    assert train("--set", "training.devices=99").startswith("error: training.devices=99 is more than tensorflow can")


def test_a_work_directory_that_cannot_be(train, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert train(workdir=tmp_path / "file").startswith(f"error: {tmp_path}/file cannot be a work directory (")
    assert train(workdir=tmp_path / "file" / "x").startswith(f"error: {tmp_path}/file/x cannot be a work directory (")


def test_good_data_are_trained_on_after_bad(train, folder, tmp_path, monkeypatch):
    """A failed attempt leaves nothing that would need --resume."""
    good = (folder / "val.en").read_bytes()
    spoil(folder / "val.en", 1, b"\xff")
    train()
    (folder / "val.en").write_bytes(good)
    monkeypatch.setattr("training.loop.trainer.fit", lambda *_: None)
    monkeypatch.setattr("training.loop.trainer.finish", lambda *_: {"cross_entropy": 1.0})
    argv = ["--model", "transformer_tiny", "--data", f"text:{folder}:en-de", "--workdir", tmp_path / "run"]
    assert run_quietly(training.train.main, *argv, "--set", *TRANSFORMER) == 0


@pytest.fixture
def copy(text_workdir, tmp_path):
    """A trained work directory, to be spoilt."""
    return shutil.copytree(text_workdir, tmp_path / "copy", ignore=shutil.ignore_patterns("tb", "checkpoints"))


COMMANDS = {
    "evaluate": (training.evaluate.main, []),
    "export": (saved_model.main, ["--output", "never written"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_not_a_work_directory(failure, tmp_path, command):
    main, arguments = COMMANDS[command]
    line = failure(main, tmp_path, *arguments)
    assert line == f"error: {tmp_path} is not a work directory: it has no config.json.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unfinished_run(failure, copy, command):
    main, arguments = COMMANDS[command]
    (copy / "model.keras").unlink()
    line = failure(main, copy, *arguments)
    assert line == f"error: {copy} has no model.keras: its training has not finished (see --resume).\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_spoilt_files_of_a_work_directory(failure, copy, command):
    main, arguments = COMMANDS[command]
    (copy / "model.keras").write_bytes(b"half")
    assert failure(main, copy, *arguments).startswith(f"error: {copy}/model.keras is damaged: ")
    (copy / "tokenizers" / "source.json").write_text('{"kind": "word"}')
    assert failure(main, copy, *arguments).startswith(f"error: {copy}/tokenizers/source.json is damaged: ")
    (copy / "checksums.json").unlink()  # earlier versions wrote none
    assert failure(main, copy, *arguments).startswith(f"error: {copy}/tokenizers/source.json: Unknown tokenizer 'word'")
    (copy / "config.json").write_text("{")
    assert failure(main, copy, *arguments).startswith(f"error: {copy}/config.json is not a configuration: ")


def test_a_spoilt_run_is_not_resumed(failure, copy, text_spec):
    argv = ["--model", "transformer_tiny", "--data", text_spec, "--workdir", copy, "--resume"]
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "training": {**config["training"], "max_steps": "x"}}))
    assert failure(training.train.main, *argv).startswith(f"error: {copy}/config.json: `training.max_steps` must")
    (copy / "config.json").write_text(json.dumps({"model": config["model"]}))
    assert failure(training.train.main, *argv).startswith(f"error: {copy}/config.json: data.spec is missing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "text:nowhere:en-de"], "error: nowhere: no such folder."),
        (["--data", "datse"], "error: Unknown data SPEC 'datse'. Did you mean dates"),
        (["--split", "dev"], "training.evaluate: error: argument --split: invalid choice: 'dev'"),
        (["--beam_size", "0"], "error: `beam_size` must be a positive integer"),
        (["--beam_size", "many"], "training.evaluate: error: argument --beam_size: invalid int value: 'many'"),
    ],
)
def test_bad_requests_to_evaluate(failure, text_workdir, arguments, message):
    assert failure(training.evaluate.main, text_workdir, *arguments).startswith(message)


def test_evaluation_on_bad_data(failure, text_workdir, folder):
    spoil(folder / "test.de", 2, b"\xff")
    line = failure(training.evaluate.main, text_workdir, "--data", f"text:{folder}:en-de")
    assert line.startswith(f"error: {folder}/test.de:2: invalid UTF-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--version", "0"], "error: --version must be positive. Received: 0."),
        (["--version", "new"], "export.saved_model: error: argument --version: invalid int value: 'new'"),
        (["--beam_size", "0"], "error: `beam_size` must be a positive integer. Received: beam_size=0."),
        (["--max_length", "0"], "error: `max_length` must be a positive integer. Received: max_length=0."),
    ],
)
def test_bad_requests_to_export(failure, text_workdir, tmp_path, arguments, message):
    line = failure(saved_model.main, text_workdir, "--output", tmp_path / "exported", *arguments)
    assert line.startswith(message)
    assert not (tmp_path / "exported").exists()


def test_a_base_path_that_cannot_be(failure, text_workdir, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    line = failure(saved_model.main, text_workdir, "--output", tmp_path / "file")
    assert line.startswith(f"error: {tmp_path}/file cannot hold versions (")


@pytest.mark.nightly
def test_as_a_process(folder, tmp_path):
    """The backend starts, then the data turn out to be bad: still the one line, and TensorFlow is silent."""
    spoil(folder / "test.en", 3, b"\xff")
    argv = ["--model", "rnnsearch", "--data", f"text:{folder}:en-de", "--workdir", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "training.train", *argv], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {folder}/test.en:3: invalid UTF-8") and done.stderr.count("\n") == 1
