"""Metrics of translations and classifications."""

import functools
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

# sacreBLEU's tokenizers of languages without spaces between words, and the packages that they need.
_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "cmn", "yue"), ("zh", "")),
    **dict.fromkeys(("ja", "jpn"), ("ja-mecab", "MeCab")),
    **dict.fromkeys(("ko", "kor"), ("ko-mecab", "mecab_ko")),
}
_CHARACTERS = (
    "bo",
    "bod",
    "dz",
    "dzo",
    "km",
    "khm",
    "lo",
    "lao",
    "my",
    "mya",
    "th",
    "tha",
)  # whose words cannot be split without a downloaded model


def bleu_tokenizer(language: str) -> str:
    """Returns the tokenizer of sacreBLEU for a language: `13a` for those with spaces between words.

    It is `char` if there is no tokenizer, or, with a warning, if its package is not installed.

    Args:
        language: The code of the language, such as `zh`; may be empty.
    """
    name, package = _TOKENIZERS.get(language, ("char" if language in _CHARACTERS else "13a", ""))
    if package and importlib.util.find_spec(package) is None:
        _warn_once(
            f"BLEU counts characters, since the tokenizer {name} is not installed: pip install 'sacrebleu[{language}]'"
        )
        return "char"
    return name


@functools.cache
def _warn_once(line: str) -> None:
    print(line, file=sys.stderr)


def translation_metrics(hypotheses: Sequence[str], references: Sequence[str], language: str = "") -> dict[str, Any]:
    """Returns the metrics of a corpus of translations.

    Args:
        hypotheses: The translations.
        references: The references of the corpus.
        language: The code of their language, by which the tokenizer is chosen; see `bleu_tokenizer`.

    Returns:
        `bleu`: sacreBLEU (cased, tokens of `bleu_tokenizer`) with `bleu_signature`; `bleu_lower_tokenized`: the same
        on lower-cased text, as usual for Multi30k, with its signature; `chrf` (chrF2) with its signature, all in
        [0, 100]; `exact_match`: share of translations equal to their reference, in [0, 1].
    """
    tokenizer = bleu_tokenizer(language)
    cased, lower, chrf = BLEU(tokenize=tokenizer), BLEU(lowercase=True, tokenize=tokenizer), CHRF()
    results: dict[str, Any] = {}
    for name, metric in (("bleu", cased), ("bleu_lower_tokenized", lower), ("chrf", chrf)):
        results[name] = metric.corpus_score(list(hypotheses), [list(references)]).score
        results[f"{name}_signature"] = str(metric.get_signature())
    equal = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return {**results, "exact_match": equal / len(references)}


def classification_metrics(answers: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of a corpus of labels.

    Returns:
        `accuracy` and `macro_f1`, the mean of F1 = 2·correct / (answered + true) over the classes that occur, in
        [0, 1].
    """
    answered, true = np.array(answers), np.array(labels)
    f1 = []
    for name in sorted({*answers, *labels}):
        correct = np.sum((answered == name) & (true == name))
        f1.append(2 * correct / (np.sum(answered == name) + np.sum(true == name)))
    return {"accuracy": float(np.mean(answered == true)), "macro_f1": float(np.mean(f1))}
