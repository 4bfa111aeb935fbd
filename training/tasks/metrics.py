"""Metrics of what models answer, as the field reports them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def translation_metrics(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Returns the metrics of a corpus of translations.

    Returns:
        `bleu`: sacreBLEU (cased, 13a tokens) with `bleu_signature`; `bleu_lower_tokenized`: the same on lower-cased
        text, which is what Multi30k results are reported in, with its signature; `chrf` (chrF2) with its signature,
        each in [0, 100]; `exact_match`: share of translations equal to their reference, in [0, 1].
    """
    cased, lower, chrf = BLEU(), BLEU(lowercase=True), CHRF()
    results: dict[str, Any] = {}
    for name, metric in (("bleu", cased), ("bleu_lower_tokenized", lower), ("chrf", chrf)):
        results[name] = metric.corpus_score(list(hypotheses), [list(references)]).score
        results[f"{name}_signature"] = str(metric.get_signature())
    equal = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return {**results, "exact_match": equal / len(references)}


def classification_metrics(answers: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of a corpus of labels.

    Returns:
        `accuracy` and `macro_f1`, the mean over the classes that occur of F1 = 2·correct / (answered + true), in
        [0, 1].
    """
    answered, true = np.array(answers), np.array(labels)
    f1 = []
    for name in sorted({*answers, *labels}):
        correct = np.sum((answered == name) & (true == name))
        f1.append(2 * correct / (np.sum(answered == name) + np.sum(true == name)))
    return {"accuracy": float(np.mean(answered == true)), "macro_f1": float(np.mean(f1))}
