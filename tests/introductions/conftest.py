"""The lines of docs/introductions.md, to run."""

import functools
import inspect
import re
import shlex
from pathlib import Path

import keras
import numpy as np
import pytest
from support.every import every

import export.heatmap  # noqa: F401 - lines use it by its full name
import zoo
from zoo import layers

PAGE = Path(__file__).parents[2] / "docs" / "introductions.md"
_ROW = re.compile(r"^#### (?P<number>\d+)\. (?P<title>.+?)$(?P<text>.*?)(?=^#{2,4} |\Z)", re.M | re.S)
_BLOCK = re.compile(r"```(?P<language>python|sh)\n(?P<lines>.*?)```", re.S)


def name_of(title):
    """Returns the name that a row's check has after `row_`, such as `the_context_vector`."""
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def numbers():
    """Returns the numbers of the rows, in their order."""
    return [int(row["number"]) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


@functools.cache
def rows():
    """Returns language and lines of each row by the name of its check."""
    found = {}
    for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")):
        (block,) = _BLOCK.finditer(row["text"])
        name = name_of(row["title"])
        assert name not in found, f"two rows have the check {name}"
        found[name] = block["language"], block["lines"]
    return found


@pytest.fixture(autouse=True)
def each_preset_is_loaded_once(monkeypatch):
    monkeypatch.setattr(zoo, "load", _load)


_load = functools.cache(zoo.load)


class Row:
    """A row of the page, for the function that checks it."""

    def __init__(self, name):
        self.language, self.code = rows()[name]

    def lines(self, **variables):
        """Runs the lines with some variables, and returns all variables."""
        assert self.language == "python"
        names = {"np": np, "keras": keras, "zoo": zoo, "layers": layers, "export": export, **variables}
        exec(compile(self.code, str(PAGE), "exec"), names)
        return names

    def command_lines(self):
        """Module and arguments of each command."""
        assert self.language == "sh"
        return [(words[2], words[3:]) for words in map(shlex.split, self.code.strip().splitlines())]


def long(function):
    """Marks the check of a row that takes long, for the nightly tier."""
    function.is_long = True
    return function


@pytest.fixture
def check_rows(request):
    """Returns a function that checks all rows for which the test's file has a `row_…`, and tells each that fails.

    Such a function takes `lines` and `command_lines`, see `Row`, or fixtures; those that are `long` are checked apart.
    """

    def check(are_long=False):
        functions = {name: each for name, each in vars(request.module).items() if name.startswith("row_")}
        functions = {name: each for name, each in functions.items() if getattr(each, "is_long", False) == are_long}
        assert functions
        with every() as failures:
            for name, function in functions.items():
                with failures.of(name), pytest.MonkeyPatch.context() as patch:
                    row, wanted = Row(name.removeprefix("row_")), inspect.signature(function).parameters
                    if "capsys" in wanted:
                        request.getfixturevalue("capsys").readouterr()  # of the rows before
                    own = {"lines": row.lines, "monkeypatch": patch}
                    if "command_lines" in wanted:
                        own["command_lines"] = row.command_lines()
                    function(**{each: own[each] if each in own else request.getfixturevalue(each) for each in wanted})

    return check


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
