"""Metrics of translations, as the field reports them."""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU, CHRF


def translation_metrics(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float | str]:
    """Returns the metrics of a corpus of translations.

    Args:
        hypotheses: The translations.
        references: The reference translations, in the same order.

    Returns:
        `bleu`: sacreBLEU (cased, 13a tokens) with `bleu_signature`; `bleu_lower_tokenized`: the same on lower-cased
        text, which is what Multi30k results are reported in, with its signature; `chrf` (chrF2) with its signature,
        each in [0, 100]; `exact_match`: share of translations equal to their reference, in [0, 1].
    """
    cased, lower, chrf = BLEU(), BLEU(lowercase=True), CHRF()
    results = {}
    for name, metric in (("bleu", cased), ("bleu_lower_tokenized", lower), ("chrf", chrf)):
        results[name] = metric.corpus_score(list(hypotheses), [list(references)]).score
        results[f"{name}_signature"] = str(metric.get_signature())
    equal = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return {**results, "exact_match": equal / len(references)}
