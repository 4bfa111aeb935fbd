"""The commands on bad input: exit status 2, one clear line on standard error, nothing on standard output."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from support.processes import quiet_environment
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


def empty(folder, split):
    for language in ("en", "de"):
        (folder / f"{split}.{language}").write_bytes(b"")


BAD_TEXT = (  # what is done to a split, and what is said of it
    (lambda folder, split: spoil(folder / f"{split}.de", 4 if split != "train" else 7, b"noch\n"), ".de:{}: .*unequal"),
    (lambda folder, split: spoil(folder / f"{split}.en", 2, b"caf\xe9"), r".en:2: invalid UTF-8 \(byte 0xe9\)"),
    (empty, ".en:1: empty file"),
    (lambda folder, split: spoil(folder / f"{split}.de", 3, b"  "), ".de:3: blank line, but {}.en has text there"),
    (lambda folder, split: (folder / f"{split}.de").unlink(), ".de: no such file"),
)


def test_bad_text(train, tmp_path, subtests):
    """In any split: it is read before training begins."""
    for number, (harm, message) in enumerate(BAD_TEXT):
        for split in ("train", "val", "test"):
            folder = tmp_path / f"{number} {split}"
            write_text(folder, sizes=(6, 3, 3))
            harm(folder, split)
            with subtests.test(f"{split}{message}"):
                value = (7 if split == "train" else 4) if "unequal" in message else split
                line = train(data=f"text:{folder}:en-de")
                assert re.match(f"error: {re.escape(str(folder))}/{split}{message.format(value)}", line), line


def test_bad_specs_and_models(train, labelled_spec, tmp_path, subtests):
    elsewhere, long = tmp_path / "elsewhere", tmp_path / ("x" * 300)
    for options, message in (
        ({"data": f"text:{elsewhere}:en-de"}, f"error: {elsewhere}: no such folder."),
        ({"data": "dats"}, "error: Unknown data SPEC 'dats'. Did you mean dates"),
        ({"data": "text:here"}, "error: Malformed data SPEC 'text:here'; expected text:DIR:SRC-TGT"),
        ({"data": "dates:en"}, "error: The data SPEC 'dates' takes no argument. Received: 'dates:en'."),
        ({"data": ""}, "error: Unknown data SPEC ''."),
        ({"data": f"lines:{long}", "model": "lstm_lm"}, f"error: {long}: File name too long"),
        ({"model": "transformer-tiny"}, "error: Unknown model 'transformer-tiny'. Did you mean transformer_tiny"),
        ({"model": "cnn_classifier"}, "error: cnn_classifier is a classifier model; text:"),
        ({"data": labelled_spec}, f"error: transformer_tiny is a seq2seq model; {labelled_spec} is classifier data."),
        (
            {"data": labelled_spec, "model": "causal_lm_tiny"},
            f"error: causal_lm_tiny is a language_model model; {labelled_spec} is classifier data.",
        ),
    ):
        with subtests.test(message):
            assert train(**options).startswith(message)


def test_bad_arguments_and_settings(train, failure, tmp_path, subtests):
    (tmp_path / "file.toml").write_text("[training]\nmax_step = 5")
    (tmp_path / "torn.toml").write_text("[training")
    long = tmp_path / ("x" * 300)
    for arguments, message in (
        (["--set", "training.max_step=5"], "Unknown setting 'training.max_step'. Did you mean training.max_steps"),
        (["--set", "model.head=2"], "Unknown option of model transformer_tiny 'head'."),
        (["--set", "training.max_steps=ten"], "max_steps='ten'."),
        (["--set", "max_steps=5"], "--set takes SECTION.KEY=VALUE"),
        (["--set", "model.num_layers=0"], "num_layers=0."),
        (["--set", "model.num_heads=3"], "`num_heads`"),
        (["--set", "data.vocab_size=10"], "vocab_size of at least"),
        (["--set", "training.devices=99"], "training.devices=99 exceeds"),
        (["--config", tmp_path / "file.toml"], "Unknown setting 'training.max_step'. Did you mean training.max_steps"),
        (["--config", tmp_path / "torn.toml"], "torn.toml: Expected ']'"),
        (["--init_from", long], f"{long}/config.json: File name too long"),
        (["--dry_run"], "--dry_run compiles a step by XLA on JAX"),
    ):
        with subtests.test(f"{arguments}"):
            line = train(*arguments)
            assert line.startswith("error: ") and message in line
    for argv, message in (
        ("", "the following arguments are required: --workdir"),
        ("--workdir=x", "the following arguments are required: --model, --data, unless a --config has them"),
        ("--workdir=x --model=rnnsearch", "the following arguments are required: --data, unless a --config has"),
        ("--model=rnnsearch --data=dates --workdir=x --steps=5", "unrecognized arguments: --steps=5"),
        (
            "--model=m --data=d --workdir=x --dry_run --coordinator=h:1 --num_processes=2 --process_id=0",
            "--dry_run is for one process",
        ),
    ):
        with subtests.test(argv):
            line = failure(training.train.main, *argv.split())
            assert line.startswith(f"training.train: error: {message}") and line.endswith(" (see --help)\n")


def test_a_work_directory_that_cannot_be(train, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        assert train(workdir=path).startswith(f"error: {path} ")


@pytest.mark.nightly
def test_good_data_are_trained_on_after_bad(train, folder, tmp_path, monkeypatch):
    """A failed attempt leaves nothing that would need --resume."""
    good = (folder / "val.en").read_bytes()
    spoil(folder / "val.en", 1, b"\xff")
    train()
    (folder / "val.en").write_bytes(good)
    monkeypatch.setattr("training.loop.trainer.fit", lambda *_: None)
    monkeypatch.setattr("training.loop.trainer.set_final_weights", lambda *_: {"cross_entropy": 1.0})
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
def test_what_is_no_work_directory(failure, copy, tmp_path, command):
    """Or none of a finished run, or has spoilt files."""
    main, arguments = COMMANDS[command]

    def said(path=copy):
        return failure(main, path, *arguments)

    (tmp_path / "none").mkdir()
    assert re.fullmatch(f"error: {tmp_path}/none .*config.json.*\n", said(tmp_path / "none"))
    model = copy / "model.keras"
    model.write_bytes(b"half")
    assert said().startswith(f"error: {model} is damaged: ")
    model.unlink()
    assert said().startswith(f"error: {copy} has no model.keras")
    model.write_bytes(b"half")
    (copy / "tokenizers" / "source.json").write_text('{"kind": "word"}')
    assert said().startswith(f"error: {copy}/tokenizers/source.json is damaged: ")
    (copy / "checksums.json").unlink()  # earlier versions wrote none
    assert said().startswith(f"error: {copy}/tokenizers/source.json: Unknown tokenizer 'word'")
    (copy / "config.json").write_text("{")
    assert said().startswith(f"error: {copy}/config.json ")


def test_a_spoilt_run_is_not_resumed(failure, copy, text_spec):
    argv = ["--model", "transformer_tiny", "--data", text_spec, "--workdir", copy, "--resume"]
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "training": {**config["training"], "max_steps": "x"}}))
    assert failure(training.train.main, *argv).startswith(f"error: {copy}/config.json: `training.max_steps` must")
    (copy / "config.json").write_text(json.dumps({"model": config["model"]}))
    assert failure(training.train.main, *argv).startswith(f"error: {copy}/config.json: data.spec is missing")


def test_bad_requests_to_evaluate(failure, text_workdir, folder, subtests):
    spoil(folder / "test.de", 2, b"\xff")
    for arguments, message in (
        (["--data", "text:nowhere:en-de"], "error: nowhere: no such folder."),
        (["--data", "datse"], "error: Unknown data SPEC 'datse'. Did you mean dates"),
        (["--data", f"text:{folder}:en-de"], f"error: {folder}/test.de:2: invalid UTF-8"),
        (["--split", "dev"], "training.evaluate: error: argument --split: invalid choice: 'dev'"),
        (["--beam_size", "0"], "error: `beam_size` must be a positive integer"),
        (["--beam_size", "many"], "training.evaluate: error: argument --beam_size: invalid int value: 'many'"),
    ):
        with subtests.test(message):
            assert failure(training.evaluate.main, text_workdir, *arguments).startswith(message)


def test_bad_requests_to_export(failure, text_workdir, tmp_path, subtests):
    (tmp_path / "file").write_text("not a folder")
    for arguments, message in (
        (["--version", "0"], "error: --version must be positive. Received: 0."),
        (["--version", "new"], "export.saved_model: error: argument --version: invalid int value: 'new'"),
        (["--beam_size", "0"], "error: `beam_size` must be a positive integer. Received: beam_size=0."),
        (["--max_length", "0"], "error: `max_length` must be a positive integer. Received: max_length=0."),
        (["--output", tmp_path / "file"], f"error: {tmp_path}/file "),
    ):
        with subtests.test(message):
            line = failure(saved_model.main, text_workdir, "--output", tmp_path / "exported", *arguments)
            assert line.startswith(message)
            assert not (tmp_path / "exported").exists()


@pytest.mark.nightly
def test_as_a_process(folder, tmp_path):
    """The backend starts, then the data turn out to be bad: still the one line, and TensorFlow is silent."""
    spoil(folder / "test.en", 3, b"\xff")
    argv = ["--model", "rnnsearch", "--data", f"text:{folder}:en-de", "--workdir", str(tmp_path / "run")]
    command = [sys.executable, "-m", "training.train", *argv]
    done = subprocess.run(command, env=quiet_environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {folder}/test.en:3: invalid UTF-8") and done.stderr.count("\n") == 1
