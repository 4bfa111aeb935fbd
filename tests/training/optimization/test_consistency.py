"""Consistency as a part of the loss: its formula, its gradient and what is cut off."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import gradients

import zoo
from training.config.options import TrainingConfig
from training.optimization.consistency import cut_off, divergence, regularise, repeat_rows
from training.optimization.cross_entropy import MeanOverTokens
from zoo.errors import InputError
from zoo.vocabulary import PAD, START


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def seq2seq(dropout=0.3):
    model = zoo.create_model(
        "transformer_tiny",
        source_vocab_size=13,
        target_vocab_size=13,
        num_layers=1,
        model_dim=6,
        num_heads=3,
        intermediate_dim=11,
        dropout=dropout,
    )
    model.compile(loss=MeanOverTokens(), optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    return model


def batch():
    chance = np.random.default_rng(0)
    source, target = (chance.integers(4, 13, (5, size)).astype("int32") for size in (7, 3))
    target[:, 0], target[1, 2], source[2, 4:] = START, PAD, PAD
    outputs = np.roll(target, -1, axis=1)
    return {"source": source, "target": target}, outputs, (target != PAD).astype("float32")


def test_divergence():
    chance = np.random.default_rng(1)
    logits, others = chance.normal(size=(2, 2, 3, 5)).astype("float32")
    weights = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], "float32")
    total = 0.0
    for b, t in ((0, 0), (0, 1), (1, 0)):
        p, q = (np.exp(values[b, t]) / np.exp(values[b, t]).sum() for values in (logits, others))
        total += sum(p[v] * np.log(p[v] / q[v]) for v in range(5))
    others[0, 2] = np.nan  # where nothing is real
    np.testing.assert_allclose(numpy(divergence(logits, others, weights)), total / 3, rtol=1e-5)
    assert numpy(divergence(logits, logits, weights)) == 0.0
    both = numpy(divergence(logits, others, weights, symmetric=True))
    there_and_back = numpy(divergence(logits, others, weights)) + numpy(divergence(others, logits, weights))
    np.testing.assert_allclose(both, there_and_back, rtol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_gradient_is_that_of_each_term(symmetric):
    logits = [keras.Variable(3 * np.random.default_rng(n).normal(size=(2, 3, 5))) for n in (1, 2)]
    weights = np.array([[1.0, 0.5, 0.0], [2.0, 0.0, 0.0]], "float32")

    def term_by_term():
        first, second = (ops.log_softmax(each, axis=-1) for each in logits)
        each = ops.exp(first) * (first - second) + (ops.exp(second) * (second - first) if symmetric else 0.0)
        return ops.sum(ops.multiply(ops.sum(each, axis=-1), weights)) / 3.5

    found = gradients(lambda: divergence(*logits, weights, symmetric=symmetric), logits)
    for ours, expected in zip(found, gradients(term_by_term, logits), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
        assert np.all(ours[:, 2] == 0) and np.abs(ours[0, :2]).min() > 1e-5


def losses(model, settings, passes):
    """Returns the loss of a batch without and with consistency, where the model's passes give the logits `passes`."""
    x, y, weights = batch()
    plain = [float(model.compute_loss(x, y, each, weights, training=True)) for each in passes]
    regularise(model, settings)
    if settings.consistency == "rdrop":
        x, y, weights = keras.tree.map_structure(lambda array: array.repeat(2, axis=0), (x, y, weights))
        twins = ops.reshape(ops.stack(passes, axis=1), (10, 3, 13))
        return plain, float(model.compute_loss(x, y, twins, weights, training=True))
    following = iter(passes[1:])
    model.call = lambda *arguments, **options: next(following)
    return plain, float(model.compute_loss(x, y, passes[0], weights, training=True))


@pytest.mark.parametrize("kind", ["rdrop", "simcut"])
def test_losses_by_their_formulas(kind):
    x, y, weights = batch()
    passes = [ops.convert_to_tensor(np.random.default_rng(n).normal(size=(5, 3, 13)), "float32") for n in (2, 3)]
    settings = TrainingConfig(consistency=kind, consistency_weight=7.0)
    plain, found = losses(seq2seq(), settings, passes)
    there, back = (float(divergence(*pair, weights)) for pair in (passes, passes[::-1]))
    expected = plain[0] + 7 * there if kind == "simcut" else (sum(plain) + 7 * (there + back) / 2) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_out_of_training_nothing_is_added():
    model, (x, y, weights) = seq2seq(), batch()
    logits = model(x)
    before = float(model.compute_loss(x, y, logits, weights, training=False))
    regularise(model, TrainingConfig(consistency="rdrop"))
    assert float(model.compute_loss(x, y, logits, weights, training=False)) == before


def test_whole_embeddings_are_cut_off_and_come_back():
    model, (x, _, _) = seq2seq(dropout=0.0), batch()
    seed = keras.random.SeedGenerator(3)
    table, ids = model.target_embedding, np.arange(13, dtype="int32").repeat(100)
    whole, logits = numpy(table(ids)), numpy(model(x))
    with cut_off(model, 0.25, seed):
        found = numpy(table(ids))
        np.testing.assert_allclose(numpy(table(whole[:2], reverse=True)).shape, (2, 13))
        assert not np.allclose(numpy(model(x)), logits)
    gone = np.all(found == 0, axis=1)
    np.testing.assert_array_equal(found[~gone], whole[~gone])
    assert 0.21 < gone.mean() < 0.29
    np.testing.assert_array_equal(numpy(model(x)), logits)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["rdrop", "simcut"])
def test_a_model_trains(kind):
    model, (x, y, weights) = seq2seq(), batch()
    settings = TrainingConfig(consistency=kind)
    regularise(model, settings)
    repeat_rows(model, settings)
    before = [numpy(variable).copy() for variable in model.trainable_variables]
    first = model.train_on_batch(x, y, weights)
    assert np.isfinite(first)
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert np.all(np.isfinite(numpy(variable)))
        assert not np.array_equal(numpy(variable), value) or variable.path.endswith("key/bias"), variable.path


def test_dropout_is_needed():
    with pytest.raises(InputError, match="training.consistency=simcut.*dropout"):
        regularise(seq2seq(dropout=0.0), TrainingConfig(consistency="simcut"))
