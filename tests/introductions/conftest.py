"""The lines of docs/introductions.md, to run."""

import functools
import re
import shlex
from pathlib import Path

import keras
import numpy as np
import pytest

import export.heatmap  # noqa: F401 - lines use it by its full name
import zoo
from zoo import layers

PAGE = Path(__file__).parents[2] / "docs" / "introductions.md"
_ROW = re.compile(r"^#### (?P<number>\d+)\. (?P<title>.+?)$(?P<text>.*?)(?=^#{2,4} |\Z)", re.M | re.S)
_BLOCK = re.compile(r"```(?P<language>python|sh)\n(?P<lines>.*?)```", re.S)


def name_of(title):
    """Returns the name that a row's test has, such as `the_context_vector`."""
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def numbers():
    """Returns the numbers of the rows, in their order."""
    return [int(row["number"]) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


@functools.cache
def rows():
    """Returns language and lines of each row by the name of its test."""
    found = {}
    for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")):
        (block,) = _BLOCK.finditer(row["text"])
        name = name_of(row["title"])
        assert name not in found, f"two rows have the test {name}"
        found[name] = block["language"], block["lines"]
    return found


@pytest.fixture(autouse=True)
def each_preset_is_loaded_once(monkeypatch):
    monkeypatch.setattr(zoo, "load", _load)


_load = functools.cache(zoo.load)


@pytest.fixture
def lines(request):
    """Returns a function that runs the lines of the test's own row with some variables, and returns all variables."""

    def run(**variables):
        language, code = rows()[request.node.originalname.removeprefix("test_")]
        assert language == "python"
        names = {"np": np, "keras": keras, "zoo": zoo, "layers": layers, "export": export, **variables}
        exec(compile(code, str(PAGE), "exec"), names)
        return names

    return run


@pytest.fixture
def command_lines(request):
    """Module and arguments of each command of the test's own row."""
    language, code = rows()[request.node.originalname.removeprefix("test_")]
    assert language == "sh"
    return [(words[2], words[3:]) for words in map(shlex.split, code.strip().splitlines())]


def array(*shape, seed=0):
    """Returns random numbers of a shape."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def close(result, expected, tolerance=1e-5):
    np.testing.assert_allclose(numpy(result), expected, atol=tolerance, rtol=1e-4)
