"""GPT-2: logits, ids and text are those of the reference, whatever way they are computed."""

import json

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import near, padded

import zoo
from training.import_model import main
from zoo.vocabulary import END, PAD, START

EXPECTED = checkpoints.expected("gpt2")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("imported") / "gpt2"
    main([f"hf:{checkpoints.FIXTURES / 'gpt2'}", "--workdir", str(path)])
    return path


@pytest.fixture(scope="module")
def run(workdir):
    return zoo.load(workdir)


def in_its_order(run, logits):
    """Returns logits in the order of the reference's ids."""
    ids = run.tokenizers.text.original_ids
    return np.asarray(logits)[..., [ids.index(i) for i in range(max(ids) + 1)]]


def test_ids_and_logits_are_those_of_the_reference_alone_with_padding_and_step_by_step(run):
    original, rows = run.tokenizers.text.original_ids, run.ids(EXPECTED["prompts"])
    assert [[original[i] for i in row] for row in rows] == EXPECTED["ids"]
    assert original[PAD] == -1 and original[START] == original[END] == 0
    assert sorted(original) == [-1, 0, *range(max(original) + 1)]
    together = run.model({"tokens": padded(rows)})
    for row, found, expected in zip(rows, together, EXPECTED["logits"], strict=True):
        assert near(in_its_order(run, found[: len(row)]), expected)
    row, expected, state = rows[2], EXPECTED["logits"][2], run.model.initial_state(1)
    assert near(in_its_order(run, run.model({"tokens": np.array([row], "int32")})[0]), expected)
    for token, values in zip(row, expected, strict=True):
        logits, state = run.model.decode_step(np.array([token], "int32"), state)
        assert near(in_its_order(run, logits[0]), values)


def test_scores_and_what_is_inside_begin_with_the_first_token(run):
    logits = np.array(EXPECTED["logits"][2])
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    log_prob = sum(logs[place, token] for place, token in enumerate(EXPECTED["ids"][2][1:]))
    score, empty = run.score([EXPECTED["prompts"][2], ""])
    assert score.log_prob == pytest.approx(log_prob, abs=1e-4) and score.num_tokens == len(EXPECTED["ids"][2])
    assert empty.log_prob == 0
    assert run.ids(["", "a man"])[0] == [START]
    tokens, weights = run.attention(["a man"])[0]
    assert tokens == ["a", "▁man"] and weights.shape == (2, 3, 2, 2)
    assert run.embed(["a man"])[0][1].shape == (2, 6)


@pytest.mark.nightly
def test_text_goes_on_as_with_the_reference(run):
    # In any company, an empty text and one token alone included.
    mixed = ["", *EXPECTED["prompts"], "a"]
    assert run.generate(mixed, max_length=23)[1:5] == EXPECTED["continuations"]


@pytest.mark.nightly
def test_cold_draws_are_the_most_probable_text(run):
    assert run.generate(EXPECTED["prompts"], max_length=23) == EXPECTED["continuations"]
    assert run.generate(EXPECTED["prompts"], max_length=23, temperature=1e-3, seed=3) == EXPECTED["continuations"]
    assert run.generate(["the"], max_length=1) == [""]


def test_the_work_directory_says_where_it_comes_from(workdir):
    card = (workdir / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Licence of the weights: not stated in the checkpoint" in card
    assert f"hf:{checkpoints.FIXTURES / 'gpt2'}" in card and "SHA-256 `" in card
    config = json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["activation"] == "gelu_tanh" and config["model"]["start_symbol"] is False
    assert sorted(path.name for path in workdir.parent.iterdir()) == ["gpt2"]


@pytest.mark.nightly
def test_it_is_fine_tuned_exported_and_served_like_others(workdir, tmp_path, capsys):
    import tensorflow as tf

    import export.saved_model
    import training.evaluate
    import training.train

    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.txt").write_text("the old man rides a horse\n" * 40, encoding="utf-8")
    data = f"lines:{tmp_path}"
    settings = ["training.max_steps=20", "training.warmup_steps=1", "training.learning_rate=0.01"]
    settings += ["training.eval_every=10", "data.max_length=13"]
    arguments = ["--init_from", str(workdir), "--data", data, "--workdir", str(tmp_path / "tuned")]
    training.train.main([*arguments, "--set", *settings])
    capsys.readouterr()
    losses = []
    for path in (workdir, tmp_path / "tuned"):
        training.evaluate.main([str(path), "--data", data])
        losses.append(json.loads(capsys.readouterr().out)["cross_entropy"])
    assert losses[1] < losses[0]
    export.saved_model.main([str(workdir), "--output", str(tmp_path / "served"), "--max_length", "23", "--check"])
    signature = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    texts = signature(text=tf.constant(EXPECTED["prompts"]))["text"].numpy()
    assert [text.decode() for text in texts] == EXPECTED["continuations"]
