"""Minimum Bayes risk over a list of translations."""

import math
from types import SimpleNamespace

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from training.evaluate import main
from training.reranking import RERANKINGS, Reranked, consensus
from zoo.errors import InputError

TEXTS = ["A man rides a horse .", "A man is riding a horse .", "The man rides on a horse .", "Dogs run ."]
LOG_PROBS = [-2.0, -1.5, -1.9, -1.3]


@pytest.mark.parametrize("reranking", RERANKINGS)
def test_consensus(reranking):
    metric = CHRF() if reranking == "mbr" else BLEU(effective_order=True)
    expected = []
    for text in TEXTS:
        utility = 0.0
        for other, log_prob in zip(TEXTS, LOG_PROBS, strict=True):
            share = math.exp(log_prob) / sum(map(math.exp, LOG_PROBS))
            utility += share * metric.sentence_score(text, [other]).score
        expected.append(utility)
    assert consensus(TEXTS, LOG_PROBS, reranking) == expected.index(max(expected)) != LOG_PROBS.index(max(LOG_PROBS))


def test_one_probable_translation_stays_and_the_first_of_equals_is_taken():
    assert consensus(TEXTS, [-9.0, -9.0, -9.0, -0.1]) == 3
    assert consensus(["a", "b"], [-1.0, -1.0]) == 0
    assert consensus(["", ""], [-800.0, -900.0]) == 0
    assert consensus(["alone"], [-3.0]) == 0


def test_unknown_reranking():
    with pytest.raises(InputError, match="Unknown reranking 'mrb'. Did you mean mbr"):
        consensus(TEXTS, LOG_PROBS, "mrb")


def test_a_reranked_run():
    hypotheses = [SimpleNamespace(text=text, log_prob=value) for text, value in zip(TEXTS, LOG_PROBS, strict=True)]
    asked = {}

    def nbest(texts, **options):
        asked.update(options)
        return [hypotheses for _ in texts]

    answers = Reranked(SimpleNamespace(nbest=nbest), "mbr").translate(["x", "y"], beam_size=4)
    assert answers == [TEXTS[consensus(TEXTS, LOG_PROBS)]] * 2 and asked == {"beam_size": 4}


def test_a_beam_is_needed(dates_workdir):
    with pytest.raises(InputError, match="--rerank mbr chooses among the translations of a beam.* beam_size=1."):
        main([str(dates_workdir), "--rerank", "mbr"])
