"""Minimum Bayes risk in the graph: chrF is sacreBLEU's, and the translations are those that Python chooses."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF
from support.exports import LoadedModel, ask

from export.graph.consensus import chrf, consensus
from export.saved_model import export_saved_model
from training.evaluation.reranking import Reranked
from training.evaluation.reranking import consensus as consensus_in_python

TEXTS = [
    "A man rides a horse .",
    "A man is riding a horse .",
    "The man rides on a horse .",
    "Dogs run .",
    "",
    "ß\u3000漢字 😀",
]
LOG_PROBS = [-2.0, -1.5, -1.9, -1.3, -4.0, -1e30]


def expected(texts):
    return [[CHRF().sentence_score(text, [other]).score / 100 for other in texts] for text in texts]


@settings(max_examples=11, deadline=None)
@given(st.lists(st.text("ab \u00a0ü", max_size=12), min_size=1, max_size=4))
@example(TEXTS)
def test_chrf(texts):
    np.testing.assert_allclose(chrf(tf.constant(texts)), expected(texts), atol=1e-12)


def test_consensus():
    texts = [TEXTS, TEXTS[::-1], ["", *["x"] * 5]]
    log_probs = [LOG_PROBS, LOG_PROBS[::-1], [-0.1, *[-1e30] * 5]]
    found = consensus(tf.constant(texts), tf.constant(log_probs)).numpy().tolist()
    assert found == [consensus_in_python(*each) for each in zip(texts, log_probs, strict=True)]
    assert found[0] == 1 and found[2] == 0
    assert consensus(tf.zeros([0, 3], tf.string), tf.zeros([0, 3])).shape == [0]
    for size in (1, 3):
        assert consensus(tf.constant([["ab"] * size]), tf.zeros([1, size])).numpy().tolist() == [0]


@pytest.mark.nightly
def test_an_export_answers_as_an_evaluation(text_workdir, text_run, tmp_path):
    """Reranked answers and their attention; a text of which no two translations are known; `--check` is satisfied."""
    options = {"beam_size": 4, "length_penalty": 1.0}
    signatures = "nbest, attention"
    version = export_saved_model(text_workdir, tmp_path, rerank="mbr", check=True, signatures=signatures, **options)
    model = LoadedModel(version, 1)
    sources = ["a red horse sleeps and my girl runs .", "the old man sees a child", "", "x"]
    answers = ask(model, text=sources)
    assert [text.decode() for text in answers["text"]] == Reranked(text_run, "mbr").translate(sources, **options)
    assert ask(model, "attention", text=sources)["text"].tolist() == answers["text"].tolist()
    ranked = ask(model, "nbest", text=sources)
    assert [row.tolist().index(text) for row, text in zip(ranked["texts"], answers["text"], strict=True)] != [0] * 4
