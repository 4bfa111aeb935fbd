"""Callbacks of the user: what they get, and what is no callback."""

import json
import sys

import pytest
from support.tiny_runs import CONVOLUTIONS, train

MODULE = """
import json
import keras


class Noting(keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path, self.notes, self.batches = path, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.notes.append([epoch, dict(logs), self.model.count_params()])

    def on_train_end(self, logs=None):
        text = json.dumps({"batches": self.batches, "epochs": self.notes})
        (self.path.parent / "noted.json").write_text(text)


def noting(path):
    return [Noting(path)]


def nothing(path):
    return None
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_callbacks.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield "my_callbacks"
    sys.modules.pop("my_callbacks", None)


SETTINGS = [*CONVOLUTIONS, "training.max_steps=4", "training.eval_every=2", "training.accumulate_steps=1"]


@pytest.mark.nightly
def test_a_callback_of_the_user_gets_numbers(module, labelled_spec, tmp_path):
    words = ("--callback", f"{module}:noting", "--set", *SETTINGS)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", *words) == 0
    noted = json.loads((tmp_path / "noted.json").read_text())
    assert len(noted["batches"]) == 4 and all(isinstance(loss, float) for loss in noted["batches"])
    assert [epoch for epoch, _, _ in noted["epochs"]] == [0, 1]
    assert all({"loss", "val_cross_entropy"} <= logs.keys() and weights > 0 for _, logs, weights in noted["epochs"])


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("my_callbacks", ["MODULE:FUNCTION", "'my_callbacks'"]),
        ("nowhere:f", ["nowhere"]),
        ("my_callbacks:none", ["my_callbacks", "'none'"]),
        ("my_callbacks:nothing", ["my_callbacks:nothing", "None"]),
    ],
)
def test_what_is_no_callback_is_one_line(module, labelled_spec, tmp_path, capsys, reference, words):
    arguments = ("--callback", reference, "--set", *SETTINGS)
    assert train("cnn_classifier", labelled_spec, tmp_path / "run", *arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in ["--callback", *words])
    assert not (tmp_path / "run").exists()
