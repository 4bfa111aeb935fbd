"""Whole recurrent models against copies in NumPy that are written from the formulas, one token after another."""

import random

import numpy as np
import pytest
from support.formulas import compare, kernel
from support.layers.recurrent import step_reference
from support.models import numpy
from support.seq2seq_models import B, batch, create, logits, steps
from support.tiers import nightly_unless

from zoo.layers.scores import SCORES
from zoo.vocabulary import PAD

SEARCH = {"embedding_dim": 7, "units": 6, "attention_units": 5, "readout_units": 3}
LUONG = {"embedding_dim": 7, "units": 6, "num_layers": 1, "attention_units": 5}


def attend(score, state, annotations):
    """Returns the context and the weights of one state."""
    exponentials = np.exp(compare(score, state, annotations))
    weights = exponentials / exponentials.sum()
    return weights @ annotations, weights


def read(cell, inputs, units):
    """Returns the states after each of the inputs, each a list."""
    states, history = [np.zeros(units)] * (2 if "lstm" in type(cell).__name__.lower() else 1), []
    for x in inputs:
        states = step_reference(cell, x, states)
        history.append(states)
    return history


def search_annotations(model, embedded):
    """Returns h_1 … h_S, and what the decoder starts from."""
    units = model.encoder_units or model.units
    if not model.bidirectional:
        history = read(model.encoder.recurrent_layers[0].cell, embedded, units)
        return np.array([states[0] for states in history]), history[-1][0]
    forward = read(model.encoder.forward_layer.cell, embedded, units)
    backward = read(model.encoder.backward_layer.cell, embedded[::-1], units)[::-1]
    return np.array([np.concatenate([f[0], b[0]]) for f, b in zip(forward, backward, strict=True)]), backward[0][0]


def start_of(model, last, count):
    if model.start_state == "encoder":
        start = np.tanh(last @ kernel(model.start_dense) + numpy(model.start_dense.bias))
        return list(np.split(start, count))
    if model.start_state == "learned":
        return list(numpy(model.start.states))
    if model.start_state == "random":
        chance = random.Random(model.start_seed)
        return [np.array([chance.gauss(0, 0.1) for _ in range(model.units)]) for _ in range(count)]
    return [np.zeros(model.units)] * count


def search(model, source, target):
    """Returns logits [T, V] and alignments [T, S] of one sentence pair by RNNsearch."""
    annotations, last = search_annotations(model, numpy(model.source_embedding.embeddings)[source])
    states = start_of(model, last, 2 if model.cell_type == "lstm" else 1)
    results, alignments = [], []
    for token in target:
        embedded = numpy(model.target_embedding.embeddings)[token]
        previous = states[0]
        if model.attend == "between":
            (between,) = step_reference(model.cell.cell, embedded, states)
            context, weights = attend(model.cell.attention.score, between, annotations)
            states = step_reference(model.cell.context_cell, context, [between])
        else:
            context, weights = attend(model.cell.attention.score, previous, annotations)
            states = step_reference(model.cell.cell, np.concatenate([embedded, context]), states)
        state = states[0] if model.readout_state == "new" else previous
        joined = np.concatenate([state, context, embedded])
        hidden = joined @ kernel(model.readout_dense) + numpy(model.readout_dense.bias)
        readout = hidden.reshape(-1, 2).max(axis=1)
        results.append(readout @ kernel(model.output_dense) + numpy(model.output_dense.bias))
        alignments.append(weights)
    return np.array(results), np.array(alignments)


