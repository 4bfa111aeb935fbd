"""Options that are declared once: their checks, how they are read and described."""

import dataclasses
from dataclasses import MISSING, dataclass

import numpy as np
import pytest

from zoo.errors import InputError
from zoo.options import Option, Options, choice, count, flag, number, rate, size, text, texts


@dataclass(frozen=True, kw_only=True)
class Layer(Options):
    """Options of every kind."""

    vocab_size: int = size(MISSING, "Number of symbols.")
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocab_size": 0}, "`vocab_size` must be a positive integer. Received: vocab_size=0."),
        ({"vocab_size": True}, "`vocab_size` must be a positive integer. Received: vocab_size=True."),
        ({"vocab_size": None}, "`vocab_size` must be a positive integer. Received: vocab_size=None."),
        ({"window": -1}, "`window` must be an integer of 0 or more. Received: window=-1."),
        ({"window": 2.0}, "`window` must be an integer of 0 or more. Received: window=2.0."),
        ({"dropout": 1}, r"`dropout` must be in \[0, 1\). Received: dropout=1."),
        ({"dropout": float("nan")}, r"`dropout` must be in \[0, 1\). Received: dropout=nan."),
        ({"scale": 0}, "`scale` must be a positive number. Received: scale=0."),
        ({"share": 1.5}, r"`share` must be in \(0, 1\]. Received: share=1.5."),
        ({"seed": 4}, "`seed` must be an integer from -4 to 3. Received: seed=4."),
        ({"seed": "a"}, "`seed` must be an integer from -4 to 3. Received: seed='a'."),
        ({"bias": 1}, "`bias` must be true or false. Received: bias=1."),
        ({"score": "dots"}, "`score` must be dot, general or on. Received: score='dots'."),
        ({"title": 3}, "`title` must be a text. Received: title=3."),
        ({"names": "abc"}, "`names` must be a list of texts. Received: names='abc'."),
        ({"window": 6}, "`window` is above `vocab_size`. Received: window=6."),
    ],
)
def test_wrong_values(values, message):
    with pytest.raises(InputError, match=message):
        Layer(**{"vocab_size": 5, **values})


def test_texts_are_read_in_the_types_of_the_options():
    values = {"vocab_size": "5", "units": None, "dropout": "0.5", "bias": "off", "score": True, "names": ["a"]}
    options = Layer.read(values, "model")
    assert options == Layer(vocab_size=5, units=None, dropout=0.5, bias=False, score="on", names=["a"])
    with pytest.raises(InputError, match="Unknown setting 'model.unit'. Did you mean model.units"):
        Layer.read({"unit": 3}, "model")
    with pytest.raises(InputError, match="`model.units` must be a positive integer. Received: units='many'."):
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
    assert "    vocab_size: Number of symbols." in lines and "    units: Size of the state. Default: 64." in lines
    assert "    score: How they are compared. One of dot, general, on. Default: dot." in lines
    types = {name: option.type_name for name, option in Layer.declared().items()}
    assert types["units"] == "integer" and types["scale"] == "number" and types["score"] == "dot, general, on"
    assert Option.like(None) == Option(None, str, automatic=True) and Option.like(3).kind is int


@pytest.mark.parametrize("value", [2**31, 10**22, -(2**31) - 1, np.int64(2**40)])
def test_integers_that_libraries_cannot_count_are_refused(value):
    expected = "`units` must be a positive integer, at most 2147483647. Received: units="
    with pytest.raises(InputError, match=expected):
        Layer(vocab_size=5, units=value)
    assert Layer(vocab_size=2**31 - 1).vocab_size == 2**31 - 1


def test_long_values_are_cut_in_messages():
    with pytest.raises(InputError) as caught:
        Layer(vocab_size="x" * 5000)
    assert len(str(caught.value)) < 300
