"""Parses the class weights of a classifier's loss, without Keras."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from zoo.errors import InputError, unknown_name

EQUAL, BALANCED = "none", "balanced"
_SETTING = "training.class_weights"
# The label is the shortest text before a number, so that a label may contain commas and equal signs.
_PAIR = re.compile(r"(.+?)=([^=,]*)(?:,|$)", re.DOTALL)


def parse_class_weights(setting: str) -> dict[str, float]:
    """Returns the weights in a setting by label; none for `"none"` and `"balanced"`.

    Raises:
        InputError: If it has another form, names a label twice, or a weight is not a positive number.

    Example:
        >>> parse_class_weights("spam=4,ham=0.5")
        {'spam': 4.0, 'ham': 0.5}
    """
    if setting in (EQUAL, BALANCED):
        return {}
    pairs = _PAIR.findall(setting)
    if not pairs or setting != ",".join(f"{label}={weight}" for label, weight in pairs):
        raise InputError(f"{_SETTING} must be {EQUAL}, {BALANCED} or LABEL=WEIGHT,LABEL=WEIGHT. Received: {setting!r}.")
    weights: dict[str, float] = {}
    for label, text in pairs:
        if label in weights:
            raise InputError(f"{_SETTING} names the label {label!r} twice. Received: {setting!r}.")
        weights[label] = _weight(label, text)
    return weights


def _weight(label: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise InputError(f"{_SETTING} must be positive numbers. Received: {label}={text}.")
    return weight


def class_weights(setting: str, classes: Sequence[str], labels: Sequence[str]) -> list[float] | None:
    """Returns the weight of each class, or `None` if all weights are equal.

    `"balanced"` is `w_c = n / (C · n_c)`, where n_c of the n training examples are of class c and C classes occur. All
    classes then contribute equally, and the mean of w over the examples is 1. A class without examples has weight 1,
    which is never used.

    Args:
        setting: The value of `training.class_weights`.
        classes: The classes of the model.
        labels: The labels of the training examples.

    Raises:
        InputError: For a label that is not among the classes.
    """
    if setting == EQUAL:
        return None
    if setting == BALANCED:
        counts = Counter(labels)
        return [len(labels) / (len(counts) * counts[name]) if counts[name] else 1.0 for name in classes]
    weights = parse_class_weights(setting)
    for label in weights:
        if label not in classes:
            raise InputError(f"{_SETTING}: {unknown_name('label', label, classes)}")
    return [weights.get(name, 1.0) for name in classes]
