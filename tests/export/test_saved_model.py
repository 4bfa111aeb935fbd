"""`export.saved_model`: versions, files, what is recorded, and what happens when an export does not end well."""

import errno
import json
import os
import resource
import signal
import stat
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask
from support.tiny_runs import run_quietly

from export import saved_model
from export.graph import warmup
from export.graph.provenance import read_options
from export.saved_model import export_saved_model, next_version
from zoo.errors import InputError

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "Σάββατο 4 Οκτωβρίου 1986", "۴\u200d😀 ß…"]
OF_EVERY_TASK = {
    "weights": "float32",
    "dynamic_batching": False,
    "num_batch_threads": 2,
    "xla": False,
    "signatures": "all",
}
SEARCH = {"rules": "gnmt", "length_penalty": 0.6, "coverage_penalty": 0.0, "max_length": 256, "no_repeat_ngram": 0}

DEFAULTS = {**OF_EVERY_TASK, **SEARCH, "beam_size": 1, "nbest": 5, "shortlist": 0, "rerank": "none"}


def test_a_base_path_that_is_read_only(labelled_workdir, tmp_path, monkeypatch, capsys):
    """Root may write anywhere, and is what tests run as in many places."""

    def refused(prefix, dir):
        raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/{prefix}abc")

    monkeypatch.setattr(saved_model.tempfile, "mkdtemp", refused)
    assert run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} cannot hold versions (Permission denied).\n"


@pytest.mark.parametrize("task", ["text", "dates"])
def test_files_and_modes(task, request):
    path = request.getfixturevalue(f"{task}_export") / "1"
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert {"saved_model.pb", "variables/variables.index", "assets.extra/tf_serving_warmup_requests"} <= names
    assert [folder.name for folder in path.parent.iterdir()] == ["1"], "nothing half-written is left"
    assert all(file.stat().st_mode & stat.S_IROTH for file in [path, *path.rglob("*")])


@pytest.mark.parametrize(
    ("asked", "kept"),
    [pytest.param("none", set(), marks=pytest.mark.nightly), ("classify, attention_all", {"classify", "attention_all"})],
)
def test_fewer_signatures(labelled_workdir, labelled_export, tmp_path, asked, kept):
    version = export_saved_model(labelled_workdir, tmp_path, signatures=asked)
    model, with_all = LoadedModel(version, 1), LoadedModel(labelled_export / "1", 1)
    assert model.signatures.keys() == {"serving_default", *kept} < with_all.signatures.keys()
    assert ask(model, text=TEXTS)["label"].tolist() == ask(with_all, text=TEXTS)["label"].tolist()
    smaller, whole = ((folder / "saved_model.pb").stat().st_size for folder in (version, labelled_export / "1"))
    assert smaller < whole


def test_signatures_that_the_model_has_not(labelled_workdir, tmp_path, capsys):
    assert run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path / "x", "--signatures", "nbest") == 2
    assert "error: Unknown signature 'nbest'." in capsys.readouterr().err
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
    assert read_options(base / "8").to_dict() == {**DEFAULTS, **decoding, "nbest": 2}


def test_what_was_left_to_its_default_is_recorded_too(text_export, labelled_export, lines_export, lines_run):
    assert read_options(text_export / "1").to_dict() == DEFAULTS
    assert read_options(labelled_export / "1").to_dict() == OF_EVERY_TASK
    of_lines = {**OF_EVERY_TASK, "max_length": lines_run.model.max_length, "no_repeat_ngram": 0}
    assert read_options(lines_export / "1").to_dict() == of_lines
    facts = json.loads((text_export / "1" / "assets.extra" / "attention_zoo.json").read_text())
    assert facts["model"]["name"] == "transformer_tiny"


