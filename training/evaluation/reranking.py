"""Minimum Bayes risk decoding: chooses the translation that is most similar to the others."""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.config.initial_run import spec_of
from training.data.languages import language_of
from zoo.errors import InputError, unknown_name

if TYPE_CHECKING:
    from zoo.inference.seq2seq_run import Seq2SeqRun

RERANKINGS = ("mbr", "mbr_bleu")
"""Minimum Bayes risk with chrF as the utility of a translation, and with BLEU of single sentences."""


def consensus(texts: Sequence[str], log_probs: Sequence[float], reranking: str = "mbr", language: str = "") -> int:
    """Returns the index of the translation with the largest expected utility, `argmax_h Σ_r p(r) · U(h, r)`.

    p is the probability of a translation, normalised over the list. Of translations with equal utility, the first is
    chosen.

    Args:
        texts: Translations of one text, at least one.
        log_probs: Their log probabilities.
        reranking: One of `RERANKINGS`.
        language: The code of their language, by which BLEU chooses its tokenizer.

    Raises:
        InputError: For an unknown reranking.

    Example:
        >>> from training.evaluation.reranking import consensus
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
    utility = _utility(reranking, language)
    largest = max(max(log_probs), LEAST)
    weights = [math.exp(value - largest) for value in log_probs]
    expected = [
        sum(weight * utility(text, other) for other, weight in zip(texts, weights, strict=True)) for text in texts
    ]
    return max(range(len(texts)), key=expected.__getitem__)


@functools.cache
def _utility(reranking: str, language: str) -> Callable[[str, str], float]:
    from sacrebleu.metrics.bleu import BLEU  # here, so that a command reports mistakes before this slow import
    from sacrebleu.metrics.chrf import CHRF

    from training.tasks.metrics import bleu_tokenizer

    metric = CHRF() if reranking == "mbr" else BLEU(effective_order=True, tokenize=bleu_tokenizer(language))
    return lambda text, other: float(metric.sentence_score(text, [other]).score)


REVERSE_WEIGHT = 0.2
LEAST = -1e30  # in place of the logarithm of 0


def check_advisers(
    rerank: str | None,
    others: Sequence[str | Path] = (),
    reverse: str | Path | None = None,
    reverse_weight: float | None = None,
) -> None:
    """Raises InputError if the models cannot be used to choose a translation; see `Reranked`."""
    if isinstance(others, str):
        raise InputError(f"others must be a list of work directories. Received: {others!r}.")
    advisers = [("--with", path) for path in others] + ([] if reverse is None else [("--reverse", reverse)])
    for option, path in advisers:
        if not rerank:
            raise InputError(f"{option} {path} is for --rerank: add --rerank mbr.")
        if (task := spec_of(str(path)).task) != "seq2seq":
            raise InputError(f"{option} takes a seq2seq model; {path} contains a {task} model.")
    if reverse_weight is not None:
        if reverse is None:
            raise InputError(f"--reverse_weight requires --reverse DIR. Received: {reverse_weight} without it.")
        if not 0 <= reverse_weight < 1:
            raise InputError(f"--reverse_weight must be in [0, 1). Received: {reverse_weight}.")


class Reranked:
    """A run that returns the `consensus` of its beam.

    Other models of the same languages add their beams. Equal texts are then one candidate, and P(y | x) is the mean of
    all models' probabilities of the whole text. An ensemble averages them token by token instead, so that only here
    vocabularies may differ. A model of the reverse direction scores the source, given a translation:
    p ∝ P(y | x)^(1 − w) · P(x | y)^w, the noisy channel without its language model.

    Args:
        run: The run, a `Seq2SeqRun`.
        reranking: One of `RERANKINGS`.
        others: Runs of the same languages.
        reverse: A run of the reverse direction.
        reverse_weight: Its weight w, in [0, 1).

    Reference:
        Yee et al. 2019, "Simple and Effective Noisy Channel Modeling for Neural Machine Translation", section 2,
        https://arxiv.org/abs/1908.05731
    """

    def __init__(
        self,
        run: "Seq2SeqRun",
        reranking: str,
        others: Sequence["Seq2SeqRun"] = (),
        reverse: "Seq2SeqRun | None" = None,
        reverse_weight: float = REVERSE_WEIGHT,
    ):
        self.run, self.reranking, self.others = run, reranking, others
        self.reverse, self.reverse_weight = reverse, reverse_weight

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Returns the translation of each text; see `Seq2SeqRun.nbest` for the options."""
        models = (self.run, *self.others)
        beams = [run.nbest(texts, **options) for run in models]
        candidates = [[entry.text for beam in of_text for entry in beam] for of_text in zip(*beams, strict=True)]
        if self.others:
            candidates = [list(dict.fromkeys(of_text)) for of_text in candidates]
            scores = zip(*[_score_lists(run.score, texts, candidates) for run in models], strict=True)
            log_probs = [np.logaddexp.reduce(of_text) - math.log(len(models)) for of_text in scores]
        else:
            log_probs = [np.array([entry.log_prob for entry in beam]) for beam in beams[0]]
        if self.reverse is not None:
            score, weight = self.reverse.score, self.reverse_weight
            reverse = _score_lists(lambda sources, targets: score(targets, sources), texts, candidates)
            log_probs = [(1 - weight) * own + weight * other for own, other in zip(log_probs, reverse, strict=True)]
        language = language_of(text for of_text in candidates for text in of_text)
        return [
            of_text[consensus(of_text, values, self.reranking, language)]
            for of_text, values in zip(candidates, log_probs, strict=True)
        ]


def _score_lists(
    score: Callable[[list[str], list[str]], list[float]], sources: Sequence[str], candidates: list[list[str]]
) -> list[Any]:
    """Returns the scores of the candidates of each source, an array for each source."""
    pairs = [(source, text) for source, of_source in zip(sources, candidates, strict=True) for text in of_source]
    scores = np.array(score([source for source, _ in pairs], [text for _, text in pairs]))
    return np.split(scores, np.cumsum([len(of_source) for of_source in candidates])[:-1])
