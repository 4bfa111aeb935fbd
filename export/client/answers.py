"""Responses of a server, converted to one object per text."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.errors import InputError

Outputs = dict[str, np.ndarray]
_SIDES = ("source_tokens", "target_tokens")


@dataclasses.dataclass(frozen=True)
class Alignment:
    """The output of the `attention` signature for one text, without padding.

    Attributes:
        text: The output text; empty for a classifier.
        source_tokens: The S tokens of the input.
        target_tokens: The T tokens of the output; for a classifier those of the input.
        attention: float [layers, heads, T, S].
    """

    text: str
    source_tokens: list[str]
    target_tokens: list[str]
    attention: np.ndarray


@dataclasses.dataclass(frozen=True)
class Classification:
    """The output of a classifier for one text.

    Attributes:
        label: The most probable class.
        probabilities: Probability by class.
    """

    label: str
    probabilities: dict[str, float]


def rows(outputs: Outputs, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yields, for each text, the outputs with these names; raises InputError if one is missing."""
    missing = [name for name in names if name not in outputs]
    if missing:
        raise InputError(f"The model has no output {', '.join(missing)}, only {sorted(outputs)}.")
    return zip(*(outputs[name] for name in names), strict=True)


def alignments(outputs: Outputs) -> list[Alignment]:
    """Returns the outputs of the `attention` signature of a translator or a classifier."""
    if attends_to_itself(outputs):
        texts = [""] * len(outputs["attention"])
        outputs = {**outputs, "text": np.array(texts, object), **dict.fromkeys(_SIDES, outputs["tokens"])}
    answers = []
    for text, source, target, attention in rows(outputs, "text", *_SIDES, "attention"):
        is_source, is_target = source != "", target != ""  # Padding is the empty token.
        weights = attention[:, :, is_target][:, :, :, is_source]
        answers.append(Alignment(text, source[is_source].tolist(), target[is_target].tolist(), weights))
    return answers


def attends_to_itself(outputs: Outputs) -> bool:
    """Returns whether the attention in a response is self-attention of the input, as for classifiers."""
    return "tokens" in outputs and "attention" in outputs


def classifications(outputs: Outputs) -> list[Classification]:
    """Returns the outputs of a classifier's default signature."""
    return [
        Classification(label, dict(zip(classes.tolist(), probabilities.tolist(), strict=True)))
        for label, classes, probabilities in rows(outputs, "label", "classes", "probabilities")
    ]
