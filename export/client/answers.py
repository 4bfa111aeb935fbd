"""Answers of a server, one object for each text."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zoo.errors import InputError

Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Alignment:
    """One answer of the `attention` signature, padding removed.

    Attributes:
        text: The output text.
        source_tokens: The S tokens of the input.
        target_tokens: The T tokens of the output.
        attention: float [layers, heads, T, S].
    """

    text: str
    source_tokens: list[str]
    target_tokens: list[str]
    attention: np.ndarray


@dataclasses.dataclass(frozen=True)
class Classification:
    """One answer of a classifier.

    Attributes:
        label: The most probable class.
        probabilities: Probability by class.
    """

    label: str
    probabilities: dict[str, float]


def rows(outputs: Mapping[str, np.ndarray], *names: str) -> Iterator[tuple[Any, ...]]:
    """Returns some outputs of each text.

    Args:
        outputs: Arrays by output name, with the batch first.
        *names: The outputs wanted.

    Raises:
        InputError: One of them is missing.
    """
    missing = [name for name in names if name not in outputs]
    if missing:
        raise InputError(f"The model gives no {', '.join(missing)}, only {sorted(outputs)}.")
    return zip(*(outputs[name] for name in names), strict=True)


def alignments(outputs: Outputs) -> list[Alignment]:
    """Returns the answers of the `attention` signature.

    Args:
        outputs: Its outputs.

    Raises:
        InputError: One of them is missing.
    """
    return [_alignment(*row) for row in rows(outputs, "text", "source_tokens", "target_tokens", "attention")]


def _alignment(text: str, source: np.ndarray, target: np.ndarray, attention: np.ndarray) -> Alignment:
    is_source, is_target = source != "", target != ""  # padding is the empty token
    weights = attention[:, :, is_target][:, :, :, is_source]
    return Alignment(text, source[is_source].tolist(), target[is_target].tolist(), weights)


def classifications(outputs: Outputs) -> list[Classification]:
    """Returns the answers of a classifier's default signature.

    Args:
        outputs: Its outputs.

    Raises:
        InputError: One of them is missing.
    """
    return [
        Classification(label, dict(zip(classes.tolist(), probabilities.tolist(), strict=True)))
        for label, classes, probabilities in rows(outputs, "label", "classes", "probabilities")
    ]
