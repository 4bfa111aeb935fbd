"""An epoch of text: what contestants read, and that ours reads the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.tiny_runs import write_text

from benchmarks import kept as keeping
from benchmarks.training import __main__ as command
from benchmarks.training import epoch, measure, ours, report
from benchmarks.training.cases import CASES
from benchmarks.training.peers import keras_turns
from benchmarks.training.peers.worker import END, PAD, START, text_batches

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The case of a small text in the tests' own folder."""
    folder = tmp_path_factory.mktemp("epoch")
    write_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoch, "FOLDER", folder / "kept")
        patch.setattr(epoch, "BATCH_TOKENS", 64)
        yield epoch.epoch_case(f"text:{folder}:en-de")


def _pairs(batches):
    """Returns the pairs of batches, each with what was asked of its target, and checks that they fit together."""
    found = []
    for source, target, outputs in batches:
        assert (target[:, 0] == START).all() and max(source.shape[1], target.shape[1]) * len(source) <= 64
        for row, following, asked in zip(source, target, outputs, strict=True):
            symbols = [*asked[asked != PAD]]
            assert symbols[-1] == END and symbols[:-1] == [*following[1 : len(symbols)]]
            assert (following[len(symbols) :] == PAD).all(), "padding comes last"
            found.append((tuple(row[row != PAD]), tuple(symbols)))
    return sorted(found)


def test_every_pair_is_there_once_and_ours_reads_the_same_ones(case):
    task = case.task_of(case.contestants[0], threads=1)
    found = _pairs(text_batches(task))
    assert len(found) == 300
    config = ours.configure(task)
    read = ours.read(task, config)
    batches = [read[index] for index in range(len(read))]
    assert _pairs((inputs["source"], inputs["target"], outputs) for inputs, outputs, _ in batches) == found
    assert sum(weights.sum() for *_, weights in batches) == case.symbols == sum(len(asked) for _, asked in found)


def test_contestants_are_those_of_a_step_that_need_no_compiler(case):
    labels = {contestant.label for contestant in case.contestants}
    steps = {contestant.label for contestant in CASES["transformer_step"].contestants}
    assert labels < steps and {"zoo, bfloat16", "OpenNMT-tf, float32", "Joey NMT, float32"} < labels
    assert not any("compile" in label or "XLA" in label for label in labels)
    task = case.task_of(case.contestants[0], threads=1, tiny=True)
    assert task["layers"] == 4 and task["vocabulary"] > 50, "sizes are those of the text"
    result = {"seconds": [12.5], "processor": [20.0], "peak": 1e9, "parameters": 7, "versions": {}}
    text = report.table(case, {"where": "a machine", "contestants": {"zoo, float32": result}, "fastest": {}})
    assert "| contestant | precision | epoch |" in text
    assert f"| 12.5 s (12.5–12.5) | 20.0 s | {case.symbols / 12.5:,.0f} |" in text
    assert "| each at its fastest precision | not yet measured | ≥ 3.0× | |" in text


class _Turns:
    """Grants two turns."""

    WARM_UP = 2

    def __init__(self):
        self.left, self.told = 2, []

    def introduce(self, parameters, packages, loss):
        self.told.append((parameters, packages, loss))

    def wait(self):
        self.left -= 1
        return self.left >= 0

    def begin(self):
        self.told.append("begun")

    def end(self, loss):
        self.told.append(loss)

    def leave(self):
        self.told.append("left")


def test_turns_are_whole_epochs_that_read_anew():
    model, turns, reads = keras.Sequential([keras.layers.Dense(1)]), _Turns(), []
    model.compile(loss="mse", run_eagerly=True)
    model.build((None, 3))
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    fit = model.fit
    model.fit = lambda *given, **options: fit(*given, callbacks=[count], **options)

    def read():
        reads.append(len(steps))
        return tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 1)))).repeat(5)

    keras_turns.train_on_text(turns, model, read, ("keras",))
    assert reads == [0, 2, 7] and len(steps) == 12, "a warm-up of two batches, then all five"
    (parameters, packages, first), *rest = turns.told
    assert (parameters, packages) == (4, ("keras",)) and first > 0
    assert rest[::2] == ["begun", "begun", "left"] and 0 < rest[3] < rest[1] < first


def test_command(case, monkeypatch, tmp_path, capsys):
    given = []
    monkeypatch.setattr(keeping, "FOLDER", tmp_path)
    monkeypatch.setattr(
        measure,
        "measure",
        lambda case, rounds, **_: (
            given.append((case.name, rounds)) or {"where": "a machine", "contestants": {}, "fastest": {}}
        ),
    )
    monkeypatch.setattr(command, "epoch_case", lambda spec: case)
    assert command.main(["--case", "epoch", "--data", "text:somewhere:en-de"]) == 0
    assert given == [("epoch", command.MOST_EPOCHS)] and "300 pairs en-de" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--case", "epoch"])
    assert "the case epoch needs --data" in capsys.readouterr().err
