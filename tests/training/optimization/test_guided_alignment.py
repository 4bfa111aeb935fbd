"""Guided alignment: its formula, and that it teaches the attention."""

import json
import math

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from training.optimization.cross_entropy import MeanOverTokens
from training.optimization.guided_alignment import alignment_loss, guide
from training.train import main
from zoo.errors import InputError


def test_by_hand():
    attention = np.array([[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]], "float32")
    alignment = np.array([[[1, 1, 0], [0, 0, 0], [0, 1, 0]]], "int32")
    first = -(0.5 * math.log(0.5) + 0.5 * math.log(0.25))  # the second token belongs to none, the third is padding
    found = alignment_loss(attention, alignment, np.array([[1.0, 1.0, 0.0]], "float32"))
    assert float(ops.convert_to_numpy(found)) == pytest.approx(first / 2, rel=1e-4)
    assert float(ops.convert_to_numpy(alignment_loss(attention, alignment, np.zeros((1, 3))))) == 0.0


def problem(name, **options):
    """Returns a model, and inputs, outputs and weights of a problem in which the last token comes first."""
    keras.utils.set_random_seed(3)
    model = zoo.create_model(name, source_vocab_size=13, target_vocab_size=13, dropout=0.0, **options)
    model.compile(loss=MeanOverTokens(), optimizer=keras.optimizers.Adam(0.02), jit_compile=False)
    chance = np.random.default_rng(0)
    source = np.stack([chance.permutation(np.arange(4, 13))[:5] for _ in range(16)]).astype("int32")
    target = np.concatenate([np.full((16, 1), 1), source[:, :0:-1]], axis=1).astype("int32")
    alignment = np.broadcast_to(np.eye(5, dtype="int32")[::-1], (16, 5, 5))
    inputs = {"source": source, "target": target, "alignment": alignment}
    return model, (inputs, source[:, ::-1], np.ones((16, 5), "float32"))


def aligned(model, inputs, weights):
    """Returns the loss of the last layer's attention."""
    attention = ops.mean(model.attention(inputs["source"], inputs["target"])[:, -1], axis=1)
    return float(ops.convert_to_numpy(alignment_loss(attention, inputs["alignment"], weights)))


def test_the_last_layer_is_taught_in_training_alone():
    model, (inputs, outputs, weights) = problem(
        "transformer_tiny", num_layers=2, model_dim=6, num_heads=2, intermediate_dim=7
    )

    def loss(training):
        logits = model(inputs, training=training)
        return float(model.compute_loss(inputs, outputs, logits, weights, training=training))

    plain = loss(training=True)
    guide(model, 5.0)
    assert loss(training=True) == pytest.approx(plain + 5.0 * aligned(model, inputs, weights), rel=1e-5)
    assert loss(training=False) == pytest.approx(plain, rel=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["luong_dot", "transformer_tiny"])
def test_attention_learns_the_alignment(name):
    small = {"num_layers": 1, "model_dim": 12, "num_heads": 2, "intermediate_dim": 12}
    model, batch = problem(name, **(small if name == "transformer_tiny" else {"embedding_dim": 12, "units": 12}))
    guide(model, 5.0)
    before = aligned(model, batch[0], batch[2])
    for _ in range(40):
        model.train_on_batch(*batch)
    assert aligned(model, batch[0], batch[2]) < before / 2


def test_models_without_attention_are_refused():
    model = zoo.create_model("rnn_encdec", source_vocab_size=7, target_vocab_size=7, embedding_dim=3, units=4)
    with pytest.raises(InputError, match="data.alignments.*RNNEncoderDecoder"):
        guide(model, 1.0)


@pytest.mark.nightly
def test_a_run_with_alignments(tmp_path):
    words = [["a", "b", "c"], ["b", "d"], ["c", "a", "d", "b"], ["d"]] * 5
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.en").write_text("".join(f"{' '.join(row)}\n" for row in words))
        (tmp_path / f"{split}.xx").write_text("".join(f"{' '.join(row).upper()}\n" for row in words))
    links = [" ".join(f"{i}-{i}" for i in range(len(row))) for row in words]
    (tmp_path / "train.align").write_text("\n".join(links) + "\n")
    arguments = [
        "--model",
        "rnnsearch",
        "--data",
        f"text:{tmp_path}:en-xx",
        "--workdir",
        str(tmp_path / "run"),
        "--set",
    ]
    settings = ["model.embedding_dim=6", "model.units=6", "model.attention_units=6", "model.readout_units=6"]
    settings += ["data.tokenizer=chars", f"data.alignments={tmp_path}/train.align", "training.cores=2"]
    settings += ["training.max_steps=4", "training.eval_every=2", "training.batch_tokens=64"]
    assert main([*arguments, *settings]) in (0, None)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["alignments"].endswith("train.align")
