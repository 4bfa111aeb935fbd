"""The dataset `senses` and its two parts."""

import numpy as np
import pytest

from training.config.run_config import RunConfig
from training.data import LabelledData, load_data
from training.data.formats.senses import natural, twins
from training.tasks import get_task
from zoo.errors import InputError


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Ten sentences of each sense."""
    monkeypatch.setattr(natural, "SIZE", 360)


def test_both_parts():
    data = load_data("senses", seed=3)
    assert isinstance(data, LabelledData)
    assert (data.spec, data.tokenizer, data.parts) == ("senses", "subword", ("twins", "natural"))
    made = [*twins.examples("val", seed=3), *natural.examples("val", seed=3)]
    assert list(zip(data.split("val").texts, data.split("val").labels, strict=True)) == made
    assert data.part_sizes("val") == [1_000, len(made) - 1_000]
    assert len(data.classes) == 36


def test_a_part_alone():
    data = load_data("senses:natural")
    assert (data.spec, data.tokenizer, data.parts) == ("senses:natural", "subword", ())
    assert data.split("test").texts == [text for text, _ in natural.examples("test")]


def test_unknown_part():
    with pytest.raises(InputError, match="'twin'.*twins.*Received: 'senses:twin'"):
        load_data("senses:twin")


class Answers:
    """A run that answers as it is told."""

    def __init__(self, classes, labels):
        self.classes, self.labels = classes, labels

    def classify(self, texts):
        return [type("Answer", (), {"label": label}) for label in self.labels]


def test_the_metrics_of_each_part_are_reported_apart():
    data = load_data("senses")
    labels = data.split("test").labels
    answers = [*labels[:2_000], *("apple.fruit" for _ in labels[2_000:])]
    metrics, _ = get_task("classifier").evaluate(Answers(data.classes, answers), data, "test")
    assert metrics["twins_accuracy"] == metrics["twins_macro_f1"] == 1.0
    assert metrics["natural_accuracy"] == pytest.approx(np.mean([label == "apple.fruit" for label in labels[2_000:]]))
    assert metrics["natural_accuracy"] < metrics["accuracy"] < 1.0


def test_a_part_alone_has_no_parts():
    data = load_data("senses:twins")
    metrics, _ = get_task("classifier").evaluate(Answers(data.classes, data.split("test").labels), data, "test")
    assert metrics == {"accuracy": 1.0, "macro_f1": 1.0}


def test_a_run_on_senses_before_it_had_parts_was_on_the_twins():
    for data, spec in (
        ({"spec": "senses", "classes": ["a"]}, "senses:twins"),
        ({"spec": "senses", "classes": ["a"], "parts": ["twins", "natural"]}, "senses"),
        ({"spec": "senses"}, "senses"),
        ({"spec": "senses:natural", "classes": ["a"]}, "senses:natural"),
    ):
        config = RunConfig.from_dict({"model": {"name": "cnn_classifier"}, "data": data, "training": {}})
        assert config.data.spec == spec
