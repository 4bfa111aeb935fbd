"""A kind of data and a loss of one's own: one new file, which --import names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import quiet_environment
from support.tiny_runs import run_quietly

import training.evaluate
import training.train
from training.data import registry
from training.data.registry import data_formats
from training.optimization import losses

MODULE = """
from keras import ops

from training.data import Labelled, LabelledData, register_data
from training.optimization.losses import register_loss


@register_data("parity", "parity:LARGEST")
def load_parity(spec, seed):
    numbers = [str(number) for number in range(int(spec.partition(":")[2]))]
    labels = [["even", "odd"][int(number) % 2] for number in numbers]
    return LabelledData(spec=spec, tokenizer="chars", load_split=lambda name: Labelled(numbers, labels))


@register_loss("brier")
def brier(tokens, logits, label_smoothing):
    wanted = ops.one_hot(tokens, logits.shape[-1])
    return ops.sum(ops.square(ops.softmax(logits) - wanted), axis=-1)
"""
SETTINGS = (
    "model.embedding_dim=4 model.num_filters=4 model.filter_widths=1 model.dropout=0 model.word_dropout=0 "
    "training.max_steps=6 training.eval_every=3 training.batch_tokens=256 training.loss=brier"
).split()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The folder of the module, in which commands are run, and what forgets all that it has registered."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    kept = dict(data_formats()), dict(losses._LOSSES)

    def forget():
        sys.modules.pop("mine", None)
        monkeypatch.setattr(registry, "_FORMATS", dict(kept[0]))
        monkeypatch.setattr(losses, "_LOSSES", dict(kept[1]))

    forget()
    yield tmp_path, forget
    forget()


def check_run(workdir):
    first, last = [json.loads(line)["loss"] for line in (workdir / "metrics.jsonl").read_text().splitlines()[:2]]
    assert last < first <= 2.0, "a sum of squares"
    card = (workdir / "MODEL_CARD.md").read_text()
    assert "python -m training.train --import mine --model cnn_classifier --data parity:40" in card


@pytest.mark.nightly
def test_one_file_is_enough(mine, capsys):
    folder, forget = mine
    workdir = folder / "run"
    argv = ["--model", "cnn_classifier", "--data", "parity:40", "--workdir", workdir]
    assert run_quietly(training.train.main, "--import", "mine", *argv, "--set", *SETTINGS) == 0
    check_run(workdir)
    forget()
    capsys.readouterr()
    assert run_quietly(training.evaluate.main, "--import", "mine", workdir) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["data"] == "parity:40" and metrics["examples"] == 40

    # Without it, one clear line; `training.evaluate` needs no loss.
    forget()
    for main, arguments, message in (
        (training.train.main, ["--workdir", workdir, "--resume"], "Unknown loss 'brier'"),
        (training.train.main, [*argv[:-1], folder / "new"], "Unknown data SPEC 'parity'"),
        (training.evaluate.main, [workdir], "Unknown data SPEC 'parity'"),
    ):
        capsys.readouterr()
        assert run_quietly(main, *arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {message}") and "--import" in error and error.count("\n") == 1


@pytest.mark.nightly
def test_as_a_process(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    environment = quiet_environment() | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    argv = [sys.executable, "-m", "training.train", "--import", "mine", "--model", "cnn_classifier"]
    argv += ["--data", "parity:40", "--workdir", "run", "--set", *SETTINGS]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\S+ \S+ cnn_classifier on parity:40: ", done.stderr), "the frameworks are silent"
    check_run(tmp_path / "run")


def test_a_module_that_is_not_there(capsys):
    assert run_quietly(training.train.main, "--import", "nowhere", "--workdir", "x") == 2
    assert capsys.readouterr().err == "error: --import nowhere: No module named 'nowhere'.\n"