def test_next_version(tmp_path):
    assert next_version(tmp_path / "none") == 1
    assert next_version(tmp_path) == 1
    for name in ("2", "10", "latest", ".tmp-99", "11a"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == 11


def test_an_existing_version_is_not_overwritten(text_workdir, text_export):
    before = (text_export / "1" / "saved_model.pb").stat().st_mtime_ns
    with pytest.raises(InputError, match="1 exists already; versions are never overwritten. Leave out --version"):
        export_saved_model(text_workdir, text_export, version=1)
    assert (text_export / "1" / "saved_model.pb").stat().st_mtime_ns == before


@pytest.fixture
def before_the_end(monkeypatch):
    """Returns a function that sets what happens when a version is nearly complete; it holds nothing but facts."""

    def happens(function):
        monkeypatch.setattr(warmup, "write_warmup", function)

    monkeypatch.setattr(tf.saved_model, "save", lambda *_, **__: None)
    return happens


def test_a_failure_leaves_nothing_behind(text_workdir, tmp_path, before_the_end):
    def fail(folder, *_):
        (folder / "assets.extra").mkdir()
        raise OSError("disk full")

    before_the_end(fail)
    with pytest.raises(OSError, match="disk full"):
        export_saved_model(text_workdir, tmp_path / "base")
    assert list((tmp_path / "base").iterdir()) == []


@pytest.fixture
def largest_file():
    """Returns a function that limits the size of files, in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = "error: a file is larger than is allowed here (see ulimit -f)\n"


@pytest.mark.parametrize("size", [200_000, pytest.param(100, marks=pytest.mark.nightly)])
def test_files_that_may_not_grow(lines_workdir, tmp_path, largest_file, capsys, size):
    """TensorFlow reports it as its own error, at the weights or at the graph."""
    largest_file(size)
    assert run_quietly(saved_model.main, lines_workdir, "--output", tmp_path / "base") == 1
    assert capsys.readouterr() == ("", FULL)
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.parametrize("size", [100, *(pytest.param(size, marks=pytest.mark.nightly) for size in (0, 600))])
def test_small_files_that_may_not_grow(lines_workdir, exported, tmp_path, largest_file, capsys, monkeypatch, size):
    """Requests for the warm-up, the record, and the model card, if it is not the graph that is too large."""
    graph = exported(lines_workdir) / "1" / "saved_model.pb"
    monkeypatch.setattr(tf.saved_model, "save", lambda _, folder, **__: Path(folder, graph.name).symlink_to(graph))
    largest_file(size)
    assert run_quietly(saved_model.main, lines_workdir, "--output", tmp_path / "base") == 1
    assert capsys.readouterr() == ("", FULL)
    assert list((tmp_path / "base").iterdir()) == []


def test_a_full_disk(lines_workdir, tmp_path, before_the_end, capsys):
    def fail(folder, *_):
        (folder / "assets.extra").mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before_the_end(fail)
    assert run_quietly(saved_model.main, lines_workdir, "--output", tmp_path / "base") == 1
    assert capsys.readouterr() == ("", "error: no space left on the disk\n")
    assert list((tmp_path / "base").iterdir()) == []


def test_being_told_to_end_leaves_nothing_behind(text_workdir, tmp_path, before_the_end):
    before_the_end(lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "base") == 143
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.parametrize("version", [None, 1])
def test_two_exports_at_once(text_workdir, tmp_path, before_the_end, version):
    """Another one takes the number first."""

    def come_first(folder, *_):
        (folder.parent / "1").mkdir()
        (folder.parent / "1" / "saved_model.pb").write_text("another's")
        (folder / "assets.extra").mkdir()

    before_the_end(come_first)
    if version is None:
        assert export_saved_model(text_workdir, tmp_path) == tmp_path / "2"
    else:
        with pytest.raises(InputError, match="1 exists already; versions are never overwritten"):
            export_saved_model(text_workdir, tmp_path, version)
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "another's"
    assert {path.name for path in tmp_path.iterdir()} == ({"1", "2"} if version is None else {"1"})


def test_only_tensorflow_exports(text_workdir, tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(InputError, match="Export needs KERAS_BACKEND=tensorflow. Received: jax."):
        export_saved_model(text_workdir, tmp_path)
