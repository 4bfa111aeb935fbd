"""`export.saved_model`: versions, files, what is recorded, and what happens when an export does not end well."""

import contextlib
import errno
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask
from support.tiers import nightly_unless
from support.tiny_runs import run_quietly

from export import saved_model
from export.graph import warmup
from export.graph.provenance import read_options
from export.saved_model import export_saved_model, next_version
from zoo.errors import InputError

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "Σάββατο 4 Οκτωβρίου 1986", "۴\u200d😀 ß…"]


def test_a_base_path_that_is_read_only(labelled_workdir, tmp_path, monkeypatch, capsys):
    """Root may write anywhere, and is what tests run as in many places."""

    def refused(prefix, dir):
        raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/{prefix}abc")

    monkeypatch.setattr(saved_model.tempfile, "mkdtemp", refused)
    assert run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path} ") and "Permission denied" in error and error.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("asked", ["none", "classify, attention_all"])
def test_fewer_signatures(labelled_workdir, labelled_export, tmp_path, asked):
    version = export_saved_model(labelled_workdir, tmp_path, signatures=asked)
    model, with_all = LoadedModel(version, 1), LoadedModel(labelled_export / "1", 1)
    kept = set() if asked == "none" else set(asked.split(", "))
    assert model.signatures.keys() == {"serving_default", *kept} < with_all.signatures.keys()
    assert ask(model, text=TEXTS)["label"].tolist() == ask(with_all, text=TEXTS)["label"].tolist()
    smaller, whole = ((folder / "saved_model.pb").stat().st_size for folder in (version, labelled_export / "1"))
    assert smaller < whole


def test_signatures_that_the_model_has_not(labelled_workdir, tmp_path, capsys):
    for option in ("--signatures", "--warmup"):
        assert run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path / "x", option, "nbest") == 2
        error = capsys.readouterr().err
        assert "signature 'nbest'" in error and error.count("\n") == 1
        assert not (tmp_path / "x").exists()


@pytest.mark.nightly
def test_versions_and_beam_search(text_run, text_workdir, tmp_path, capsys):
    """The command prints the path; the next version follows the largest; answers are those of the same decoding."""
    base = tmp_path / "deep" / "base"
    (base / "7").mkdir(parents=True)
    (base / "12-old").mkdir()
    decoding = {"beam_size": 3, "length_penalty": 0.0, "max_length": 9, "coverage_penalty": 0.1, "no_repeat_ngram": 2}
    arguments = [part for name, value in decoding.items() for part in (f"--{name}", str(value))]
    assert run_quietly(saved_model.main, text_workdir, "--output", base, "--nbest", "2", *arguments) == 0
    assert capsys.readouterr().out == f"{base / '8'}\n"
    model = LoadedModel(base / "8", 8)
    answers = ask(model, text=TEXTS)["text"]
    expected = text_run.nbest(TEXTS, **decoding)
    assert [answer.decode() for answer in answers] == [best.text for best, *_ in expected]
    best = ask(model, "nbest", text=TEXTS)
    assert [[text.decode() for text in row] for row in best["texts"]] == [[b.text for b in row[:2]] for row in expected]
    np.testing.assert_allclose(best["log_probs"], [[b.log_prob for b in row[:2]] for row in expected], rtol=1e-4)
    recorded = read_options(base / "8").to_dict()
    assert {name: recorded[name] for name in (*decoding, "nbest")} == {**decoding, "nbest": 2}


def test_next_version(tmp_path):
    assert next_version(tmp_path / "none") == 1
    assert next_version(tmp_path) == 1
    for name in ("2", "10", "latest", ".tmp-99", "11a"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == 11


def test_an_existing_version_is_not_overwritten(lines_workdir, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_text("another's")
    with pytest.raises(InputError, match="1 exists already.*--version"):
        export_saved_model(lines_workdir, tmp_path, version=1)
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "another's"


@pytest.fixture
def before_the_end(monkeypatch):
    """Returns a function that sets what happens when a version is nearly complete; it holds nothing but facts."""

    def happens(function):
        monkeypatch.setattr(warmup, "write_warmup", function)

    monkeypatch.setattr(tf.saved_model, "save", lambda *_, **__: None)
    return happens


@contextlib.contextmanager
def largest_file(size):
    """Limits the size of files, in bytes, for the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check_no_room(capsys, base, status, word):
    """Checks that an export ended in one line, and left nothing behind."""
    output, error = capsys.readouterr()
    lines = [line for line in error.splitlines() if not line.startswith("tracing ")]
    assert (status, output, len(lines)) == (1, "", 1) and lines[0].startswith("error: ") and word in lines[0]
    assert list(base.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.parametrize("size", [200_000, 100])
def test_files_that_may_not_grow(lines_workdir, tmp_path, capsys, size):
    """TensorFlow reports it as its own error, at the weights or at the graph."""
    with largest_file(size):
        status = run_quietly(saved_model.main, lines_workdir, "--output", tmp_path / "base")
    check_no_room(capsys, tmp_path / "base", status, "ulimit -f")


@pytest.mark.parametrize("size", nightly_unless((100).__eq__, [0, 100, 600]))
def test_small_files_that_may_not_grow(lines_workdir, lines_export, tmp_path, capsys, monkeypatch, size):
    """Requests for the warm-up, the record, and the model card, if it is not the graph that is too large."""
    graph = lines_export / "1" / "saved_model.pb"
    monkeypatch.setattr(tf.saved_model, "save", lambda _, folder, **__: Path(folder, graph.name).symlink_to(graph))
    with largest_file(size):
        status = run_quietly(saved_model.main, lines_workdir, "--output", tmp_path / "base")
    check_no_room(capsys, tmp_path / "base", status, "ulimit -f")


def test_an_export_that_is_ended_leaves_nothing_behind(lines_workdir, tmp_path, before_the_end, capsys):
    """By an error that nobody foresaw, a full disk, or somebody who tells it to end."""
    base = tmp_path / "base"

    def fails_with(error):
        def fail(folder, *_):
            (folder / "assets.extra").mkdir()
            raise error

        return fail

    before_the_end(fails_with(OSError("broken")))
    with pytest.raises(OSError, match="broken"):
        export_saved_model(lines_workdir, base)
    assert list(base.iterdir()) == []
    before_the_end(fails_with(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    check_no_room(capsys, base, run_quietly(saved_model.main, lines_workdir, "--output", base), "no space left")
    before_the_end(lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert run_quietly(saved_model.main, lines_workdir, "--output", base) == 143
    assert list(base.iterdir()) == []


def test_two_exports_at_once(lines_workdir, tmp_path, before_the_end):
    """Another one takes the number first: the next one is free, and one that was asked for is taken."""

    def come_first(folder, *_):
        (folder.parent / "1").mkdir()
        (folder.parent / "1" / "saved_model.pb").write_text("another's")
        (folder / "assets.extra").mkdir()

    before_the_end(come_first)
    for version in (None, 1):
        base = tmp_path / str(version)
        if version is None:
            assert export_saved_model(lines_workdir, base) == base / "2"
        else:
            with pytest.raises(InputError, match="1 exists already"):
                export_saved_model(lines_workdir, base, version)
        assert (base / "1" / "saved_model.pb").read_text() == "another's"
        assert {path.name for path in base.iterdir()} == ({"1", "2"} if version is None else {"1"})


def test_only_tensorflow_exports(text_workdir, tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(InputError, match="KERAS_BACKEND=tensorflow.*jax"):
        export_saved_model(text_workdir, tmp_path)
