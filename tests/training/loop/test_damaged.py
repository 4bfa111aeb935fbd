"""Damaged work directories, and origins that are gone: what can go on does, the rest ends with one line."""

import json
import re
import shutil

import numpy as np
import pytest
from support.tiny_runs import run_quietly

import zoo
from training.train import main
from zoo.errors import InputError

SHORT = (
    "training.max_steps=4 training.eval_every=2 training.batch_tokens=512 training.precision=float32 "
    "training.average_checkpoints=2"
).split()


@pytest.fixture(scope="module")
def begun(labelled_workdir, labelled_spec, tmp_path_factory):
    """The work directory of a run that began from the classifier."""
    workdir = tmp_path_factory.mktemp("runs") / "begun"
    argv = ["--init_from", labelled_workdir, "--data", labelled_spec, "--workdir", workdir, "--set", *SHORT]
    assert run_quietly(main, *argv) == 0
    return workdir


@pytest.fixture
def copy(begun, tmp_path):
    """A copy that lacks what is written last."""
    workdir = shutil.copytree(begun, tmp_path / "run")
    for name in ("model.keras", "MODEL_CARD.md"):
        (workdir / name).unlink()
    return workdir


def log_of(workdir):
    """Returns the log, without what hangs on the clock."""
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("seconds", "symbols_per_second")} for r in records]


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    """Changes a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def without_classes(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "data": {**config["data"], "classes": None}}))


def test_a_run_finishes_without_the_one_it_began_from(copy, labelled_workdir):
    """That may be moved, deleted, or named from another folder."""
    config = (copy / "config.json").read_text()
    (copy / "config.json").write_text(config.replace(str(labelled_workdir), "gone"))
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    assert "training.init_from=gone" in (copy / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize("torn", [b'{"final": true, "st', b"\0\0\0\xff"])
def test_a_torn_last_line(begun, copy, torn):
    """Also where the model was written already."""
    shutil.copy(begun / "model.keras", copy)
    whole = log_of(begun)
    lines = (begun / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:-1]) + torn)
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    assert log_of(copy) == whole


def test_a_line_that_was_torn_before_its_checkpoint_was_written(begun, copy):
    """What follows is in its place."""
    lines = (begun / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(lines[0][:9] + b"\n" + lines[1] + lines[2])
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    assert [record["step"] for record in log_of(copy)] == [4, 4]


def test_damaged_checkpoints_are_passed_over(begun, copy, capsys):
    halve(copy / "checkpoints" / "step_00000004.npz")
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    error = capsys.readouterr().err
    assert "step_00000004.npz is damaged, and kept as step_00000004.npz.damaged" in error
    assert "resuming from step_00000002.npz" in error
    assert log_of(copy)[-1] == pytest.approx(log_of(begun)[-1], rel=1e-5)


def test_a_damaged_checkpoint_before_the_last(copy):
    halve(copy / "checkpoints" / "step_00000002.npz")
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    assert (copy / "model.keras").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda copy: [halve(path) for path in (copy / "checkpoints").iterdir()],
            "error: All checkpoints in {}/checkpoints are damaged. Without these files, --resume begins the run anew.",
        ),
        (lambda copy: shutil.rmtree(copy / "tokenizers"), "error: {}/tokenizers/text.json: "),
        (without_classes, "error: {}/config.json is damaged: "),
    ],
)
def test_what_cannot_be_resumed(copy, spoil, message, capsys):
    spoil(copy)
    assert run_quietly(main, "--workdir", copy, "--resume") == 2
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith(message.format(copy)) and len(error) <= 2


def test_an_origin_without_data_or_classes(begun, copy, labelled_spec, tmp_path, capsys):
    shutil.copy(begun / "model.keras", copy)
    config = json.loads((copy / "config.json").read_text())
    argv = ["--init_from", copy, "--data", labelled_spec, "--workdir", tmp_path / "new", "--set", *SHORT]
    (copy / "config.json").write_text(json.dumps({"model": config["model"]}))
    assert run_quietly(main, *argv) == 2
    assert f"{copy}/config.json: data.spec is missing." in capsys.readouterr().err
    (copy / "config.json").write_text(json.dumps(config))
    without_classes(copy)
    assert run_quietly(main, *argv) == 2
    assert "is not the configuration of a trained classifier: it has no data.classes." in capsys.readouterr().err


@pytest.mark.parametrize("damage", [flip, halve])
@pytest.mark.parametrize("known", [True, False])
def test_a_damaged_model_is_written_anew(begun, tmp_path, damage, known, capsys):
    """Also where an earlier version wrote no checksums: there the sums within the file serve."""
    copy = shutil.copytree(begun, tmp_path / "run")
    damage(copy / "model.keras")
    if not known:
        (copy / "checksums.json").unlink()
    with pytest.raises(InputError, match=f"^{copy}/model.keras is damaged: .* --resume writes it anew"):
        zoo.load(copy)
    assert run_quietly(main, "--workdir", copy, "--resume") == 0
    error = capsys.readouterr().err
    assert f"{copy}/model.keras is damaged: " in error and "It is written anew from the checkpoints" in error
    assert "trained already" not in error and log_of(copy) == log_of(begun)
    for written, lost in zip(zoo.load(copy).model.weights, zoo.load(begun).model.weights, strict=True):
        np.testing.assert_array_equal(written, lost)


def test_a_damaged_model_without_checkpoints(begun, tmp_path, capsys):
    """It is not trained anew without a word."""
    copy = shutil.copytree(begun, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    flip(copy / "model.keras")
    assert run_quietly(main, "--workdir", copy, "--resume") == 2
    assert capsys.readouterr().err.endswith("There are no checkpoints to write it anew from.\n")


@pytest.mark.parametrize("finished", [True, False])
def test_a_damaged_tokenizer(begun, copy, finished, capsys):
    """Other symbols would mean other weights."""
    if finished:
        shutil.copy(begun / "model.keras", copy)
    flip(copy / "tokenizers" / "text.model")
    assert run_quietly(main, "--workdir", copy, "--resume") == 2
    line = f"error: {copy}/tokenizers/text.model is damaged: its SHA-256 sum is another than in checksums.json.\n"
    assert capsys.readouterr().err.splitlines(keepends=True)[-1] == line


def test_a_tokenizer_of_another_size(copy, lines_workdir, capsys):
    """As an earlier version, which wrote no checksums, may have it."""
    (copy / "checksums.json").unlink()
    for path in (lines_workdir / "tokenizers").iterdir():
        shutil.copy(path, copy / "tokenizers")
    assert run_quietly(main, "--workdir", copy, "--resume") == 2
    assert re.search(
        "tokenizers/text.json is not the tokenizer of this model: it has [0-9]+ symbols, and the model reads [0-9]+",
        capsys.readouterr().err.splitlines()[-1],
    )
