"""Choosing among translations by what they have in common: minimum Bayes risk."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from zoo.errors import unknown_name

RERANKINGS = ("mbr", "mbr_bleu")
"""Minimum Bayes risk with chrF as the utility of a translation, and with BLEU of single sentences."""


def consensus(texts: Sequence[str], log_probs: Sequence[float], reranking: str = "mbr") -> int:
    """Returns the number of the translation of the largest expected utility, `argmax_h Σ_r p(r) · U(h, r)`.

    The translations stand for all that there are: p is their probability, as a share of that of the list. Of equal
    ones, the first is taken.

    Args:
        texts: Translations of one text, at least one.
        log_probs: The log probability of each.
        reranking: One of `RERANKINGS`.

    Raises:
        InputError: For an unknown reranking.

    Example:
        >>> from training.reranking import consensus
        >>> consensus(["a cat", "the dog sleeps", "the dog sleeps here"], [-1.0, -1.1, -1.1])
        1

    Reference:
        Kumar and Byrne 2004, "Minimum Bayes-Risk Decoding for Statistical Machine Translation", section 2.2,
        https://aclanthology.org/N04-1022;
        Freitag et al. 2022, "High Quality Rather than High Model Probability", section 3,
        https://arxiv.org/abs/2111.09388
    """
    if reranking not in RERANKINGS:
        raise unknown_name("reranking", reranking, RERANKINGS)
    utility = _utility(reranking)
    largest = max(log_probs)
    weights = [math.exp(value - largest) for value in log_probs]
    expected = [
        sum(weight * utility(text, other) for other, weight in zip(texts, weights, strict=True)) for text in texts
    ]
    return max(range(len(texts)), key=expected.__getitem__)


def _utility(reranking: str) -> Callable[[str, str], float]:
    from sacrebleu.metrics.bleu import BLEU  # here, so that a command's mistakes are reported at once
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF() if reranking == "mbr" else BLEU(effective_order=True)
    return lambda text, other: float(metric.sentence_score(text, [other]).score)


class Reranked:
    """A run that answers with the `consensus` of its beam.

    Args:
        run: The run, a `Seq2SeqRun`.
        reranking: One of `RERANKINGS`.
    """

    def __init__(self, run: Any, reranking: str):
        self.run, self.reranking = run, reranking

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Returns the translation of each text; see `Seq2SeqRun.nbest` for the options."""
        answers = []
        for hypotheses in self.run.nbest(texts, **options):
            candidates, log_probs = [each.text for each in hypotheses], [each.log_prob for each in hypotheses]
            answers.append(candidates[consensus(candidates, log_probs, self.reranking)])
        return answers
