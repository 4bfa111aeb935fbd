"""Options that are declared once: their checks, how they are read and described."""

import dataclasses
import re
from dataclasses import MISSING, dataclass

import numpy as np
import pytest
from support.every import every

from zoo.errors import InputError
from zoo.options import Option, Options, choice, count, flag, number, rate, size, text, texts


@dataclass(frozen=True, kw_only=True)
class Layer(Options):
    """Options of every kind."""

    vocab_size: int = size(MISSING, "Number of tokens.")
    units: int | None = size(8, "Size of the state.", automatic=True)
    window: int = count(0, "How far it sees.")
    dropout: float = rate(0.3, "Rate of dropout.")
    scale: float = number(1.0, "Factor of the scores.")
    share: float = number(1.0, "Share of them.", above=0, maximum=1)
    seed: int = count(0, "Seed.", minimum=-4, maximum=3)
    bias: bool = flag(True, "Whether there is a bias.")
    score: str = choice("dot", ("dot", "general", "on"), "How they are compared.")
    title: str = text("", "Any text.")
    names: list = texts((), "Any texts.")

    def check(self):
        if self.window > self.vocab_size:
            raise InputError(f"`window` is above `vocab_size`. Received: window={self.window}.")


@dataclass(frozen=True, kw_only=True)
class WideLayer(Layer):
    """The same with another default."""

    units: int | None = Layer.with_default("units", 64)


def test_defaults_are_checked_and_frozen():
    options = Layer(vocab_size=np.int64(5), dropout=0)
    assert type(options.vocab_size) is int and type(options.dropout) is float
    assert options.to_dict() == {
        "vocab_size": 5,
        "units": 8,
        "window": 0,
        "dropout": 0.0,
        "scale": 1.0,
        "share": 1.0,
        "seed": 0,
        "bias": True,
        "score": "dot",
        "title": "",
        "names": [],
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.units = 4


def test_wrong_values_are_named_with_what_is_expected():
    with every() as failures:
        for name, values, expected in (
            ("vocab_size", (0, True, None), "positive integer"),
            ("window", (-1, 2.0), "0 or more"),
            ("dropout", (1, -0.1, float("nan")), r"\[0, 1\)"),
            ("scale", (0, float("inf")), "positive number"),
            ("share", (0, 1.5), r"\(0, 1\]"),
            ("seed", (4, -5, "a"), "-4 to 3"),
            ("bias", (1,), "true or false"),
            ("score", ("dots",), "dot, general or on"),
            ("title", (3,), "text"),
            ("names", ("abc", [1]), "texts"),
            ("window", (6,), "vocab_size"),  # alone it would be sound
        ):
            for value in values:
                message = f"`{name}`.*{expected}.*{name}={re.escape(repr(value))}"
                with failures.of(f"{name}={value!r}"), pytest.raises(InputError, match=message):
                    Layer(**{"vocab_size": 5, name: value})


def test_texts_are_read_in_the_types_of_the_options():
    values = {"vocab_size": "5", "units": None, "dropout": "0.5", "bias": "off", "score": True, "names": ["a"]}
    options = Layer.read(values, "model")
    assert options == Layer(vocab_size=5, units=None, dropout=0.5, bias=False, score="on", names=["a"])
    with pytest.raises(InputError, match="'model.unit'.*model.units"):
        Layer.read({"unit": 3}, "model")
    with pytest.raises(InputError, match="`model.units`.*units='many'"):
        Layer.read({"vocab_size": 5, "units": "many"}, "model")


def test_options_are_taken_from_the_arguments_of_a_constructor():
    options, others = Layer.take({"vocab_size": 5, "name": "layer"})
    assert options == Layer(vocab_size=5) and others == {"name": "layer"}


def test_a_subclass_changes_a_default_and_nothing_else():
    assert WideLayer(vocab_size=5).units == 64 and list(WideLayer.declared()) == list(Layer.declared())
    assert WideLayer.declared()["units"] == dataclasses.replace(Layer.declared()["units"], default=64)


def test_descriptions_derive_from_the_declarations():
    assert Layer.required() == ("vocab_size",)
    lines = WideLayer.describe().splitlines()
    assert lines[0] == "Args:" and len(lines) == 1 + len(Layer.declared())
    assert "    vocab_size: Number of tokens." in lines and "    units: Size of the state. Default: 64." in lines
    assert "    score: How they are compared. One of dot, general, on. Default: dot." in lines
    types = {name: option.type_name for name, option in Layer.declared().items()}
    assert types["units"] == "integer" and types["scale"] == "number" and types["score"] == "dot, general, on"
    assert Option.like(None) == Option(None, str, automatic=True) and Option.like(3).kind is int


def test_integers_that_libraries_cannot_count_are_refused():
    for value in (2**31, 10**22, -(2**31) - 1, np.int64(2**40)):
        with pytest.raises(InputError, match=f"`units`.*2147483647.*units={re.escape(repr(value))}"):
            Layer(vocab_size=5, units=value)
    assert Layer(vocab_size=2**31 - 1).vocab_size == 2**31 - 1


def test_long_values_are_cut_in_messages():
    with pytest.raises(InputError) as caught:
        Layer(vocab_size="x" * 5000)
    assert len(str(caught.value)) < 300
