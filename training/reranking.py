"""Choosing among translations by what they have in common: minimum Bayes risk."""

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
    """Returns the number of the translation of the largest expected utility, `argmax_h Σ_r p(r) · U(h, r)`.

    The translations stand for all that there are: p is their probability, as a share of that of the list. Of equal
    ones, the first is taken.

    Args:
        texts: Translations of one text, at least one.
        log_probs: The log probability of each.
        reranking: One of `RERANKINGS`.
        language: The code of their language, which says how BLEU cuts words.

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
    utility = _utility(reranking, language)
    largest = max(max(log_probs), LEAST)
    weights = [math.exp(value - largest) for value in log_probs]
    expected = [
        sum(weight * utility(text, other) for other, weight in zip(texts, weights, strict=True)) for text in texts
    ]
    return max(range(len(texts)), key=expected.__getitem__)


@functools.cache
def _utility(reranking: str, language: str) -> Callable[[str, str], float]:
    from sacrebleu.metrics.bleu import BLEU  # here, so that a command's mistakes are reported at once
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
    """Raises InputError if models are named that cannot help to choose a translation; see `Reranked`."""
    if isinstance(others, str):
        raise InputError(f"The other models are a list of work directories. Received: {others!r}.")
    advisers = [("--with", path) for path in others] + ([] if reverse is None else [("--reverse", reverse)])
    for option, path in advisers:
        if not rerank:
            raise InputError(f"{option} {path} is for --rerank: add --rerank mbr.")
        if (task := spec_of(str(path)).task) != "seq2seq":
            raise InputError(f"{option} takes a seq2seq model; {path} holds a {task} model.")
    if reverse_weight is not None:
        if reverse is None:
            raise InputError("--reverse_weight is for --reverse DIR, the model that it weights.")
        if not 0 <= reverse_weight < 1:
            raise InputError(f"--reverse_weight must be in [0, 1). Received: {reverse_weight}.")


class Reranked:
    """A run that answers with the `consensus` of its beam.

    Other models of the same languages add their beams. Equal texts are then one candidate, and P(y | x) is the mean of
    the probabilities that all models give the whole text; unlike in an ensemble, which takes it symbol by symbol, each
    may have symbols of its own. A model of the reverse direction says how well the source can be told from a
    translation: p ∝ P(y | x)^(1 − w) · P(x | y)^w, the noisy channel without its language model.

    Args:
        run: The run, a `Seq2SeqRun`.
        reranking: One of `RERANKINGS`.
        others: Runs of the same languages.
        reverse: A run that translates back.
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
        candidates = [[each.text for beam in of_text for each in beam] for of_text in zip(*beams, strict=True)]
        if self.others:
            candidates = [list(dict.fromkeys(of_text)) for of_text in candidates]
            scores = zip(*[_score_lists(run.score, texts, candidates) for run in models], strict=True)
            log_probs = [np.logaddexp.reduce(of_text) - math.log(len(models)) for of_text in scores]
        else:
            log_probs = [np.array([each.log_prob for each in beam]) for beam in beams[0]]
        if self.reverse is not None:
            score, weight = self.reverse.score, self.reverse_weight
            reverse = _score_lists(lambda sources, targets: score(targets, sources), texts, candidates)
            log_probs = [(1 - weight) * forth + weight * back for forth, back in zip(log_probs, reverse, strict=True)]
        language = language_of(text for of_text in candidates for text in of_text)
        return [
            of_text[consensus(of_text, values, self.reranking, language)]
            for of_text, values in zip(candidates, log_probs, strict=True)
        ]


def _score_lists(
    score: Callable[[list[str], list[str]], list[float]], sources: Sequence[str], candidates: list[list[str]]
) -> list[Any]:
    """Returns what `score` says of each source and each of its candidates, an array for each source."""
    pairs = [(source, text) for source, of_source in zip(sources, candidates, strict=True) for text in of_source]
    found = np.array(score([source for source, _ in pairs], [text for _, text in pairs]))
    return np.split(found, np.cumsum([len(of_source) for of_source in candidates])[:-1])
