"""Damaged work directories, and origins that are gone: what can go on does, the rest ends with one line."""

import json
import shutil

import numpy as np
import pytest
from support.tiny_runs import run_quietly

import zoo
from training.train import main
from zoo.errors import InputError


@pytest.fixture
def finished(small_run, tmp_path):
    """A copy of the run."""
    return shutil.copytree(small_run, tmp_path / "run")


@pytest.fixture
def unfinished(finished):
    """A copy that lacks what is written last."""
    for name in ("model.keras", "MODEL_CARD.md"):
        (finished / name).unlink()
    return finished


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


def change(workdir, section, **values):
    """Changes settings in the configuration of a run."""
    config = json.loads((workdir / "config.json").read_text())
    (workdir / "config.json").write_text(json.dumps({**config, section: {**config[section], **values}}))


def weights_of(workdir):
    return zoo.load(workdir).model.get_weights()


def test_what_does_not_matter(small_run, unfinished):
    """The run that it began from is gone, the last line is torn, and so is a checkpoint before the last two."""
    change(unfinished, "training", init_from="gone")
    lines = (small_run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "metrics.jsonl").write_bytes(b"".join(lines[:-1]) + b'{"final": true, "st\0\xff')
    (unfinished / "checkpoints" / "step_00000003.npz").write_bytes(b"PK")
    before = {path.name: path.stat().st_mtime for path in (unfinished / "checkpoints").glob("step_*[69].npz")}
    assert run_quietly(main, "--workdir", unfinished, "--resume") == 0
    assert log_of(unfinished) == log_of(small_run)
    assert {name: (unfinished / "checkpoints" / name).stat().st_mtime for name in before} == before, "not trained anew"
    assert "training.init_from=gone" in (unfinished / "MODEL_CARD.md").read_text()
    np.testing.assert_equal(weights_of(unfinished), weights_of(small_run))


@pytest.mark.nightly
def test_damaged_checkpoints_are_passed_over(small_run, unfinished, capsys):
    """A line of the log that was torn before its checkpoint was written is left out, and what follows is in place."""
    lines = (small_run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "metrics.jsonl").write_bytes(lines[0][:9] + b"\n" + b"".join(lines[1:]))
    halve(unfinished / "checkpoints" / "step_00000009.npz")
    assert run_quietly(main, "--workdir", unfinished, "--resume") == 0
    error = capsys.readouterr().err
    assert "step_00000009.npz is damaged; renamed to step_00000009.npz.damaged" in error
    assert "resuming from step_00000006.npz" in error
    assert log_of(unfinished) == log_of(small_run)[1:]


def test_a_damaged_model_is_written_anew(small_run, finished, capsys, subtests):
    """Also where an earlier version wrote no checksums: there the sums within the file serve."""
    model, whole = finished / "model.keras", (finished / "model.keras").read_bytes()
    for known in (True, False):
        if not known:
            (finished / "checksums.json").unlink()
        for damage in (halve, flip):
            with subtests.test(f"{damage.__name__}, {known}"):
                model.write_bytes(whole)
                damage(model)
                with pytest.raises(InputError, match=f"^{model} .*--resume"):
                    zoo.load(finished)
    assert run_quietly(main, "--workdir", finished, "--resume") == 0
    error = capsys.readouterr().err
    assert f"{model} is damaged: " in error and "It is restored from the checkpoints" in error
    assert "already trained" not in error and log_of(finished) == log_of(small_run)
    np.testing.assert_equal(weights_of(finished), weights_of(small_run))


def without_checkpoints(workdir):
    """Its model is not trained anew without a word."""
    shutil.rmtree(workdir / "checkpoints")
    flip(workdir / "model.keras")


def with_another_tokenizer(workdir):
    """As an earlier version, which wrote no checksums, may have it: other tokens would mean other weights."""
    (workdir / "checksums.json").unlink()
    tokenizer = zoo.text.WordTokenizer.train(["a small one"], vocab_size=20)
    tokenizer.save(workdir / "tokenizers" / "text")


BEYOND_REPAIR = (  # whether its model was written, what happened to it, and what is said
    (False, lambda run: [halve(path) for path in (run / "checkpoints").iterdir()], "{}/checkpoints are damaged"),
    (True, without_checkpoints, "There are no checkpoints to restore it from"),
    (False, lambda run: shutil.rmtree(run / "tokenizers"), "{}/tokenizers/text.json: "),
    (False, lambda run: flip(run / "tokenizers" / "text.model"), "{}/tokenizers/text.model is damaged"),
    (True, lambda run: flip(run / "tokenizers" / "text.model"), "{}/tokenizers/text.model is damaged"),
    (False, with_another_tokenizer, "{}/tokenizers/text.json is not the tokenizer of this model"),
    (False, lambda run: change(run, "data", classes=None), "{}/config.json is damaged"),
)


def test_what_cannot_be_resumed(small_run, tmp_path, capsys, subtests):
    for number, (is_finished, spoil, message) in enumerate(BEYOND_REPAIR):
        workdir = shutil.copytree(small_run, tmp_path / str(number))
        spoil(workdir)
        if not is_finished:
            (workdir / "model.keras").unlink()
        status, error = run_quietly(main, "--workdir", workdir, "--resume"), capsys.readouterr().err.splitlines()
        with subtests.test(message):
            assert status == 2 and len(error) <= 2
            assert error[-1].startswith("error: ") and message.format(workdir) in error[-1]


def test_an_origin_without_data_or_classes(finished, labelled_spec, tmp_path, capsys):
    argv = ["--init_from", finished, "--data", labelled_spec, "--workdir", tmp_path / "new"]
    change(finished, "data", classes=None)
    assert run_quietly(main, *argv) == 2
    assert "data.classes" in capsys.readouterr().err
    config = json.loads((finished / "config.json").read_text())
    (finished / "config.json").write_text(json.dumps({"model": config["model"]}))
    assert run_quietly(main, *argv) == 2
    assert f"{finished}/config.json: data.spec is missing." in capsys.readouterr().err
