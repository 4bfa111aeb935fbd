"""Models of a program as work directories."""

import keras
import numpy as np
import pytest
from support.tiny_runs import run_quietly

import zoo
from export import saved_model
from training import evaluate
from zoo.errors import InputError
from zoo.text import WordTokenizer

SIZES = {"model_dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
TEXTS = ["good film", "bad film", "good", "bad"] * 4
TOKENIZER = WordTokenizer.train(TEXTS, vocab_size=7)


@pytest.fixture(scope="module")
def models():
    sizes = {"source_vocab_size": TOKENIZER.vocab_size, "target_vocab_size": TOKENIZER.vocab_size, **SIZES}
    return {
        "classifier": zoo.create_model(
            "transformer_classifier", vocab_size=TOKENIZER.vocab_size, num_classes=2, dropout=0.0, **SIZES
        ),
        "translator": zoo.create_model("transformer_tiny", **sizes),
        "language_model": zoo.create_model("causal_lm_tiny", vocab_size=TOKENIZER.vocab_size, **SIZES),
    }


@pytest.mark.nightly
def test_what_fit_has_trained_is_loaded_and_evaluated(models, tmp_path, capsys):
    model = models["classifier"]
    ids = np.array([[*row, 2, 0][:3] for row in TOKENIZER.encode(TEXTS)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1), loss, run_eagerly=True)  # tracing takes seconds
    model.fit(ids, np.array([1, 0, 1, 0] * 4), epochs=12, verbose=0)
    run = zoo.save_run(tmp_path / "run", model, TOKENIZER, classes=["no", "yes"])
    for same in (run, zoo.load(tmp_path / "run")):
        assert [answer.label for answer in same.classify(["good film", "bad"])] == ["yes", "no"]
    with pytest.raises(AttributeError, match="transformer_classifier has no `translate`.*classify"):
        run.translate(["good"])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = run.nothing
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        (tmp_path / "data" / f"{split}.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\nbad film\tno\n")
    arguments = [str(tmp_path / "run"), "--data", f"tsv:{tmp_path / 'data'}", "--split", "test"]
    assert run_quietly(evaluate.main, *arguments) == 0 and '"accuracy": 1.0' in capsys.readouterr().out


@pytest.mark.nightly
def test_it_is_exported(models, tmp_path):
    zoo.save_run(tmp_path / "run", models["classifier"], TOKENIZER, classes=["no", "yes"])
    assert run_quietly(saved_model.main, tmp_path / "run", "--output", tmp_path / "exported") == 0
    assert (tmp_path / "exported" / "1" / "saved_model.pb").exists()


@pytest.mark.nightly
def test_each_task_is_saved(models, tmp_path):
    for name, tokenizers in (("translator", [TOKENIZER, TOKENIZER]), ("language_model", TOKENIZER)):
        zoo.save_run(tmp_path / name, models[name], tokenizers)
        run = zoo.load(tmp_path / name)
        assert run.spec.name == {"translator": "transformer_tiny", "language_model": "causal_lm_tiny"}[name]
        for variable, expected in zip(run.model.weights, models[name].weights, strict=True):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), keras.ops.convert_to_numpy(expected))


def test_what_does_not_fit_is_refused_and_leaves_nothing(models, tmp_path, subtests):
    other = WordTokenizer.train(["one two three"] * 3, vocab_size=6)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    wrong = {
        "`model`": ("run", keras.Sequential(), TOKENIZER, None),
        "`tokenizers`": ("run", models["translator"], TOKENIZER, None),
        "WordTokenizer.train": ("run", models["language_model"], keras.layers.TextVectorization(), None),
        f"{other.vocab_size} tokens": ("run", models["language_model"], other, None),
        "'one'": ("run", models["classifier"], TOKENIZER, ["one", "one"]),
        "`classes`": ("run", models["language_model"], TOKENIZER, ["one"]),
        "full exists": ("full", models["language_model"], TOKENIZER, None),
    }
    for word, (folder, *arguments) in wrong.items():
        with subtests.test(word), pytest.raises(InputError, match=word):
            zoo.save_run(tmp_path / folder, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
