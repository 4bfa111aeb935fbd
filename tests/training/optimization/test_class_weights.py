"""Classes that count differently: the loss by its formula, and a rare class that is found."""

import json
import shutil

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny_runs import CLASSIFIER, train

import zoo
from training.optimization.class_weights import weigh_classes
from training.optimization.cross_entropy import MeanOverTokens, cross_entropy

B, C, SMOOTHING = 5, 3, 0.1
WEIGHTS = (0.5, 2.0, 7.0)


def test_the_loss_of_training_alone_is_weighted():
    chance = np.random.default_rng(0)
    logits, classes = chance.normal(size=(B, C)).astype("float32"), np.array([0, 2, 1, 1, 0], "int32")
    real = np.array([1, 1, 1, 1, 0], "float32")  # the last row only fills up the batch
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(C)])
    model.compile(loss=MeanOverTokens(label_smoothing=SMOOTHING), jit_compile=False)
    weigh_classes(model, cross_entropy, SMOOTHING, WEIGHTS)

    def loss(training):
        return float(ops.convert_to_numpy(model.compute_loss(None, classes, logits, real, training=training)))

    each = ops.convert_to_numpy(cross_entropy(classes, logits, SMOOTHING)) * real
    assert loss(training=False) == pytest.approx(each.sum() / 4, rel=1e-5)
    assert loss(training=True) == pytest.approx((each * np.take(WEIGHTS, classes)).sum() / 4, rel=1e-5)


def write_imbalanced(folder):
    """Writes texts with "rain", of which three in ten are rare, and as many without, and returns the SPEC."""
    folder.mkdir()
    for split, size in (("train", 200), ("val", 40), ("test", 40)):
        rows = [
            f"rain {n % 3}\t{'rare' if n % 10 in (0, 4, 8) else 'usual'}\nsun {n % 3}\tusual\n" for n in range(size)
        ]
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    return f"tsv:{folder}"


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """A SPEC, settings, and the work directory of a run with balanced classes; the settings do not say so."""
    folder = tmp_path_factory.mktemp("balanced")
    spec = write_imbalanced(folder / "data")
    words = ["--set", *CLASSIFIER, "training.max_steps=24", "training.eval_every=12"]
    more = ["training.accumulate_steps=2", "training.consistency=rdrop", "model.dropout=0.1"]
    words_of_run = [*words, *more, "training.class_weights=balanced"]
    assert train("self_attention_classifier", spec, folder / "run", *words_of_run) == 0
    return spec, words, folder / "run"


@pytest.mark.nightly
def test_a_rare_class_is_found(balanced, tmp_path):
    spec, words, run = balanced
    assert train("self_attention_classifier", spec, tmp_path / "equal", *words) == 0
    answers = {"equal": ["usual", "usual"], "run": ["rare", "usual"]}
    for path in (tmp_path / "equal", run):
        found = [answer.label for answer in zoo.load(path).classify(["rain 1", "sun 1"])]
        assert found == answers[path.name]
    assert json.loads((run / "config.json").read_text())["training"]["class_weights"] == "balanced"
    card = (run / "MODEL_CARD.md").read_text()
    # n / (C · n_c) of 400 texts, of which 60 are rare.
    assert f"rare {400 / (2 * 60):.4g}, usual {400 / (2 * 340):.4g}" in card
    assert "training.class_weights=balanced" in card


@pytest.mark.nightly
def test_a_resumed_run_has_the_weights_that_it_is_given(balanced, tmp_path, capsys):
    spec, _, run = balanced
    shutil.copytree(run, tmp_path / "run")
    for folder, words in ((tmp_path / "new", []), (tmp_path / "run", ["--resume"])):
        words = [*words, "--set", "training.max_steps=36", "training.class_weights=rar=2"]
        assert train("self_attention_classifier", spec, folder, *words) == 2
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert "training.class_weights" in line and "'rar'" in line
    assert not (tmp_path / "new/config.json").exists()
    words = ["--resume", "--set", "training.max_steps=36", "training.class_weights=rare=2"]
    assert train("self_attention_classifier", spec, tmp_path / "run", *words) == 0
    assert "rare 2, usual 1" in (tmp_path / "run/MODEL_CARD.md").read_text()