def luong(model, source, target):
    """Returns logits [T, V] and alignments [T, S] of one sentence pair by Luong's model of one layer."""
    embedded = numpy(model.source_embedding.embeddings)[source]
    count = 2 if model.cell_type == "lstm" else 1
    if model.bidirectional:
        both = model.encoder.recurrent_layers[0]
        forward = read(both.forward_layer.cell, embedded, model.units // 2)
        backward = read(both.backward_layer.cell, embedded[::-1], model.units // 2)[::-1]
        annotations = np.array([np.concatenate([f[0], b[0]]) for f, b in zip(forward, backward, strict=True)])
        final = [np.concatenate([forward[-1][k], backward[0][k]]) for k in range(count)]
    else:
        step = -1 if model.reverse_source else 1
        history = read(model.encoder.recurrent_layers[0].cell, embedded[::step], model.units)
        annotations = np.array([states[0] for states in history])[::step]
        final = history[-1]
    states = final if model.start_state == "encoder" else start_of(model, None, count)
    fed, results, alignments = np.zeros(model.cell.step_size), [], []
    for token in target:
        inputs = numpy(model.target_embedding.embeddings)[token]
        states = step_reference(
            model.cell.cell, np.concatenate([inputs, fed] if model.input_feeding else [inputs]), states
        )
        context, weights = attend(model.cell.attention.score, states[0], annotations)
        fed = np.tanh(np.concatenate([context, states[0]]) @ kernel(model.cell.attentional_dense))
        tied = model.output_dense is None
        results.append(fed @ (numpy(model.target_embedding.embeddings).T if tied else kernel(model.output_dense)))
        alignments.append(weights)
    return np.array(results), np.array(alignments)


def check(model, formula):
    source, target = batch()
    result, alignments = logits(model, source, target), numpy(model.attention(source, target))
    stepwise = steps(model, source, target)
    for row in range(B):
        sentence, translation = (ids[row][ids[row] != PAD] for ids in (source, target))
        expected, weights = formula(model, sentence, translation)
        for found in (result, stepwise):
            np.testing.assert_allclose(found[row, : len(translation)], expected, atol=2e-5)
        np.testing.assert_allclose(alignments[row, 0, 0, : len(translation), : len(sentence)], weights, atol=1e-5)


# Every score and every option of each model is among these, with others beside it.
SEARCHES = [
    {},
    {"score": "additive", "score_bias": False, "bidirectional": False},
    {"score": "dot", "readout_state": "new", "cell_type": "lstm", "encoder_units": 3},  # as courses have it
    {"score": "general", "transitions": 2, "start_state": "random", "start_seed": 3},
    {"score": "scaled_dot", "bidirectional": False, "cell_type": "lstm", "start_state": "zero"},
    {"score": "concat", "score_bias": True, "attend": "between"},
    {"score": "tanh_concat", "score_bias": False, "attend": "between", "transitions": 1, "readout_state": "new"},
    {"score": "cosine", "encoder_units": 3, "cell_type": "lstm", "start_state": "learned"},
    {"score": "location", "readout_state": "new"},
]
LUONGS = [
    {"score": "dot", "tied_embeddings": "target", "embedding_dim": 5},
    {"score": "cosine", "cell_type": "gru", "bidirectional": True},
    {"score": "location", "cell_type": "gru", "transitions": 2, "start_state": "random"},
    {"score": "general", "bidirectional": True, "start_state": "learned"},
    {"score": "concat", "score_bias": True, "input_feeding": False, "reverse_source": False, "start_state": "zero"},
]


@pytest.mark.parametrize("options", nightly_unless(SEARCHES[::2].__contains__, SEARCHES), ids=str)
def test_rnnsearch(options):
    check(create("rnnsearch", {**SEARCH, **options}), search)


@pytest.mark.parametrize("options", nightly_unless(LUONGS[::2].__contains__, LUONGS), ids=str)
def test_luong(options):
    check(create("luong_general", {**LUONG, "tied_embeddings": "none", **options}), luong)


def test_every_score_is_among_these():
    assert {options.get("score", "additive") for options in SEARCHES} == {*SCORES} - {"coverage", "normalized_additive"}


def test_other_names_of_scores_are_understood():
    for synonym, score in {"bahdanau": "additive", "multiplicative": "general", "bilinear": "general"}.items():
        assert create("rnnsearch", {**SEARCH, "score": synonym}).score == score
