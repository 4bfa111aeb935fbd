"""Weights of classes: by their formula, as they are written, and mistakes that are named."""

import pytest

from training.config.class_weights import class_weights, parse_class_weights
from training.config.resolve import resolve
from zoo.errors import InputError

CLASSES = ("a", "b,c", "d=1", "e")
LABELS = ["a"] * 11 + ["b,c"] * 5 + ["d=1"]
BAD = ("", "a", "a=", "=2", "a=0", "a=-1", "a=inf", "a=nan", "a=x", "a=1,a=2", "a=1,", "balance")


def test_weights_of_classes():
    assert class_weights("none", CLASSES, LABELS) is None
    counted = class_weights("balanced", CLASSES, LABELS)
    assert counted == [17 / (3 * 11), 17 / (3 * 5), 17 / 3, 1.0]  # of the last one there is no example
    assert sum(counted[CLASSES.index(label)] for label in LABELS) == pytest.approx(len(LABELS))
    assert class_weights("b,c=2.5,d=1=.1", CLASSES, LABELS) == [1.0, 2.5, 0.1, 1.0]
    with pytest.raises(InputError, match=r"training\.class_weights.*'f'"):
        class_weights("a=1,f=2", CLASSES, LABELS)


def test_mistakes_are_named():
    for setting in BAD:
        with pytest.raises(InputError) as raised:
            parse_class_weights(setting)
        assert "training.class_weights" in str(raised.value) and setting.split(",")[-1] in str(raised.value)
    with pytest.raises(InputError, match=r"rnnsearch.*training\.class_weights=balanced"):
        resolve("rnnsearch", "dates", ["training.class_weights=balanced"])
